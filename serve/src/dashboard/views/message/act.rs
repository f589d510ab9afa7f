//! Changes one message.

use std::time::Instant;

use axum::extract::State;
use axum::http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::{App, Shared};
use crate::dashboard::api::Failure;
use crate::dashboard::form::Form;
use crate::dashboard::frame::segment;
use crate::dashboard::page::Page;
use crate::dashboard::undo::Cancelled;
use crate::dashboard::views::{Answer, messages, see};
use crate::path::MessageId;
use crate::problem::{Code, Problem};
use crate::shown::moment;

/// What a call of `/v1` did.
#[derive(Deserialize)]
struct Changed {
    outcome: String,
}

pub(super) async fn act(
    State(app): State<Shared>,
    page: Page,
    id: MessageId,
    form: Form,
) -> Answer {
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
            let body = new_due(&page, &form)?;
            let _: Changed = page.api.send(Method::PATCH, &address, Some(&body)).await?;
            "moved"
        }
        Some("cancel") => cancel(&app, &page, &id, &address).await?,
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
        Some("undo") => undo(&app, &page, &id, &address).await?,
        _ => return Err(Problem::new(Code::InvalidInput, "the form names no known action").into()),
    };
    see(&page.base, &format!("{own}?did={did}"))
}

/// The new due time. `expected_due_ms` is what the page showed: if somebody else has moved the message
/// meanwhile, nothing is changed.
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

/// Cancels the message, and keeps it for an undo. What changes between the read and the cancel is lost:
/// a cancel cannot name the message that it means.
async fn cancel(
    app: &App,
    page: &Page,
    id: &MessageId,
    address: &str,
) -> Result<&'static str, Failure> {
    let may_undo = page.caller().may_produce;
    let read = match may_undo {
        true => Cancelled::read(&page.api, &app.bodies, address).await.ok(),
        false => None,
    };
    let changed: Changed = page.api.send(Method::DELETE, address, None).await?;
    if changed.outcome == "next_cancelled" {
        return Ok("next_cancelled");
    }
    // A second click reads nothing, and what the first one has kept stays.
    if let Some(message) = read.filter(|message| message.due_ms().is_some()) {
        app.undo
            .keep(page.queue_name()?, id.as_bytes(), message, Instant::now());
    }
    Ok("cancelled")
}

/// Pushes the cancelled message again, once: of two clicks at once the second waits for the first, and
/// pushes nothing, also if the message has been handled by then.
async fn undo(
    app: &App,
    page: &Page,
    id: &MessageId,
    address: &str,
) -> Result<&'static str, Failure> {
    let queue = page.queue_name()?;
    let turn = app.undo.turn(queue, id.as_bytes(), Instant::now());
    let _turn = match &turn {
        Some(turn) => Some(turn.lock().await),
        None => None,
    };
    let Some((message, _)) = app.undo.get(queue, id.as_bytes(), Instant::now()) else {
        return match page
            .api
            .get::<Value>(&format!("{address}?payload_bytes=0"))
            .await
        {
            Ok(_) => Ok("there"),
            Err(failure) if failure.code() == "no_such_message" => {
                match app.undo.is_undone(queue, id.as_bytes(), Instant::now()) {
                    true => Ok("undone"),
                    false => Err(too_late(id)),
                }
            }
            Err(failure) => Err(failure),
        };
    };
    let body = message.body();
    let pushed: Changed = page.api.send(Method::PUT, address, Some(&body)).await?;
    match pushed.outcome.as_str() {
        "created" => {
            app.undo.undone(queue, id.as_bytes(), &message);
            Ok("undone")
        }
        "exists" => Ok("there"),
        other => {
            let detail = format!("message {} is not back: its id is {other}", id.quoted());
            Err(Problem::new(Code::NoSuchMessage, detail).into())
        }
    }
}

fn too_late(id: &MessageId) -> Failure {
    let detail = format!(
        "message {} cannot be brought back: this instance of the server has not kept it, because it \
         keeps what was cancelled here for 30 s, and 16 MiB in all",
        id.quoted()
    );
    Problem::new(Code::NoSuchMessage, detail).into()
}
