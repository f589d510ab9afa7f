//! Requeues and purges dead messages.

use axum::http::Method;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use crate::dashboard::form::Form;
use crate::dashboard::frame::{Here, segment};
use crate::dashboard::page::Page;
use crate::dashboard::views::each::Change;
use crate::dashboard::views::messages::{List, Listed, Operation};
use crate::dashboard::views::{Answer, see};
use crate::problem::{Code, Problem};
use crate::routes::{died_by_crash, error_line};
use crate::shown::moment;

/// How many of the newest dead messages a group is of.
const MAX_READ: usize = 1_000;

pub(super) async fn act(page: Page, form: Form) -> Answer {
    let queue = segment(page.queue_name()?);
    let before_ms = number(&form, "before_ms")?
        .ok_or_else(|| invalid("before_ms: the form does not say when its page was made"))?;
    let body = match form.get("action") {
        Some("requeue") => {
            let mut body = json!({ "kind": "requeue", "before_ms": before_ms });
            for field in ["canary", "pace"] {
                if let Some(number) = number(&form, field)? {
                    body[field] = number.into();
                }
            }
            body
        }
        Some("purge") => purge(&form, before_ms)?,
        Some("group") => return group(&page, &form, &queue, before_ms).await,
        _ => return Err(invalid("the form names no known action").into()),
    };
    let address = format!("/v1/queues/{queue}/operations");
    let begun: Operation = page.api.send(Method::POST, &address, Some(&body)).await?;
    see(
        &page.base,
        &format!("/operations/{queue}/{}?did=begun", begun.id),
    )
}

fn purge(form: &Form, before_ms: u64) -> Result<Value, Problem> {
    let (count, typed) = (number(form, "count")?, number(form, "typed")?);
    if count.is_none() || count != typed {
        let count = count.unwrap_or_default();
        let detail =
            format!("typed: nothing was purged; type the number of dead messages, {count}");
        return Err(invalid(detail));
    }
    let mut body = json!({ "kind": "purge", "state": "dead", "before_ms": before_ms });
    if let Some(pace) = number(form, "pace")? {
        body["pace"] = pace.into();
    }
    Ok(body)
}

/// Requeues the messages of a group, one after the other: `/v1` has no operation for it.
async fn group(page: &Page, form: &Form, queue: &str, before_ms: u64) -> Answer {
    let error = form.get("error").unwrap_or_default();
    let error = URL_SAFE_NO_PAD
        .decode(error)
        .ok()
        .and_then(|error| String::from_utf8(error).ok());
    let error = error.ok_or_else(|| invalid("error: it is not base64url of a text"))?;
    let crashed = form.get("crashed") == Some("true");
    let list: List = page
        .api
        .get(&format!(
            "/v1/queues/{queue}/messages?state=dead&order=newest&limit={MAX_READ}&before={}",
            moment(before_ms.saturating_add(1))
        ))
        .await?;
    let is_of_group = |message: &&Listed| {
        died_by_crash(message.crashes, &message.error) == crashed
            && error_line(&message.error) == error
    };
    let ids = list.messages.iter().filter(is_of_group);
    let ids: Vec<_> = ids.map(|message| message.segment().to_owned()).collect();
    let outcome = Change::Requeue.each(&page.api, queue, &ids).await?;
    outcome.page(page, queue, Here::Dead, format!("/queues/{queue}/dead"))
}

/// The number in a field, with or without commas; `None` if the field is empty.
fn number(form: &Form, field: &str) -> Result<Option<u64>, Problem> {
    let Some(typed) = form.filled(field) else {
        return Ok(None);
    };
    let digits = typed.trim().replace(',', "");
    let number = digits.parse().map_err(|_| {
        let typed = crate::shown::quoted(typed);
        invalid(format!("{field}: {typed} is no whole number"))
    })?;
    Ok(Some(number))
}

fn invalid(detail: impl Into<String>) -> Problem {
    Problem::new(Code::InvalidInput, detail)
}
