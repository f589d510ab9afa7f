//! Changes one message: reschedule, run now, cancel, requeue, end its lease.

use axum::Json;
use axum::extract::State;
use dueq::outcomes::{
    BuryOutcome, CancelOutcome, RequeueOutcome, RescheduleOutcome, RetryOutcome, RunNowOutcome,
};
use dueq::{Due, MessageState};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::edge::body::JsonBody;
use crate::edge::path::Query;
use crate::edge::path::{MessageId, QueueName};
use crate::edge::problem::{Code, Problem};
use crate::routes::messages::payload::absent;
use crate::routes::messages::reader::Reader;
use crate::routes::timing::Timing;
use crate::wire::messages::Id;
use crate::work::{App, Shared};

/// The new due time: `delay` or `at`, and `within`; or `run_now`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Change {
    /// So long from now: `48h`, `1h30m`.
    #[schema(format = "delay", min_length = 1)]
    delay: Option<String>,
    /// RFC 3339, Unix milliseconds as a string, or a local time with `tz`.
    #[schema(format = "moment", min_length = 1)]
    at: Option<String>,
    /// Business hours, such as `Mon-Fri 09:00-18:00`: a due time outside them moves to their next
    /// opening. It needs `tz`.
    #[schema(format = "business-hours", min_length = 1)]
    within: Option<String>,
    /// The time zone of `within`, and of times without one: `Europe/Paris`.
    #[schema(format = "time-zone", min_length = 1)]
    tz: Option<String>,
    /// Only if the message is due at this time.
    expected_due_ms: Option<u64>,
    /// True makes it due now.
    run_now: Option<bool>,
}

/// What was done.
#[derive(Serialize, ToSchema)]
pub(super) struct Changed {
    #[serde(flatten)]
    id: Id,
    /// `moved`: it has the new due time. `already`: it was due already. `cancelled`: it will never
    /// be delivered. `next_cancelled`: a handler has it, and the message that was to follow it will
    /// never be delivered. `requeued`: it was dead and is due now. `ended`: its lease ended, and it
    /// is due again. `died`: its lease ended, and it has crashed too often.
    /// `buried`: it waited, and is dead now. `marked`: a handler has it, and it will be dead when the
    /// lease ends without an ack. `dead`: it was dead before.
    outcome: &'static str,
    /// When it is due.
    #[serde(skip_serializing_if = "Option::is_none")]
    due_ms: Option<u64>,
    /// Of `cancelled`: a push with this `undo_ms` brings the message back for 12 s, unless something
    /// else happens to its id.
    #[serde(skip_serializing_if = "Option::is_none")]
    undo_ms: Option<u64>,
}

fn changed(id: &MessageId, outcome: &'static str, due_ms: Option<u64>) -> Json<Changed> {
    let id = Id::new(id.as_bytes());
    Json(Changed {
        id,
        outcome,
        due_ms,
        undo_ms: None,
    })
}

/// Reschedule a message
///
/// Gives a waiting message another due time, or makes it due now. With `expected_due_ms` only if it
/// is due at that time; then a call with a fixed time can be repeated.
#[utoipa::path(
    patch,
    path = "/v1/queues/{queue}/messages/{id}",
    tag = "messages",
    request_body = Change,
    responses(
        (status = 200, body = Changed),
        (status = 404, description = "The queue, or the message, does not exist"),
        (status = 409, description = "It is leased or dead, or due at another time than expected"),
        (status = 504),
    )
)]
pub(super) async fn change_message(
    State(app): State<Shared>,
    name: QueueName,
    id: MessageId,
    JsonBody(change): JsonBody<Change>,
) -> Result<Json<Changed>, Problem> {
    let queue = app.client.queue(name.as_str())?;
    let due = change.due(&app).await?;
    let Some(due) = due else {
        return match queue.run_now(id.as_bytes()).await? {
            RunNowOutcome::Moved => Ok(changed(&id, "moved", None)),
            RunNowOutcome::Already => Ok(changed(&id, "already", None)),
            RunNowOutcome::Leased => Err(leased(&id)),
            RunNowOutcome::Dead => Err(dead(&id, "requeue it")),
            RunNowOutcome::Absent => Err(absent(&app, &name, &id).await),
            other => Err(unknown(&other)),
        };
    };
    let outcome = match change.expected_due_ms {
        None => queue.reschedule(id.as_bytes(), due).await?,
        Some(expected) => queue.reschedule_if(id.as_bytes(), due, expected).await?,
    };
    match outcome {
        RescheduleOutcome::Moved(due_ms) => Ok(changed(&id, "moved", Some(due_ms))),
        RescheduleOutcome::Conflict(due_ms) => {
            let detail = format!(
                "nothing was changed: message {} is due at {due_ms}, not at the expected time",
                id.quoted()
            );
            Err(Problem::new(Code::DueChanged, detail).due_ms(due_ms))
        }
        RescheduleOutcome::Leased => Err(leased(&id)),
        RescheduleOutcome::Dead => Err(dead(&id, "requeue it")),
        RescheduleOutcome::Absent => Err(absent(&app, &name, &id).await),
        other => Err(unknown(&other)),
    }
}

