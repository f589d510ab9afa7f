//! The actions on all messages that the list matches, on this page and the others.

use axum::http::Method;
use serde_json::{Value, json};

use crate::dashboard::api::Failure;
use crate::dashboard::form::Form;
use crate::dashboard::page::Page;
use crate::dashboard::views::dead::number;
use crate::dashboard::views::messages::asked::{Asked, FILTER};
use crate::edge::problem::{Code, Problem};
use crate::wire::operations::OperationReport;

/// What the form for all that match sends, besides limit and pace.
pub(super) struct Matching {
    /// Hidden fields with their values.
    pub(super) fields: Vec<(&'static str, String)>,
    /// The action of the button, and its label.
    pub(super) actions: Vec<(&'static str, &'static str)>,
}

impl Matching {
    /// `None` for a state that cannot be changed: a handler has the messages.
    pub(super) fn new(asked: &Asked, now_ms: u64) -> Option<Self> {
        let actions = match asked.state {
            "scheduled" | "ready" => vec![("cancel", "Cancel all that match")],
            "dead" => vec![
                ("requeue", "Requeue all that match"),
                ("cancel", "Remove all that match"),
            ],
            _ => return None,
        };
        let mut fields = vec![("state", asked.state.to_owned())];
        if let Some((_, ms)) = &asked.from {
            fields.push(("after_ms", ms.to_string()));
        }
        // The list ends before its bound, and what dies after the page was made is not meant.
        let before_ms = asked.before.as_ref().map(|(_, ms)| ms.saturating_sub(1));
        let before_ms = match asked.state {
            "dead" => Some(before_ms.unwrap_or(now_ms).min(now_ms)),
            _ => before_ms,
        };
        fields.extend(before_ms.map(|ms| ("before_ms", ms.to_string())));
        let filter = FILTER.into_iter().zip(asked.filter.iter().cloned());
        fields.extend(filter.filter(|(_, typed)| !typed.is_empty()));
        Some(Self { fields, actions })
    }
}

/// Begins the operation that the form asks for, and returns it.
pub(super) async fn begin(
    page: &Page,
    queue: &str,
    form: &Form,
) -> Result<OperationReport, Failure> {
    let address = format!("/v1/queues/{queue}/operations");
    page.api
        .send(Method::POST, &address, Some(&body(form)?))
        .await
}

fn body(form: &Form) -> Result<Value, Problem> {
    let mut body = json!({});
    let what = form.get("all").unwrap_or_default();
    let (kind, is_dry_run) = match what.split_once(' ') {
        Some(("count", kind)) => (kind, true),
        _ => (what, false),
    };
    if !matches!(kind, "cancel" | "requeue") {
        return Err(Problem::new(
            Code::InvalidInput,
            "the form names no known action",
        ));
    }
    body["kind"] = kind.into();
    if kind == "cancel" {
        body["state"] = form.get("state").into();
    }
    if let Some(text) = form.filled("error_text") {
        body["error_text"] = text.into();
    }
    for name in ["after_ms", "before_ms", "min_failures", "min_crashes"] {
        if let Some(number) = number(form, name)? {
            body[name] = number.into();
        }
    }
    if is_dry_run {
        body["dry_run"] = true.into();
        return Ok(body);
    }
    for name in ["limit", "pace"] {
        if let Some(number) = number(form, name)? {
            body[name] = number.into();
        }
    }
    if let (Some(canary), "requeue") = (number(form, "canary")?, kind) {
        body["canary"] = canary.into();
    }
    Ok(body)
}
