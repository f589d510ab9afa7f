//! The doctor's findings about the server or a queue, and how to repair each.

use axum::Json;
use axum::extract::State;
use utoipa_axum::router::UtoipaMethodRouter;
use utoipa_axum::routes;

use crate::edge::path::QueueName;
use crate::edge::problem::Problem;
use crate::wire::about::Examination;
use crate::work::Shared;

pub(super) fn routes() -> Vec<UtoipaMethodRouter<Shared>> {
    vec![routes!(examine_server), routes!(examine_queue)]
}

/// Examine the Redis server
///
/// Version, eviction, persistence, replicas, memory, round trip and Functions library, as `dueq doctor`
/// does. All callers share an examination for 10 s.
#[utoipa::path(get, path = "/v1/doctor", tag = "about", responses((status = 200, body = Examination)))]
async fn examine_server(State(app): State<Shared>) -> Result<Json<Examination>, Problem> {
    let (age, checkup) = app.doctor.server().await?;
    Ok(Json(Examination::new(age, &checkup)))
}

/// Examine a queue
///
/// Whether due messages are delivered, and if not, why; its keys, limits, encodings and wake-up list.
/// Each message is examined by `dueq doctor QUEUE` only. If messages are late, the answer takes some
/// seconds. All callers share an examination for 10 s.
#[utoipa::path(
    get,
    path = "/v1/queues/{queue}/doctor",
    tag = "queues",
    responses(
        (status = 200, body = Examination),
        (status = 404),
    )
)]
async fn examine_queue(
    State(app): State<Shared>,
    name: QueueName,
) -> Result<Json<Examination>, Problem> {
    let queue = app.client.queue(name.as_str())?;
    let (age, checkup) = app.doctor.queue(&queue).await?;
    if checkup.findings.is_empty() && checkup.facts.contains(&("exists", "false".to_owned())) {
        app.existing(&name).await?; // the problem that the queue does not exist
    }
    Ok(Json(Examination::new(age, &checkup)))
}
