//! Reads one schedule.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::edge::auth::{Principal, Right};
use crate::edge::path::Query;
use crate::edge::path::{QueueName, ScheduleName};
use crate::edge::problem::{Code, Problem};
use crate::routes::schedules::outcome::absent;
use crate::wire::messages::Payload;
use crate::wire::schedules::Schedule;
use crate::work::Shared;

/// The most bytes of a payload that are sent, unless the caller asks for another number.
const PAYLOAD_BYTES: usize = 64 << 10;
/// The most bytes that a payload can have.
const MAX_PAYLOAD_BYTES: usize = 16 << 20;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Read {
    /// How many bytes of the payload are sent at most; 65,536 without it
    #[param(minimum = 0, maximum = 16_777_216)]
    payload_bytes: Option<usize>,
}

/// A schedule with the payload of its ticks.
#[derive(Serialize, ToSchema)]
pub(super) struct WholeSchedule {
    #[serde(flatten)]
    schedule: Schedule,
    /// The options of its ticks, as they are stored.
    options: String,
    #[serde(flatten)]
    payload: Payload,
}

/// Read a schedule
///
/// With the payload of its ticks, cut to `payload_bytes`; a caller without the right to read payloads
/// gets its length only.
#[utoipa::path(
    get,
    path = "/v1/queues/{queue}/schedules/{name}",
    tag = "schedules",
    params(Read),
    responses(
        (status = 200, body = WholeSchedule),
        (status = 404, description = "The queue, or the schedule, does not exist"),
        (status = 504),
    )
)]
pub(super) async fn read_schedule(
    State(app): State<Shared>,
    caller: Principal,
    queue: QueueName,
    name: ScheduleName,
    Query(read): Query<Read>,
) -> Result<Json<WholeSchedule>, Problem> {
    let most = read.payload_bytes.unwrap_or(PAYLOAD_BYTES);
    if most > MAX_PAYLOAD_BYTES {
        let detail = format!("payload_bytes: {most} are more than {MAX_PAYLOAD_BYTES}");
        return Err(Problem::new(Code::InvalidInput, detail));
    }
    let schedule = app.client.queue(queue.as_str())?.schedule(name.as_str());
    let Some(info) = schedule.get().await? else {
        return Err(absent(&app, &queue, &name).await);
    };
    // A long payload needs a share of the body budget.
    let mut memory = app.edge.bodies.none();
    memory.grow(info.payload().len())?;
    let is_withheld = !caller.has(Right::ReadPayload);
    let all = info.payload();
    let sent = if is_withheld {
        &[]
    } else {
        &all[..all.len().min(most)]
    };
    Ok(Json(WholeSchedule {
        schedule: Schedule::new(&info),
        options: info.options(),
        payload: Payload::new(sent.to_vec(), all.len() as u64, is_withheld),
    }))
}
