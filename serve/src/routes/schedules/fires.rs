//! Computes the next fires: of a schedule, or of a rule in the request.

use std::time::SystemTime;

use axum::Json;
use axum::extract::State;
use dueq::schedules::{Fire, Schedule, ScheduleInfo};
use dueq_input::ClockChanges;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::edge::path::{Query, moment};
use crate::edge::path::{QueueName, ScheduleName};
use crate::edge::problem::{Code, Problem};
use crate::routes::schedules::outcome::absent;
use crate::work::Shared;

/// The most fires in one answer.
const MAX_COUNT: usize = 1_000;
const COUNT: usize = 10;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Next {
    /// How many fires
    #[param(minimum = 1, maximum = 1_000, default = 10)]
    count: Option<usize>,
    /// The fires after this moment: RFC 3339 or Unix milliseconds; without it those that the queue
    /// makes next
    #[param(format = "moment", min_length = 1)]
    from: Option<String>,
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Preview {
    /// A pattern: minute, hour, day, month, day of the week; before them a second. It needs `zone`
    #[param(format = "cron", min_length = 1)]
    cron: Option<String>,
    /// The time between two fires: `15m`
    #[param(format = "interval", min_length = 1)]
    every: Option<String>,
    /// The time zone of the pattern: an IANA name
    #[param(format = "time-zone", min_length = 1)]
    zone: Option<String>,
    /// How many fires
    #[param(minimum = 1, maximum = 1_000, default = 10)]
    count: Option<usize>,
    /// The fires after this moment: RFC 3339 or Unix milliseconds; without it the present
    #[param(format = "moment", min_length = 1)]
    from: Option<String>,
}

/// Fires of a schedule.
#[derive(Serialize, ToSchema)]
pub(super) struct Fires {
    /// The zone of `local`.
    zone: String,
    /// In order of time. None if the schedule is paused or has ended.
    fires: Vec<ShownFire>,
}

/// A fire.
#[derive(Serialize, ToSchema)]
struct ShownFire {
    /// Its time by the rule.
    nominal_ms: u64,
    /// When its tick is due: later by the jitter.
    due_ms: u64,
    /// The nominal time in the zone.
    local: String,
    /// The nominal time in UTC.
    utc: String,
    /// What a clock change has to do with it; null for most fires.
    remark: Option<String>,
}

/// Preview the fires of a schedule
///
/// As the queue makes them next, or after `from`; with what clock changes do to them.
#[utoipa::path(
    get,
    path = "/v1/queues/{queue}/schedules/{name}/next",
    tag = "schedules",
    params(Next),
    responses(
        (status = 200, body = Fires),
        (status = 404, description = "The queue, or the schedule, does not exist"),
        (status = 504),
    )
)]
pub(super) async fn next_fires(
    State(app): State<Shared>,
    queue: QueueName,
    name: ScheduleName,
    Query(next): Query<Next>,
) -> Result<Json<Fires>, Problem> {
    let (count, from) = (counted(next.count)?, begin(next.from.as_deref())?);
    let schedule = app.client.queue(queue.as_str())?.schedule(name.as_str());
    let Some(info) = schedule.get().await? else {
        return Err(absent(&app, &queue, &name).await);
    };
    computed(move || of_stored(&info, from, count)).await
}

/// Preview the fires of a rule
///
/// Try a pattern before you declare it. Asks nothing of Redis.
#[utoipa::path(
    get,
    path = "/v1/fires",
    tag = "schedules",
    params(Preview),
    responses((status = 200, body = Fires)),
)]
pub(super) async fn preview_fires(Query(preview): Query<Preview>) -> Result<Json<Fires>, Problem> {
    let (count, from) = (counted(preview.count)?, begin(preview.from.as_deref())?);
    computed(move || of_rule(&preview, from, count)).await
}

fn counted(count: Option<usize>) -> Result<usize, Problem> {
    let count = count.unwrap_or(COUNT);
    if (1..=MAX_COUNT).contains(&count) {
        return Ok(count);
    }
    let detail = format!("count: {count}; write 1 to {MAX_COUNT}");
    Err(Problem::new(Code::InvalidInput, detail))
}

