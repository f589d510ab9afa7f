//! `/queues/Q/messages/ID`: the page of one message, with the actions on it.

mod act;
mod commands;
mod ended;
mod moments;

use std::time::Instant;

use askama::Template;
use axum::Router;
use axum::extract::State;
use axum::routing::get;

use crate::dashboard::form::{Fields, Form};
use crate::dashboard::frame::{Frame, Here, segment};
use crate::dashboard::page::Page;
use crate::dashboard::show::{self, Payload};
use crate::dashboard::views::answer::{Answer, again, render};
use crate::dashboard::views::each;
use crate::dashboard::views::message::commands::Action;
use crate::dashboard::views::message::moments::Moment;
use crate::dashboard::views::workers;
use crate::edge::path::MessageId;
use crate::wire::messages::Message;
use crate::wire::overview::Dues;
use crate::wire::workers::Holder;
use crate::work::Shared;

#[derive(Template)]
#[template(path = "message.html")]
struct MessageView {
    frame: Frame,
    name: String,
    segment: String,
    id: String,
    id_segment: String,
    message: Message,
    moments: Vec<Moment>,
    actions: Vec<Action>,
    /// The error of the last failure, with its line breaks.
    error: String,
    payload: Option<Payload>,
    trace: Option<String>,
    may_produce: bool,
    fields: Fields,
    holder: Option<HolderView>,
}

/// The worker that has the message.
struct HolderView {
    /// Its process in words; else the end of its node id.
    what: String,
    /// The address of its process's page.
    href: Option<String>,
    /// For how long it is silent, if it is no longer alive.
    silent: Option<String>,
}

pub(super) use commands::quoted as shell_word;

pub(super) fn routes() -> Router<Shared> {
    Router::new().route("/queues/{queue}/messages/{id}", get(message).post(act))
}

async fn act(State(app): State<Shared>, page: Page, id: MessageId, form: Form) -> Answer {
    match act::change(&app, &page, &id, &form).await {
        Err(failure) => again(message(page.refused(&form, failure)?, id).await),
        done => done,
    }
}

async fn message(page: Page, id: MessageId) -> Answer {
    let name = page.queue_name()?;
    let (segment, id_segment) = (segment(name), dueq_input::id_path(id.as_bytes()));
    let queue = format!("/v1/queues/{segment}");
    let address = format!("{queue}/messages/{id_segment}");
    let message = match page.api.get::<Message>(&address).await {
        Ok(message) => message,
        Err(failure) if failure.code() == "no_such_message" => {
            return ended::page(&page, &id, &failure).await;
        }
        Err(failure) => return Err(failure),
    };
    let now: Dues = page.api.get(&format!("{queue}/dues?count=1")).await?;
    let clock = page.clock.clone().at(now.now_ms);
    let undone = page.undo.undone(name, id.as_bytes(), Instant::now());
    let shown_id = each::shown(&id_segment);
    let payload =
        (!message.payload.payload_withheld).then(|| show::payload(&message.payload.bytes()));
    render(&MessageView {
        frame: page
            .frame(
                format!("{shown_id} in {}", show::text(name)),
                Here::Messages,
            )
            .at(&clock),
        name: show::text(name),
        may_produce: page.caller().may_produce,
        moments: moments::of(&message, undone.as_ref(), &clock),
        actions: commands::actions(&message, page.caller(), name, id.as_bytes()),
        error: message
            .error
            .lines()
            .map(show::text)
            .collect::<Vec<_>>()
            .join("\n"),
        holder: message
            .node
            .as_deref()
            .map(|node| HolderView::new(node, message.holder.as_ref())),
        trace: message.traceparent.as_deref().and_then(trace_of),
        payload,
        fields: page.fields,
        id: shown_id,
        segment,
        id_segment,
        message,
    })
}

impl HolderView {
    fn new(node: &str, holder: Option<&Holder>) -> Self {
        let process = holder.and_then(|holder| holder.process.as_ref());
        Self {
            what: match process {
                Some(process) => show::text(&format!("{} on {}", process.pid, process.host)),
                None => format!("…{}", show::text(node)),
            },
            href: process.map(workers::address),
            silent: holder
                .filter(|holder| !holder.is_alive)
                .map(|holder| show::duration(holder.silent_ms)),
        }
    }
}

/// The trace id in a `traceparent`.
fn trace_of(parent: &str) -> Option<String> {
    parent.split('-').nth(1).map(show::text)
}
