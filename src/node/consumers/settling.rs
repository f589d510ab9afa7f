//! Settles a delivery after its handler, and repeats the call while Redis is away.

use std::time::{Duration, Instant};

use crate::delivery::Delivery;
use crate::error::{Applied, Error, ErrorKind};
use crate::model::due::{Due, MAX_DELAY_MS};
use crate::model::outcomes::{
    AckPushOutcome, RetryOutcome, SettleOutcome, SnoozeOutcome, ThrottleOutcome,
};
use crate::model::settlement::Settlement;
use crate::node::consumers::handling::HandlerContext;
use crate::server::patience::reconnect_delays;
use crate::telemetry::events;

/// The longest delay that the protocol takes; a worker's `Retry` may ask for more.
const MAX_DELAY: Duration = Duration::from_millis(MAX_DELAY_MS);

/// Settles the delivery unless the handler has done so, and returns the outcome. While Redis is
/// away it repeats the call until the worker stops. The lease is extended as soon as Redis is back,
/// unless it was lost. After a refusal, such as for a missing right, it repeats the call for the
/// duration of a lease.
pub(crate) async fn end(
    delivery: &Delivery,
    settlement: Settlement,
    context: &HandlerContext,
) -> &'static str {
    let outcome = outcome_of(delivery, settlement, context).await;
    delivery.report(outcome);
    outcome
}

async fn outcome_of(
    delivery: &Delivery,
    mut settlement: Settlement,
    context: &HandlerContext,
) -> &'static str {
    // The release is sent even if the lease is lost: if no other node has the message yet, it then
    // counts no crash.
    if delivery.is_lost() && !matches!(settlement, Settlement::Release) {
        return "lost";
    }
    if delivery.is_settled() {
        return "by_handler";
    }
    let _settling = delivery.settling();
    let mut is_replaced = false;
    let mut is_admitted = false;
    let mut was_repeated = false;
    let mut failures = 0;
    let mut refused_until = None;
    loop {
        let error = match settle(delivery, settlement.clone(), context).await {
            Ok(outcome) => return outcome,
            Err(error) => error,
        };
        let kind = error.kind();
        let refuses_follow_ups = refuses_follow_ups(&settlement, &error);
        if refuses_follow_ups && !is_admitted {
            // Finds out whether Redis refuses every call, for example for missing rights. In that
            // case no failure is charged.
            is_admitted = delivery.extend(context.lease).await.is_ok();
            if is_admitted {
                continue;
            }
        }
        // An invalid settlement, such as a delay of 101 years, counts as a failure of the handler.
        // Otherwise the lease would expire, which counts as a crash. An ack whose follow-ups are
        // refused, while other calls are not, counts as a failure too.
        if !is_replaced && (kind == ErrorKind::InvalidInput || refuses_follow_ups && is_admitted) {
            is_replaced = true;
            settlement = Settlement::retry(error);
            continue;
        }
        let is_away = matches!(kind, ErrorKind::Unavailable | ErrorKind::Timeout);
        let may_pass = is_away
            || !matches!(kind, ErrorKind::InvalidInput | ErrorKind::Internal)
                && Instant::now()
                    < *refused_until.get_or_insert_with(|| Instant::now() + context.lease);
        if may_pass && !context.stop.is_cancelled() {
            let name = delivery.partition().queue_name();
            events::call_failed(name, "settle", &error, "it is repeated");
            is_admitted = false;
            failures += 1;
            let pause = reconnect_delays().delay(failures, fastrand::f64());
            let pause = tokio::time::sleep(pause);
            context.stop.run_until_cancelled(pause).await;
        } else if !was_repeated && context.has_lost(kind) {
            // A batcher panicked, or ended with the node's thread. The next call starts a new one.
            was_repeated = true;
        } else {
            events::settle_failed(delivery.subject(), &error);
            return "unsettled";
        }
    }
}