fn begin(text: Option<&str>) -> Result<Option<Timestamp>, Problem> {
    let Some(text) = text else { return Ok(None) };
    let begin = Timestamp::try_from(moment("from", text)?);
    begin
        .map(Some)
        .map_err(|error| invalid(format!("from: {error}")))
}

fn invalid(detail: impl Into<String>) -> Problem {
    Problem::new(Code::InvalidInput, detail)
}

/// Computing the fires of a rare pattern takes time, so it runs on a blocking thread.
async fn computed(
    compute: impl FnOnce() -> Result<Fires, Problem> + Send + 'static,
) -> Result<Json<Fires>, Problem> {
    match tokio::task::spawn_blocking(compute).await {
        Ok(fires) => fires.map(Json),
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(Problem::new(Code::Stopping, "the server stops")),
        },
    }
}

fn of_stored(info: &ScheduleInfo, from: Option<Timestamp>, count: usize) -> Result<Fires, Problem> {
    let fires = match from {
        Some(from) => {
            let fires = info.schedule.fires(unix_ms(from))?;
            fires.take(count).collect()
        }
        None => info.next_fires(count)?,
    };
    let zone = zone(info.zone.as_deref())?;
    let pattern = Some(info.pattern.as_str()).filter(|pattern| !pattern.is_empty());
    let after = from.or_else(|| timestamp(info.last_ms));
    shown(&fires, after, &ClockChanges::new(zone, pattern))
}

fn of_rule(preview: &Preview, from: Option<Timestamp>, count: usize) -> Result<Fires, Problem> {
    let after = from.unwrap_or_else(Timestamp::now);
    let rule = match (&preview.cron, &preview.every) {
        (Some(pattern), None) => Schedule::cron(pattern)?,
        (None, Some(every)) => {
            let every = dueq_input::period(every);
            Schedule::every(every.map_err(|error| invalid(format!("every: {error}")))?)
        }
        _ => return Err(invalid("name a rule: cron and zone, or every")),
    };
    let rule = rule.name("preview");
    let rule = match &preview.zone {
        Some(zone) => rule.zone(zone),
        None => rule,
    };
    rule.check(SystemTime::from(after))?;
    let fires: Vec<_> = rule.fires(unix_ms(after))?.take(count).collect();
    let zone = zone(preview.zone.as_deref())?;
    let changes = ClockChanges::new(zone, preview.cron.as_deref());
    shown(&fires, Some(after), &changes)
}

fn zone(name: Option<&str>) -> Result<TimeZone, Problem> {
    let zone = name.map_or(Ok(TimeZone::UTC), dueq_input::zone);
    zone.map_err(|error| invalid(format!("zone: {error}")))
}

/// Describes the fires. `after` is the time after which they were computed.
fn shown(
    fires: &[Fire],
    after: Option<Timestamp>,
    changes: &ClockChanges,
) -> Result<Fires, Problem> {
    let mut before = after.unwrap_or(Timestamp::UNIX_EPOCH);
    let mut shown = Vec::with_capacity(fires.len());
    for fire in fires {
        let Some(time) = timestamp(fire.nominal_ms) else {
            break; // beyond the year 9999
        };
        let remark = changes.remark(before, time);
        before = time;
        shown.push(ShownFire {
            nominal_ms: fire.nominal_ms,
            due_ms: fire.due_ms,
            local: time.to_zoned(changes.zone().clone()).to_string(),
            utc: time.to_string(),
            remark: Some(remark).filter(|remark| !remark.is_empty()),
        });
    }
    let zone = changes.zone().iana_name().unwrap_or("UTC");
    Ok(Fires {
        zone: zone.to_owned(),
        fires: shown,
    })
}

fn timestamp(ms: u64) -> Option<Timestamp> {
    Timestamp::from_millisecond(i64::try_from(ms).ok()?).ok()
}

fn unix_ms(time: Timestamp) -> u64 {
    u64::try_from(time.as_millisecond()).unwrap_or(0)
}
