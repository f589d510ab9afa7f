//! Pauses and resumes a queue.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::UtoipaMethodRouter;
use utoipa_axum::routes;

use crate::edge::body::JsonBody;
use crate::edge::path::QueueName;
use crate::edge::problem::Problem;
use crate::work::Shared;

pub(super) fn routes() -> Vec<UtoipaMethodRouter<Shared>> {
    vec![routes!(pause_queue, resume_queue)]
}

/// For how long.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Pause {
    /// The queue opens by itself after this time: 1 ms to 100 years. Without it, it stays paused.
    #[schema(minimum = 1, maximum = 3_155_760_000_000_u64)]
    for_ms: Option<u64>,
}

/// What was done.
#[derive(Serialize, ToSchema)]
struct Done {
    queue: String,
    /// `paused`, `closed` for some time, or `resumed`.
    outcome: &'static str,
}

/// Pause a queue
///
/// Nobody claims its messages. Pushes and settlements continue. With `for_ms` the queue opens by
/// itself after that time; a queue that is closed for longer stays so.
#[utoipa::path(
    put,
    path = "/v1/queues/{queue}/pause",
    tag = "queues",
    request_body = Option<Pause>,
    responses(
        (status = 200, body = Done),
        (status = 404),
    )
)]
async fn pause_queue(
    State(app): State<Shared>,
    name: QueueName,
    JsonBody(pause): JsonBody<Pause>,
) -> Result<Json<Done>, Problem> {
    let queue = app.existing(&name).await?;
    let outcome = match pause.for_ms {
        None => {
            queue.pause().await?;
            "paused"
        }
        Some(ms) => {
            queue.pause_for(Duration::from_millis(ms)).await?;
            "closed"
        }
    };
    Ok(done(&name, outcome))
}

/// Resume a queue
///
/// Also a queue that is closed for some time.
#[utoipa::path(
    delete,
    path = "/v1/queues/{queue}/pause",
    tag = "queues",
    responses(
        (status = 200, body = Done),
        (status = 404),
    )
)]
async fn resume_queue(State(app): State<Shared>, name: QueueName) -> Result<Json<Done>, Problem> {
    app.existing(&name).await?.resume().await?;
    Ok(done(&name, "resumed"))
}

fn done(name: &QueueName, outcome: &'static str) -> Json<Done> {
    let queue = name.as_str().to_owned();
    Json(Done { queue, outcome })
}
