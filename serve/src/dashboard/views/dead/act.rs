//! Requeues and purges dead messages.

use axum::http::Method;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use crate::dashboard::form::Form;
use crate::dashboard::frame::segment;
use crate::dashboard::page::Page;
use crate::dashboard::views::messages::{Operation, moment};
use crate::dashboard::views::{Answer, see};
use crate::problem::{Code, Problem};

pub(super) async fn act(page: Page, form: Form) -> Answer {
    let queue = segment(page.queue_name()?);
    let before_ms = number(&form, "before_ms")?
        .ok_or_else(|| invalid("before_ms: the form does not say when its page was made"))?;
    let body = match form.get("action") {
        Some("requeue") => requeue(&page, &form, before_ms)?,
        Some("purge") => purge(&form, before_ms)?,
        _ => return Err(invalid("the form names no known action").into()),
    };
    let address = format!("/v1/queues/{queue}/operations");
    let begun: Operation = page.api.send(Method::POST, &address, Some(&body)).await?;
    see(
        &page.base,
        &format!("/operations/{queue}/{}?did=begun", begun.id),
    )
}

/// Of a group, or of all.
fn requeue(page: &Page, form: &Form, before_ms: u64) -> Result<Value, Problem> {
    let until_ms = match form.filled("until") {
        Some(typed) => moment(page, "until", typed)?,
        None => before_ms,
    };
    let mut body = json!({ "kind": "requeue", "before_ms": until_ms.min(before_ms) });
    if let Some(key) = form.get("error") {
        body["error"] = read_key("error", key)?.into();
        body["crashed"] = (form.get("crashed") == Some("true")).into();
    }
    for field in ["canary", "pace"] {
        if let Some(number) = number(form, field)? {
            body[field] = number.into();
        }
    }
    Ok(body)
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

/// The error that a form or an address names: base64url, as it may hold anything.
pub(super) fn read_key(field: &str, key: &str) -> Result<String, Problem> {
    let bytes = URL_SAFE_NO_PAD.decode(key).ok();
    let error = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    error.ok_or_else(|| invalid(format!("{field}: it is not base64url of a text")))
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
