//! Loads pages and sends forms as a browser does.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use dueq::{Delivery, Queue};

pub(crate) use crate::instance::LIMIT;
use crate::instance::{Answer, Instance};

/// A hostile name or text, percent-encoded.
pub(crate) const HOSTILE_IN_FORM: &str = "%3Cscript%3Ealert(1)%3C/script%3E%22'%26%7B%7B7*7%7D%7D";

/// Loads the page at this address.
pub(crate) async fn look(instance: &Instance, address: &str) -> Result<Answer> {
    let line = format!("GET {address}");
    instance.ask(&line, &["Accept: text/html"], "").await
}

/// Loads the page with the token of this name.
pub(crate) async fn look_as(instance: &Instance, name: &str, address: &str) -> Result<Answer> {
    let bearer = instance.bearer(name);
    let line = format!("GET {address}");
    instance
        .ask(&line, &["Accept: text/html", &bearer], "")
        .await
}

/// Loads the page repeatedly until it is as expected.
pub(crate) async fn look_until(
    instance: &Instance,
    address: &str,
    expected: impl Fn(&str) -> bool,
) -> Result<String> {
    let end = Instant::now() + LIMIT;
    loop {
        let page = look(instance, address).await?;
        if page.status == 200 && expected(&page.body) {
            return Ok(page.body);
        }
        ensure!(
            Instant::now() < end,
            "it stays {}: {}",
            page.status,
            page.body
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The headers that a browser sends with a form.
pub(crate) fn form(instance: &Instance) -> [String; 3] {
    [
        "Accept: text/html".to_owned(),
        "Content-Type: application/x-www-form-urlencoded".to_owned(),
        format!("Origin: http://{}", instance.address),
    ]
}

/// Sends a form; with the token of this name if one is given.
pub(crate) async fn submit(
    instance: &Instance,
    name: Option<&str>,
    address: &str,
    body: &str,
) -> Result<Answer> {
    let mut headers = form(instance).to_vec();
    headers.extend(name.map(|name| instance.bearer(name)));
    let headers: Vec<_> = headers.iter().map(String::as_str).collect();
    instance
        .ask(&format!("POST {address}"), &headers, body)
        .await
}

/// The text of the HTML without tags, and with single spaces.
pub(crate) fn text(html: &str) -> String {
    let mut text = String::new();
    for part in html.split('<') {
        text.push_str(part.split_once('>').map_or(part, |(_, text)| text));
        text.push(' ');
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The rows of the first table on the page, as text.
pub(crate) fn rows(html: &str) -> Vec<String> {
    let body = html.split_once("<tbody>").map_or("", |(_, body)| body);
    let body = body.split_once("</table>").map_or(body, |(body, _)| body);
    let rows = body.split("<tr").skip(1);
    rows.map(|row| text(row.split_once('>').map_or(row, |(_, row)| row)))
        .collect()
}

/// Claims this number of messages, and repeats until it has them: a message pushed in this
/// millisecond may be due in the next one.
pub(crate) async fn claimed(queue: &Queue, count: usize) -> Result<Vec<Delivery>> {
    let mut deliveries = Vec::new();
    while deliveries.len() < count {
        deliveries.extend(queue.claim(count - deliveries.len(), LIMIT).await?);
    }
    Ok(deliveries)
}

/// Asserts that the answer to a form redirects to this address.
pub(crate) fn led(answer: &Answer, address: &str) {
    let to = answer.header("location");
    assert_eq!((answer.status, to), (303, Some(address)), "{}", answer.body);
}

/// Loads the page to which the answer to a form redirects.
pub(crate) async fn after(instance: &Instance, answer: &Answer) -> Result<String> {
    let address = answer.header("location").context("an address")?;
    Ok(look(instance, address).await?.body)
}
