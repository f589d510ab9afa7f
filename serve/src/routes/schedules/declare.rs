//! Declares one schedule, whose name is in the path.

use std::time::SystemTime;

use axum::Json;
use axum::extract::{OriginalUri, State};
use axum::http::header::LOCATION;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use dueq::Applied;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::edge::path::Query;
use crate::edge::path::{QueueName, ScheduleName};
use crate::edge::problem::{Code, Problem};
use crate::edge::shown::quoted;
use crate::routes::schedules::apply::{Declaring, ScheduleBody, outcomes};
use crate::routes::schedules::outcome::ScheduleOutcome;
use crate::routes::schedules::schema::NewSchedule;
use crate::work::Shared;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Options {
    /// The set of the schedule; `http` without it
    #[param(
        pattern = "^[A-Za-z0-9._:/-]+$",
        min_length = 1,
        max_length = 100,
        default = "http"
    )]
    set: Option<String>,
    /// The revision of the set, such as the number of a deploy. A lower one than the stored is refused
    #[param(maximum = 9_007_199_254_740_992_u64)]
    revision: Option<u64>,
    /// Whether the schedule makes a tick at once, if it is created
    now: Option<bool>,
    /// Whether the call only says what it would change
    dry_run: Option<bool>,
    /// Whether to begin although live workers may be older than release 0.2
    allow_older: Option<bool>,
}

/// Declare a schedule
///
/// Creates or changes it; one that is stored with the same content keeps its next fire and its
/// counts. Nothing fires because of the call, unless `now`. The call can be repeated.
///
/// The first schedule gives the queue layout 4, which workers before release 0.2 refuse.
#[utoipa::path(
    put,
    path = "/v1/queues/{queue}/schedules/{name}",
    tag = "schedules",
    params(Options),
    request_body = NewSchedule,
    responses(
        (status = 200, description = "The schedule is changed, or kept as it is; or this was a dry run", body = ScheduleOutcome),
        (status = 201, description = "The schedule is created", body = ScheduleOutcome, headers(("Location" = String, description = "The address of the schedule"))),
        (status = 409, description = "It belongs to another set, a newer revision has declared the set, live workers are too old, or the queue has several partitions"),
        (status = 504),
        (status = 507),
    )
)]
pub(super) async fn declare_schedule(
    State(app): State<Shared>,
    name: QueueName,
    schedule: ScheduleName,
    OriginalUri(uri): OriginalUri,
    Query(options): Query<Options>,
    body: ScheduleBody,
) -> Result<Response, Problem> {
    let own = schedule.as_str().to_owned();
    let read = body.read(move |text| dueq_input::schedule_json(text, &own, SystemTime::now()));
    let declared = read.await?;
    let declaring = Declaring {
        set: options.set,
        revision: options.revision,
        prune: false,
        now: options.now.unwrap_or(false),
        dry_run: options.dry_run.unwrap_or(false),
        allow_older: options.allow_older.unwrap_or(false),
    };
    let queue = app.client.queue(name.as_str())?;
    let set = declaring.set();
    // This check is for a good answer. The script makes it too, because another call may create the
    // schedule meanwhile.
    let stored = queue.schedule(schedule.as_str()).get().await?;
    if let Some(stored) = stored.filter(|stored| stored.set != set) {
        let (schedule, own, set) = (quoted(schedule.as_str()), quoted(&stored.set), quoted(set));
        let detail = format!(
            "nothing was changed: schedule {schedule} belongs to the set {own}, not {set}; add ?set={}",
            stored.set
        );
        return Err(Problem::new(Code::OtherSet, detail));
    }
    let changes = declaring.apply(&queue, vec![declared.schedule]).await?;
    let Some(outcome) = outcomes(&changes).pop() else {
        let detail = "the reply of Redis has no schedule";
        return Err(Problem::new(Code::Internal, detail).applied(Applied::Yes));
    };
    if changes.created.is_empty() || declaring.dry_run {
        return Ok(Json(outcome).into_response());
    }
    let location = HeaderValue::from_str(uri.path()).map(|address| [(LOCATION, address)]);
    Ok((StatusCode::CREATED, location.ok(), Json(outcome)).into_response())
}
