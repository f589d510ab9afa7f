//! The messages of a queue: push, read, change, list.

mod change;
mod cursor;
mod fields;
mod key;
mod lines;
mod list;
mod payload;
mod post;
mod push;
mod read;
mod reader;
mod schema;
mod stream;
mod tally;

use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::{App, Shared};
use crate::path::{MessageId, QueueName};
use crate::problem::{Code, Problem};
use crate::shown::quoted;

pub(crate) use tally::Summary;

/// Lists and messages. Payloads are left out for callers who may not read them.
pub(super) fn reads() -> OpenApiRouter<Shared> {
    OpenApiRouter::new()
        .routes(routes!(list::list))
        .routes(routes!(read::read))
}

/// Payloads as they were pushed.
pub(super) fn payloads() -> OpenApiRouter<Shared> {
    OpenApiRouter::new().routes(routes!(payload::download))
}

/// Pushes, and changes of waiting messages.
pub(super) fn changes() -> OpenApiRouter<Shared> {
    OpenApiRouter::new()
        .routes(routes!(push::put, change::change, change::cancel))
        .routes(routes!(post::post))
}

/// Dead messages become due again.
pub(super) fn revivals() -> OpenApiRouter<Shared> {
    OpenApiRouter::new().routes(routes!(change::requeue))
}

/// The problem of an id that the queue does not hold: says how its message ended, if the queue
/// remembers it, and whether there is a queue at all.
async fn absent(app: &App, name: &QueueName, id: &MessageId) -> Problem {
    let known = async {
        let queue = app.existing(name).await?;
        Ok::<_, Problem>(queue.outcome(id.as_bytes()).await?)
    };
    let outcome = match known.await {
        Ok(outcome) => outcome,
        Err(problem) => return problem,
    };
    let (queue, id) = (quoted(name.as_str()), id.quoted());
    let end = match outcome {
        Some(outcome) => format!("the last one was {}", outcome.ended.as_str()),
        None => "and remembers none".to_owned(),
    };
    let detail = format!("queue {queue} has no message {id}: {end}");
    Problem::new(Code::NoSuchMessage, detail).ended(outcome)
}
