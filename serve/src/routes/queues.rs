//! Which queues there are, and what one holds.

use axum::Json;
use axum::extract::State;
use axum::http::HeaderValue;
use axum::http::header::ETAG;
use axum::response::{IntoResponse, Response};
use utoipa_axum::router::UtoipaMethodRouter;
use utoipa_axum::routes;

use crate::app::Shared;
use crate::path::QueueName;
use crate::problem::{Code, Document, Problem};
use crate::shown::quoted;

mod delete;
mod list;
mod stats;

pub(crate) use list::{Listed, known};
use stats::Stats;

pub(super) fn routes() -> Vec<UtoipaMethodRouter<Shared>> {
    vec![routes!(list::list_queues), routes!(read_queue)]
}

/// The deletion of a queue.
pub(super) fn deletions() -> Vec<UtoipaMethodRouter<Shared>> {
    vec![routes!(delete::delete_queue)]
}

/// Read the counts and limits of a queue
///
/// `ETag` names this creation of the queue: a deletion needs it.
#[utoipa::path(
    get,
    path = "/v1/queues/{queue}",
    tag = "queues",
    params(("queue" = String, Path, description = "The name, percent-encoded, or `~` and its base64url")),
    responses(
        (status = 200, body = Stats, headers(("ETag" = Option<String>, description = "Names this creation of the queue"))),
        (status = 404, description = "The queue does not exist", body = Document, content_type = "application/problem+json"),
    )
)]
async fn read_queue(State(app): State<Shared>, name: QueueName) -> Result<Response, Problem> {
    app.poller.look([name.as_str()]);
    let queue = app.client.queue(name.as_str())?;
    // Before the counts: if another queue takes its place meanwhile, the tag is that of the old one.
    let incarnation = queue.incarnation().await?;
    let Some(incarnation) = incarnation else {
        app.existing(&name).await?; // a damaged one has no incarnation
        let stats = Stats::new(name.as_str(), &queue.stats().await?);
        return Ok(Json(stats).into_response());
    };
    let stats = Stats::new(name.as_str(), &queue.stats().await?);
    let tag = HeaderValue::from_str(&format!("\"{incarnation}\""));
    let tag = tag.map(|tag| [(ETAG, tag)]);
    Ok((tag.ok(), Json(stats)).into_response())
}

impl crate::app::App {
    /// A queue that must exist.
    pub(crate) async fn existing(&self, name: &QueueName) -> Result<dueq::Queue, Problem> {
        let queue = self.client.queue(name.as_str())?;
        if queue.exists().await? {
            return Ok(queue);
        }
        let detail = format!(
            "there is no queue {}: its first push creates it",
            quoted(name.as_str())
        );
        Err(Problem::new(Code::NoSuchQueue, detail))
    }
}
