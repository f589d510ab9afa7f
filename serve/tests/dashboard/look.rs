//! Looks at pages as a browser does.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::basics::form;
use crate::instance::{Answer, Instance};

/// Far longer than anything takes that is awaited.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// Something that others may choose, percent-encoded.
pub(crate) const HOSTILE_IN_FORM: &str = "%3Cscript%3Ealert(1)%3C/script%3E%22'%26%7B%7B7*7%7D%7D";

/// The page at this address.
pub(crate) async fn look(instance: &Instance, address: &str) -> Result<Answer> {
    let line = format!("GET {address}");
    instance.ask(&line, &["Accept: text/html"], "").await
}

/// The page as the holder of this token sees it.
pub(crate) async fn look_as(instance: &Instance, name: &str, address: &str) -> Result<Answer> {
    let bearer = instance.bearer(name);
    let line = format!("GET {address}");
    instance
        .ask(&line, &["Accept: text/html", &bearer], "")
        .await
}

/// Looks until the page is as expected.
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

/// Sends a form, as the holder of this token if one is named.
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

/// The text without its tags and with single spaces.
pub(crate) fn text(html: &str) -> String {
    let mut text = String::new();
    for part in html.split('<') {
        text.push_str(part.split_once('>').map_or(part, |(_, text)| text));
        text.push(' ');
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The rows of the body of the page's table as text.
pub(crate) fn rows(html: &str) -> Vec<String> {
    let body = html.split_once("<tbody>").map_or("", |(_, body)| body);
    let body = body.split_once("</table>").map_or(body, |(body, _)| body);
    let rows = body.split("<tr").skip(1);
    rows.map(|row| text(row.split_once('>').map_or(row, |(_, row)| row)))
        .collect()
}