impl Change {
    /// The requested due time; `None` for now.
    async fn due(&self, app: &App) -> Result<Option<Due>, Problem> {
        let invalid = |detail: String| Problem::new(Code::InvalidInput, detail);
        let timing = Timing {
            delay: self.delay.as_deref(),
            at: self.at.as_deref(),
            within: self.within.as_deref(),
            tz: self.tz.as_deref(),
        };
        let has_time = timing.has_time();
        if self.run_now.unwrap_or(false) {
            if has_time || self.tz.is_some() || self.expected_due_ms.is_some() {
                let reason = "run_now stands alone: leave out the other fields, or run_now";
                return Err(invalid(reason.to_owned()));
            }
            return Ok(None);
        }
        if !has_time {
            let reason = "no time is given: add delay, at or within, or \"run_now\": true";
            return Err(invalid(reason.to_owned()));
        }
        timing.due(&app.client, &Reader::new()).await.map(Some)
    }
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Cancel {
    /// Whether to remove a dead message too.
    dead: Option<bool>,
}

/// Cancel a message
///
/// A waiting message is never delivered after this. Of a cancel and a delivery exactly one wins.
/// Within 12 s the same call answers `cancelled` again.
#[utoipa::path(
    delete,
    path = "/v1/queues/{queue}/messages/{id}",
    tag = "messages",
    params(Cancel),
    responses(
        (status = 200, body = Changed),
        (status = 404, description = "The queue, or the message, does not exist"),
        (status = 409, description = "It is leased, or it is dead and `dead` is not true"),
        (status = 504),
    )
)]
pub(super) async fn cancel_message(
    State(app): State<Shared>,
    name: QueueName,
    id: MessageId,
    Query(cancel): Query<Cancel>,
) -> Result<Json<Changed>, Problem> {
    let queue = app.client.queue(name.as_str())?;
    let (outcome, undo_ms) = match cancel.dead {
        Some(true) => (queue.cancel_dead(id.as_bytes()).await?, None),
        _ => {
            let (outcome, ms) = queue.cancel_to_undo(id.as_bytes()).await?;
            (outcome, Some(ms))
        }
    };
    match outcome {
        CancelOutcome::Cancelled => {
            let Json(cancelled) = changed(&id, "cancelled", None);
            Ok(Json(Changed {
                undo_ms,
                ..cancelled
            }))
        }
        CancelOutcome::Next => Ok(changed(&id, "next_cancelled", None)),
        CancelOutcome::Leased => Err(leased(&id)),
        CancelOutcome::Dead => Err(dead(&id, "add ?dead=true to remove it")),
        CancelOutcome::Absent => Err(absent(&app, &name, &id).await),
        other => Err(unknown(&other)),
    }
}

/// Requeue a dead message
///
/// It is due now, and its attempts count from none.
#[utoipa::path(
    post,
    path = "/v1/queues/{queue}/messages/{id}/requeue",
    tag = "messages",
    responses(
        (status = 200, body = Changed),
        (status = 404, description = "The queue, or the message, does not exist"),
        (status = 409, description = "It is not dead"),
        (status = 504),
        (status = 507),
    )
)]
pub(super) async fn requeue_message(
    State(app): State<Shared>,
    name: QueueName,
    id: MessageId,
) -> Result<Json<Changed>, Problem> {
    let queue = app.client.queue(name.as_str())?;
    match queue.requeue(id.as_bytes()).await? {
        RequeueOutcome::Requeued => Ok(changed(&id, "requeued", None)),
        RequeueOutcome::NotDead(state) => Err(not_dead(&id, state)),
        RequeueOutcome::Absent => Err(absent(&app, &name, &id).await),
        other => Err(unknown(&other)),
    }
}

