//! Which queues there are, and what one holds.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::header::{ETAG, IF_NONE_MATCH};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use tokio::time::timeout;
use utoipa_axum::router::UtoipaMethodRouter;
use utoipa_axum::routes;

use crate::edge::path::QueueName;
use crate::edge::problem::Problem;
use crate::routes::declared::Tags;
use crate::wire::queues::Queue;
use crate::work::Shared;

mod backlog;
mod delete;
mod dues;
mod errors;
mod history;
mod limits;
mod list;
mod nodes;
mod pause;

#[cfg(any(test, feature = "harness"))]
pub(crate) use dues::check as check_dues;

/// The longest wait for the entity tag. The library itself repeats the call for longer.
const TAG_LIMIT: Duration = Duration::from_millis(500);

pub(super) fn routes() -> Vec<UtoipaMethodRouter<Shared>> {
    vec![routes!(list::list_queues), routes!(read_queue)]
}

/// The routes about a queue as a whole: its due times, its workers, its errors.
pub(super) fn overviews() -> Vec<UtoipaMethodRouter<Shared>> {
    vec![
        routes!(dues::dues),
        routes!(history::history),
        routes!(nodes::nodes),
        routes!(errors::errors),
        routes!(backlog::backlog),
    ]
}

/// The route that reads the limits of a queue.
pub(super) fn limits() -> Vec<UtoipaMethodRouter<Shared>> {
    limits::reads()
}

/// The route that changes the limits of a queue.
pub(super) fn limit_changes() -> Vec<UtoipaMethodRouter<Shared>> {
    limits::changes()
}

/// The routes that pause and resume a queue.
pub(super) fn pauses() -> Vec<UtoipaMethodRouter<Shared>> {
    pause::routes()
}

/// The route that deletes a queue.
pub(super) fn deletions() -> Vec<UtoipaMethodRouter<Shared>> {
    vec![routes!(delete::delete_queue)]
}

/// Read the counts and limits of a queue
///
/// `ETag` names this creation of the queue: a deletion needs it, and with `If-None-Match` the call reads
/// the queue only if it is another one. Partitions that do not reply within
/// 2 s are named in `unread`.
#[utoipa::path(
    get,
    path = "/v1/queues/{queue}",
    tag = "queues",
    responses(
        (status = 200, body = Queue, headers(("ETag" = Option<String>, description = "Names this creation of the queue"))),
        (status = 304, description = "The queue is still that of `If-None-Match`, whatever its counts are now"),
        (status = 404),
    )
)]
async fn read_queue(
    State(app): State<Shared>,
    name: QueueName,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let known = Tags::read(&headers, &IF_NONE_MATCH)?;
    app.poller.look([name.as_str()]);
    let queue = app.client.queue(name.as_str())?;
    // Read the incarnation before the counts: if the queue is deleted and created again meanwhile,
    // the answer has the old tag. While the master of the home is away, the other partitions are
    // read without a tag.
    let incarnation = match timeout(TAG_LIMIT, queue.incarnation()).await {
        Ok(incarnation) => incarnation?,
        Err(_) => None,
    };
    let is_known = incarnation.as_ref().zip(known.as_ref());
    if is_known.is_some_and(|(incarnation, known)| known.has(incarnation, true)) {
        return Ok((StatusCode::NOT_MODIFIED, tag(incarnation), ()).into_response());
    }
    let stats = queue.stats_reached().await?;
    if incarnation.is_none() && stats.unread.is_empty() {
        app.existing(&name).await?; // a damaged queue has no incarnation
    }
    let stats = Queue::new(name.as_str(), &stats);
    Ok((tag(incarnation), Json(stats)).into_response())
}

fn tag(incarnation: Option<String>) -> Option<[(HeaderName, HeaderValue); 1]> {
    let tag = format!("\"{}\"", incarnation?);
    Some([(ETAG, HeaderValue::from_str(&tag).ok()?)])
}