/// Whether this error refused the follow-ups of an ack, so that the delivery is still leased:
/// memory is full, a right is missing, or the map has changed.
fn refuses_follow_ups(settlement: &Settlement, error: &Error) -> bool {
    let is_refusal = matches!(error.kind(), ErrorKind::Full | ErrorKind::Denied);
    matches!(settlement, Settlement::AckAnd(_))
        && error.was_applied() == Applied::No
        && (is_refusal || error.is_remapped())
}

/// Makes the call of the settlement. Returns the outcome for the tracing span.
async fn settle(
    delivery: &Delivery,
    settlement: Settlement,
    context: &HandlerContext,
) -> Result<&'static str, Error> {
    let subject = delivery.subject();
    let (settled, outcome) = match settlement {
        Settlement::Ack => (delivery.ack_behind().await?, "acked"),
        Settlement::AckAnd(messages) => {
            return Ok(match delivery.ack_push(messages).await? {
                AckPushOutcome::Done(_) => "acked",
                AckPushOutcome::Gone => "gone",
                AckPushOutcome::Lost => "lost",
            });
        }
        Settlement::Again(due) => (delivery.again(due).await?, "repeated"),
        Settlement::Retry { after, error } => {
            let own_delay = || context.retry.delay(delivery.attempt(), fastrand::f64());
            let after = after.unwrap_or_else(|| own_delay().min(MAX_DELAY));
            return Ok(match delivery.retry(after, &error).await? {
                RetryOutcome::Scheduled(due_ms) => {
                    events::retried(subject, due_ms, &error);
                    "retried"
                }
                RetryOutcome::Dead => {
                    events::died(subject, &error);
                    "died"
                }
                RetryOutcome::Dropped => {
                    events::dropped(subject, &error);
                    "dropped"
                }
                RetryOutcome::Gone => "gone",
                RetryOutcome::Lost => "lost",
            });
        }
        Settlement::Snooze(due) => return snooze(delivery, due).await,
        Settlement::Throttle(duration) => return throttle(delivery, duration).await,
        Settlement::Release => (delivery.release().await?, "released"),
        Settlement::Bury(reason) => {
            let settled = delivery.bury(&reason).await?;
            if settled == SettleOutcome::Done {
                events::buried(subject, &reason);
            }
            (settled, "buried")
        }
    };
    match settled {
        SettleOutcome::Done if outcome == "released" => events::released(subject),
        SettleOutcome::Done => {}
        SettleOutcome::Gone => return Ok("gone"),
        SettleOutcome::Lost => return Ok("lost"),
    }
    Ok(outcome)
}

async fn snooze(delivery: &Delivery, due: Due) -> Result<&'static str, Error> {
    let subject = delivery.subject();
    let expires = "the message expires before the snooze ends";
    Ok(match delivery.snooze(due).await? {
        SnoozeOutcome::Scheduled(due_ms) => {
            events::snoozed(subject, due_ms);
            "snoozed"
        }
        SnoozeOutcome::Dead => {
            events::died(subject, expires);
            "died"
        }
        SnoozeOutcome::Dropped => {
            events::dropped(subject, expires);
            "dropped"
        }
        SnoozeOutcome::Gone => "gone",
        SnoozeOutcome::Lost => "lost",
    })
}

async fn throttle(delivery: &Delivery, duration: Duration) -> Result<&'static str, Error> {
    let (outcome, closed) = delivery.throttle_each(duration).await?;
    if let Err(error) = closed {
        // Not repeated for other partitions: the next throttle closes them again.
        let name = delivery.partition().queue_name();
        let then = "the partition that the error names stays open until the next throttle";
        events::call_failed(name, "throttle", &error, then);
    }
    Ok(match outcome {
        ThrottleOutcome::Until(until_ms) => {
            events::throttled(delivery.subject(), until_ms);
            "throttled"
        }
        ThrottleOutcome::Gone => "gone",
        ThrottleOutcome::Lost => "lost",
    })
}