/// Which lease is meant.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct EndLease {
    /// The name of the lease, as the message has it. So no repetition ends the next lease.
    #[schema(pattern = "^[0-9a-f]{16}$")]
    lease: String,
}

/// End the lease of a message
///
/// As if the lease had run out: for a consumer that is gone, or one that hangs. It counts as a crash,
/// and what the consumer settles later changes nothing.
#[utoipa::path(
    post,
    path = "/v1/queues/{queue}/messages/{id}/end-lease",
    tag = "messages",
    request_body = EndLease,
    responses(
        (status = 200, body = Changed),
        (status = 404, description = "The queue, or the message, does not exist"),
        (status = 409, description = "It has no lease of this name, or no more"),
        (status = 504),
    )
)]
pub(super) async fn end_lease(
    State(app): State<Shared>,
    name: QueueName,
    id: MessageId,
    JsonBody(EndLease { lease }): JsonBody<EndLease>,
) -> Result<Json<Changed>, Problem> {
    if lease.len() != 16
        || !lease
            .bytes()
            .all(|byte| b"0123456789abcdef".contains(&byte))
    {
        let reason = "lease: it has 16 hexadecimal digits, as GET of the message shows them";
        return Err(Problem::new(Code::InvalidInput, reason));
    }
    let queue = app.client.queue(name.as_str())?;
    match queue.end_lease(id.as_bytes(), &lease).await? {
        RetryOutcome::Scheduled(due_ms) => Ok(changed(&id, "ended", Some(due_ms))),
        RetryOutcome::Dead => Ok(changed(&id, "died", None)),
        RetryOutcome::Lost => {
            let detail = format!(
                "nothing was changed: message {} has no lease {lease}, or no more",
                id.quoted()
            );
            Err(Problem::new(Code::NotLeased, detail))
        }
        RetryOutcome::Gone => Err(absent(&app, &name, &id).await),
        other => Err(unknown(&other)),
    }
}

/// Why a message is buried.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Bury)]
pub(super) struct BuryReason {
    /// Why: the error of a message that waits, then. Its first 1,024 bytes are kept.
    reason: String,
}

/// Bury a message
///
/// Takes it out of service, for one that breaks its handlers or kills the workers; the queue goes on. A
/// message that waits is dead at once. A leased one will be dead when its lease ends, unless its
/// handler acks it: end the lease to have it dead now. A requeue brings it back.
#[utoipa::path(
    post,
    path = "/v1/queues/{queue}/messages/{id}/bury",
    tag = "messages",
    request_body = BuryReason,
    responses(
        (status = 200, body = Changed),
        (status = 404, description = "The queue, or the message, does not exist"),
        (status = 504),
    )
)]
pub(super) async fn bury_message(
    State(app): State<Shared>,
    name: QueueName,
    id: MessageId,
    JsonBody(BuryReason { reason }): JsonBody<BuryReason>,
) -> Result<Json<Changed>, Problem> {
    let queue = app.client.queue(name.as_str())?;
    match queue.bury(id.as_bytes(), &reason).await? {
        BuryOutcome::Buried => Ok(changed(&id, "buried", None)),
        BuryOutcome::Marked => Ok(changed(&id, "marked", None)),
        BuryOutcome::Dead => Ok(changed(&id, "dead", None)),
        BuryOutcome::Absent => Err(absent(&app, &name, &id).await),
        other => Err(unknown(&other)),
    }
}

fn leased(id: &MessageId) -> Problem {
    let detail = format!("nothing was changed: a handler has message {}", id.quoted());
    Problem::new(Code::Leased, detail)
}

fn dead(id: &MessageId, advice: &str) -> Problem {
    let detail = format!(
        "nothing was changed: message {} is dead; {advice}",
        id.quoted()
    );
    Problem::new(Code::Dead, detail)
}

fn not_dead(id: &MessageId, state: MessageState) -> Problem {
    let detail = format!(
        "nothing was changed: message {} is {state}, not dead",
        id.quoted()
    );
    Problem::new(Code::NotDead, detail)
}

/// A later release of the library may add an outcome: then a match in this file lacks it.
fn unknown(outcome: &dyn std::fmt::Debug) -> Problem {
    let detail = format!("the outcome {outcome:?} is not known");
    Problem::new(Code::Internal, detail).applied(dueq::Applied::Unknown)
}
