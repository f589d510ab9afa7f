//! The actions of the page of one message.

use std::time::Instant;

use axum::http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::dashboard::api::Failure;
use crate::dashboard::form::Form;
use crate::dashboard::frame::segment;
use crate::dashboard::page::Page;
use crate::dashboard::undo::Cancelled;
use crate::dashboard::views::answer::{Answer, see};
use crate::dashboard::views::messages;
use crate::edge::path::MessageId;
use crate::edge::problem::{Code, Problem};
use crate::edge::shown::moment;
use crate::work::App;

/// The response of `/v1` to a change.
#[derive(Deserialize)]
struct Changed {
    outcome: String,
    undo_ms: Option<u64>,
}

pub(super) async fn change(app: &App, page: &Page, id: &MessageId, form: &Form) -> Answer {
    let id_segment = dueq_input::id_path(id.as_bytes());
    let own = format!(
        "/queues/{}/messages/{id_segment}",
        segment(page.queue_name()?)
    );
    let address = format!("/v1{own}");
    let did = match form.get("action") {
        Some("run_now") => {
            let body = json!({ "run_now": true });
            let changed: Changed = page.api.send(Method::PATCH, &address, Some(&body)).await?;
            if changed.outcome == "already" {
                "already"
            } else {
                "due"
            }
        }
        Some("reschedule") => {
            let body = new_due(page, form)?;
            let _: Changed = page.api.send(Method::PATCH, &address, Some(&body)).await?;
            "moved"
        }
        Some("cancel") => cancel(app, page, id, &address).await?,
        Some("remove") => {
            let address = format!("{address}?dead=true");
            let _: Changed = page.api.send(Method::DELETE, &address, None).await?;
            "removed"
        }
        Some("requeue") => {
            let address = format!("{address}/requeue");
            let _: Changed = page.api.send(Method::POST, &address, None).await?;
            "requeued"
        }
        Some("end_lease") => {
            let body = json!({ "lease": form.get("lease") });
            let address = format!("{address}/end-lease");
            let changed: Changed = page.api.send(Method::POST, &address, Some(&body)).await?;
            match changed.outcome.as_str() {
                "died" => "lease_died",
                _ => "lease_ended",
            }
        }
        Some("bury") => {
            let body = json!({ "reason": format!("buried by {}", page.caller().name) });
            let address = format!("{address}/bury");
            let changed: Changed = page.api.send(Method::POST, &address, Some(&body)).await?;
            match changed.outcome.as_str() {
                "marked" => "marked",
                "dead" => "was_dead",
                _ => "buried",
            }
        }
        Some("undo") => undo(page, id, &address).await?,
        _ => return Err(Problem::new(Code::InvalidInput, "the form names no known action").into()),
    };
    see(&page.base, &format!("{own}?did={did}"))
}

/// The body that sets a new due time. `expected_due_ms` is the due time that the page showed: if
/// the message has moved since, the call changes nothing.
fn new_due(page: &Page, form: &Form) -> Result<Value, Problem> {
    let Some(when) = form.filled("when").map(str::trim) else {
        return Err(Problem::new(
            Code::InvalidInput,
            "when: write a delay, such as 24h, or a time",
        ));
    };
    let mut body = match dueq_input::delay(when) {
        Ok(_) => json!({ "delay": when }),
        Err(_) => json!({ "at": moment(messages::moment(page, "when", when)?) }),
    };
    if let Some(expected) = form.filled("expected_due_ms") {
        let expected: u64 = expected
            .parse()
            .map_err(|_| Problem::new(Code::InvalidInput, "expected_due_ms: it is no number"))?;
        body["expected_due_ms"] = expected.into();
    }
    Ok(body)
}

/// Cancels the message, and keeps it for an undo. A change between the read and the cancel is lost:
/// a cancel cannot say which version of the message it means.
async fn cancel(
    app: &App,
    page: &Page,
    id: &MessageId,
    address: &str,
) -> Result<&'static str, Failure> {
    let caller = page.caller();
    let read = match caller.may_produce {
        true => Some(Cancelled::read(&page.api, &app.edge.bodies, address).await),
        false => None,
    };
    let (queue, id) = (page.queue_name()?, id.as_bytes());
    // This is a second click. The message that the first click kept can still be restored.
    if let Some(Err(failure)) = &read
        && failure.code() == "no_such_message"
        && page.undo.is_by(queue, id, &caller.name, Instant::now())
    {
        return Ok("cancelled");
    }
    let changed: Changed = page.api.send(Method::DELETE, address, None).await?;
    let Some(undo_ms) = changed.undo_ms else {
        return Ok("next_cancelled");
    };
    if let Some(Ok(message)) = read
        && message.due_ms().is_some()
    {
        let cancelled = (caller.name.as_str(), undo_ms);
        page.undo
            .keep((queue, id), cancelled, message, Instant::now());
    }
    Ok("cancelled")
}

/// Pushes the cancelled message again, if nothing else has happened to its id since. A second click
/// on undo changes nothing, even if the restored message was already handled.
async fn undo(page: &Page, id: &MessageId, address: &str) -> Result<&'static str, Failure> {
    let kept = page
        .undo
        .get(page.queue_name()?, id.as_bytes(), Instant::now());
    let Some((message, undo_ms, _)) = kept else {
        let there = format!("{address}?payload_bytes=0");
        return match page.api.get::<Value>(&there).await {
            Ok(_) => Ok("there"),
            Err(failure) if failure.code() == "no_such_message" => Err(too_late(id)),
            Err(failure) => Err(failure),
        };
    };
    let body = message.body(undo_ms);
    let pushed: Changed = page.api.send(Method::PUT, address, Some(&body)).await?;
    match pushed.outcome.as_str() {
        "created" => {
            let (queue, now_ms) = (page.queue_name()?, page.clock.now_ms());
            page.undo.note(queue, id.as_bytes(), now_ms, Instant::now());
            Ok("undone")
        }
        "exists" => Ok("there"),
        "finished" => Ok("used"),
        other => {
            let detail = format!("message {} is not back: its id is {other}", id.quoted());
            Err(Problem::new(Code::NoSuchMessage, detail).into())
        }
    }
}

fn too_late(id: &MessageId) -> Failure {
    let detail = format!(
        "message {} cannot be brought back: this instance of the server has not kept it, because it \
         keeps what was cancelled here for 10 s, and 16 MiB in all",
        id.quoted()
    );
    Problem::new(Code::NoSuchMessage, detail).into()
}
