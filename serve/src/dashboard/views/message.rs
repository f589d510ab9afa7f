//! `/queues/Q/messages/ID`: one message, what it is, and what can be done with it.

mod act;
mod commands;
mod ended;

use askama::Template;
use axum::Router;
use axum::extract::State;
use axum::routing::get;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use crate::app::Shared;
use crate::dashboard::frame::{Frame, Here, segment};
use crate::dashboard::page::Page;
use crate::dashboard::show::{self, Payload};
use crate::dashboard::views::message::commands::Action;
use crate::dashboard::views::message::ended::Moment;
use crate::dashboard::views::messages::Now;
use crate::dashboard::views::{Answer, each, render};
use crate::path::MessageId;

#[derive(Deserialize)]
struct Message {
    state: String,
    due_ms: Option<u64>,
    leased_until_ms: Option<u64>,
    died_ms: Option<u64>,
    failures: u32,
    crashes: u32,
    snoozes: u32,
    max_attempts: Option<u32>,
    cost: u32,
    traceparent: Option<String>,
    expires_at_ms: Option<u64>,
    expires_after_ms: Option<u64>,
    on_expire: String,
    window_ms: Option<u64>,
    due_by_ms: Option<u64>,
    next_due_ms: Option<u64>,
    lease: Option<String>,
    node: Option<String>,
    error: String,
    payload: Option<String>,
    payload_base64: Option<String>,
    payload_bytes: u64,
    payload_truncated: bool,
    payload_withheld: bool,
}

#[derive(Template)]
#[template(path = "message.html")]
struct MessagePage {
    frame: Frame,
    name: String,
    segment: String,
    id: String,
    id_segment: String,
    message: Message,
    moments: Vec<Moment>,
    actions: Vec<Action>,
    /// The lines of the error.
    error: String,
    payload: Option<Payload>,
    trace: Option<String>,
    may_produce: bool,
}

pub(super) use commands::quoted as shell_word;

pub(super) fn routes() -> Router<Shared> {
    Router::new().route("/queues/{queue}/messages/{id}", get(message).post(act::act))
}

async fn message(State(app): State<Shared>, page: Page, id: MessageId) -> Answer {
    let name = page.queue_name()?;
    let (segment, id_segment) = (segment(name), dueq_input::id_path(id.as_bytes()));
    let queue = format!("/v1/queues/{segment}");
    let address = format!("{queue}/messages/{id_segment}");
    let message = match page.api.get::<Message>(&address).await {
        Ok(message) => message,
        Err(failure) if failure.code() == "no_such_message" => {
            return ended::page(&app, &page, &id, &failure).await;
        }
        Err(failure) => return Err(failure),
    };
    let now: Now = page.api.get(&format!("{queue}/dues?count=1")).await?;
    let clock = page.clock.clone().at(now.now_ms);
    let shown_id = each::shown(&id_segment);
    let payload = (!message.payload_withheld).then(|| show::payload(&bytes_of(&message)));
    render(&MessagePage {
        frame: page
            .frame(
                format!("{shown_id} in {}", show::text(name)),
                Here::Messages,
            )
            .at(&clock),
        name: show::text(name),
        may_produce: page.caller().may_produce,
        moments: ended::moments(&message, &clock),
        actions: commands::actions(&message, page.caller(), name, id.as_bytes()),
        error: message
            .error
            .lines()
            .map(show::text)
            .collect::<Vec<_>>()
            .join("\n"),
        trace: message.traceparent.as_deref().and_then(trace_of),
        payload,
        id: shown_id,
        segment,
        id_segment,
        message,
    })
}

/// The bytes of the payload, or its first ones.
fn bytes_of(message: &Message) -> Vec<u8> {
    match (&message.payload, &message.payload_base64) {
        (Some(text), _) => text.clone().into_bytes(),
        (None, Some(encoded)) => STANDARD.decode(encoded).unwrap_or_default(),
        (None, None) => Vec::new(),
    }
}

/// The id of the trace in a `traceparent`.
fn trace_of(parent: &str) -> Option<String> {
    parent.split('-').nth(1).map(show::text)
}
