//! Reads and sets the limits of a queue.

mod change;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use dueq::Applied;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::UtoipaMethodRouter;
use utoipa_axum::routes;

use crate::edge::body::JsonBody;
use crate::edge::path::QueueName;
use crate::edge::problem::Problem;
use crate::routes::queues::limits::change::Change;
use crate::wire::queues::Limits;
use crate::work::Shared;

pub(super) fn reads() -> Vec<UtoipaMethodRouter<Shared>> {
    vec![routes!(read_limits)]
}

pub(super) fn changes() -> Vec<UtoipaMethodRouter<Shared>> {
    vec![routes!(change_limits)]
}

/// The limits of a queue.
#[derive(Serialize, ToSchema)]
struct QueueLimits {
    queue: String,
    #[serde(flatten)]
    limits: Limits,
}

impl QueueLimits {
    fn new(name: &QueueName, stats: &dueq::QueueStats) -> Json<Self> {
        let queue = name.as_str().to_owned();
        let limits = Limits::new(stats);
        Json(Self { queue, limits })
    }
}

/// Read the limits of a queue
#[utoipa::path(
    get,
    path = "/v1/queues/{queue}/limits",
    tag = "queues",
    responses(
        (status = 200, body = QueueLimits),
        (status = 404),
    )
)]
async fn read_limits(
    State(app): State<Shared>,
    name: QueueName,
) -> Result<Json<QueueLimits>, Problem> {
    let stats = app.existing(&name).await?.stats().await?;
    Ok(QueueLimits::new(&name, &stats))
}

/// Set limits of a queue
///
/// Those that are named; the others stay. Null removes a limit. Answers with all limits that hold
/// now. If the queue does not exist, the call creates it. The call can be repeated.
#[utoipa::path(
    patch,
    path = "/v1/queues/{queue}/limits",
    tag = "queues",
    request_body = Change,
    responses(
        (status = 200, body = QueueLimits),
        (status = 201, description = "The call has created the queue", body = QueueLimits),
        (status = 504),
    )
)]
async fn change_limits(
    State(app): State<Shared>,
    name: QueueName,
    JsonBody(change): JsonBody<Change>,
) -> Result<(StatusCode, Json<QueueLimits>), Problem> {
    let limits = change.limits()?;
    let queue = app.client.queue(name.as_str())?;
    let status = match queue.exists().await? {
        true => StatusCode::OK,
        false => StatusCode::CREATED,
    };
    queue.configure(limits).await?;
    // The limits are already set: if this read fails, the answer must say so.
    let stats = queue.stats().await;
    let stats = stats.map_err(|error| Problem::from(error).applied(Applied::Yes))?;
    Ok((status, QueueLimits::new(&name, &stats)))
}
