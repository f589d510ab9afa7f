//! Which queues there are, and what one holds.

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::UtoipaMethodRouter;
use utoipa_axum::routes;

use crate::app::Shared;
use crate::auth::Principal;
use crate::path::QueueName;
use crate::problem::{Code, Document, Problem};
use crate::shown::quoted;

mod stats;

use stats::Stats;

pub(super) fn routes() -> Vec<UtoipaMethodRouter<Shared>> {
    vec![routes!(list_queues), routes!(read_queue)]
}

/// The queues that the caller may use.
#[derive(Serialize, ToSchema)]
struct Queues {
    queues: Vec<Listed>,
    /// How old the list is.
    age_ms: u64,
}

/// A queue of the list.
#[derive(Serialize, ToSchema)]
struct Listed {
    queue: String,
}

/// List the queues
///
/// Those that the caller may use, sorted. The server scans the keys of Redis for them every 5 s at
/// most, unless it was started with `--queues` and names only.
#[utoipa::path(get, path = "/v1/queues", tag = "queues", responses((status = 200, body = Queues)))]
async fn list_queues(
    State(app): State<Shared>,
    principal: Principal,
) -> Result<Json<Queues>, Problem> {
    let (names, age_ms) = match app.listed_queues() {
        Some(names) => (names, 0),
        None => {
            let (names, age) = app.names.get(&app.client).await?;
            (names, u64::try_from(age.as_millis()).unwrap_or(u64::MAX))
        }
    };
    let names = names.into_iter();
    let allowed = names.filter(|name| app.serves(name) && principal.may_use(name));
    let queues = allowed.map(|queue| Listed { queue }).collect();
    Ok(Json(Queues { queues, age_ms }))
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
