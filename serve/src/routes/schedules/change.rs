//! Pauses, resumes, triggers and removes a schedule.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use dueq::Applied;
use dueq::schedules::{ScheduleHandle, TriggerOutcome};

use crate::edge::path::{QueueName, ScheduleName};
use crate::edge::problem::{Code, Problem};
use crate::edge::shown::quoted;
use crate::routes::schedules::outcome::{ScheduleOutcome, absent};
use crate::work::{App, Shared};

fn handle(app: &App, queue: &QueueName, name: &ScheduleName) -> Result<ScheduleHandle, Problem> {
    Ok(app.client.queue(queue.as_str())?.schedule(name.as_str()))
}

/// Pause a schedule
///
/// It makes no ticks until it is resumed; its fires count as paused. Ticks that it has made stay.
#[utoipa::path(
    put,
    path = "/v1/queues/{queue}/schedules/{name}/pause",
    tag = "schedules",
    responses(
        (status = 200, body = ScheduleOutcome),
        (status = 404, description = "The queue, or the schedule, does not exist"),
        (status = 504),
    )
)]
pub(super) async fn pause_schedule(
    State(app): State<Shared>,
    queue: QueueName,
    name: ScheduleName,
) -> Result<Json<ScheduleOutcome>, Problem> {
    match handle(&app, &queue, &name)?.pause().await? {
        true => Ok(Json(ScheduleOutcome::new(name.as_str(), "paused"))),
        false => Err(absent(&app, &queue, &name).await),
    }
}

/// Resume a schedule
///
/// Its next fire is the first one after now.
#[utoipa::path(
    delete,
    path = "/v1/queues/{queue}/schedules/{name}/pause",
    tag = "schedules",
    responses(
        (status = 200, body = ScheduleOutcome),
        (status = 404, description = "The queue, or the schedule, does not exist"),
        (status = 504),
    )
)]
pub(super) async fn resume_schedule(
    State(app): State<Shared>,
    queue: QueueName,
    name: ScheduleName,
) -> Result<Json<ScheduleOutcome>, Problem> {
    match handle(&app, &queue, &name)?.resume().await? {
        true => Ok(Json(ScheduleOutcome::new(name.as_str(), "resumed"))),
        false => Err(absent(&app, &queue, &name).await),
    }
}

/// Remove a schedule
///
/// Ticks that it has made stay. A repeated call answers 404.
#[utoipa::path(
    delete,
    path = "/v1/queues/{queue}/schedules/{name}",
    tag = "schedules",
    responses(
        (status = 200, body = ScheduleOutcome),
        (status = 404, description = "The queue, or the schedule, does not exist"),
        (status = 504),
    )
)]
pub(super) async fn remove_schedule(
    State(app): State<Shared>,
    queue: QueueName,
    name: ScheduleName,
) -> Result<Json<ScheduleOutcome>, Problem> {
    match handle(&app, &queue, &name)?.remove().await? {
        true => Ok(Json(ScheduleOutcome::new(name.as_str(), "removed"))),
        false => Err(absent(&app, &queue, &name).await),
    }
}

/// Trigger a schedule
///
/// Makes a tick now, also if the schedule is paused. It obeys the overlap of the schedule, and moves
/// no fire. Each call makes another tick: if `applied` is `unknown`, look for the tick before you
/// repeat it.
#[utoipa::path(
    post,
    path = "/v1/queues/{queue}/schedules/{name}/trigger",
    tag = "schedules",
    responses(
        (status = 200, description = "The queue had a tick of this millisecond", body = ScheduleOutcome),
        (status = 201, description = "The tick is made", body = ScheduleOutcome),
        (status = 404, description = "The queue, or the schedule, does not exist"),
        (status = 409, description = "An earlier tick waits or runs, and the schedule says `skip`"),
        (status = 504),
        (status = 507),
    )
)]
pub(super) async fn trigger_schedule(
    State(app): State<Shared>,
    queue: QueueName,
    name: ScheduleName,
) -> Result<(StatusCode, Json<ScheduleOutcome>), Problem> {
    let of = |outcome, id| ScheduleOutcome {
        id: Some(id),
        ..ScheduleOutcome::new(name.as_str(), outcome)
    };
    match handle(&app, &queue, &name)?.trigger().await? {
        TriggerOutcome::Created(id) => Ok((StatusCode::CREATED, Json(of("created", id)))),
        TriggerOutcome::Exists(id) => Ok((StatusCode::OK, Json(of("exists", id)))),
        TriggerOutcome::Gone => Err(absent(&app, &queue, &name).await),
        TriggerOutcome::Overlaps => {
            let name = quoted(name.as_str());
            let detail = format!(
                "nothing was done: an earlier tick of schedule {name} waits or runs, and its overlap is skip"
            );
            Err(Problem::new(Code::Overlaps, detail).retryable())
        }
        // A later release of the library may add an outcome: then this match lacks it.
        other => {
            let detail = format!("the outcome {other:?} is not known");
            Err(Problem::new(Code::Internal, detail).applied(Applied::Unknown))
        }
    }
}
