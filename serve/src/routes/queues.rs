//! Which queues there are, and what one holds.

use axum::Json;
use axum::extract::State;
use utoipa_axum::router::UtoipaMethodRouter;
use utoipa_axum::routes;

use crate::app::Shared;
use crate::path::QueueName;
use crate::problem::{Code, Document, Problem};
use crate::shown::quoted;

mod list;
mod stats;

pub(crate) use list::{Listed, known};
use stats::Stats;

pub(super) fn routes() -> Vec<UtoipaMethodRouter<Shared>> {
    vec![routes!(list::list_queues), routes!(read_queue)]
}

/// Read the counts and limits of a queue
#[utoipa::path(
    get,
    path = "/v1/queues/{queue}",
    tag = "queues",
    params(("queue" = String, Path, description = "The name, percent-encoded, or `~` and its base64url")),
    responses(
        (status = 200, body = Stats),
        (status = 404, description = "The queue does not exist", body = Document, content_type = "application/problem+json"),
    )
)]
async fn read_queue(State(app): State<Shared>, name: QueueName) -> Result<Json<Stats>, Problem> {
    app.poller.look([name.as_str()]);
    let queue = app.existing(&name).await?;
    Ok(Json(Stats::new(name.as_str(), &queue.stats().await?)))
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
