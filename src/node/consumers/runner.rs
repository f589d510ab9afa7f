//! Runs the handler of one delivery, with its time limit, and settles the delivery.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::{Instrument, Span};

use crate::delivery::Delivery;
use crate::error::{Applied, Error, ErrorKind, panic_text};
use crate::model::due::{Due, MAX_DELAY_MS};
use crate::model::outcomes::{
    AckPushOutcome, RetryOutcome, SettleOutcome, SnoozeOutcome, ThrottleOutcome,
};
use crate::model::settlement::Settlement;
use crate::node::consumers::guard::HandlerGuard;
use crate::node::consumers::handling::{HandleOne, HandlerContext, Handling};
use crate::node::consumers::slots::HandlerPermits;
use crate::node::runtime::catch_panic::catch_panic;
use crate::server::patience::reconnect_delays;
use crate::telemetry::events;
use crate::telemetry::metrics::{Counter, Meters};

/// The longest delay that the protocol takes; a worker's `Retry` may ask for more.
const MAX_DELAY: Duration = Duration::from_millis(MAX_DELAY_MS);

/// Runs a handler that takes one delivery at a time.
pub(crate) struct HandlerRunner<H> {
    pub(crate) handler: H,
}

impl<H: HandleOne> Handling for HandlerRunner<H> {
    fn capacity(&self, handlers: usize) -> usize {
        handlers
    }

    fn start(
        self: Arc<Self>,
        mut deliveries: Vec<(Delivery, HandlerGuard)>,
        mut permits: HandlerPermits,
        context: &Arc<HandlerContext>,
    ) -> HandlerPermits {
        let (context, tracker) = (Arc::clone(context), context.tracker.clone());
        let runtime = context.runtime.clone();
        let mut starting = permits.start(deliveries.len());
        if deliveries.len() == 1
            && let (Some((delivery, guard)), Some(permit)) = (deliveries.pop(), starting.split())
        {
            tracker.spawn_on(self.handle(delivery, guard, permit, context), &runtime);
            return permits;
        }
        // One task starts all handlers, because each spawn from another thread is costly.
        let starter = async move {
            for (delivery, guard) in deliveries {
                let Some(permit) = starting.split() else {
                    return;
                };
                let work = Arc::clone(&self).handle(delivery, guard, permit, Arc::clone(&context));
                context.tracker.spawn(work);
            }
        };
        tracker.spawn_on(starter, &runtime);
        permits
    }

    fn close(&self) {}
}

impl<H: HandleOne> HandlerRunner<H> {
    /// Runs the handler, returns `permit` so that another handler can start, and then settles. The
    /// guard keeps the lease extended until the settlement is answered.
    async fn handle(
        self: Arc<Self>,
        delivery: Delivery,
        guard: HandlerGuard,
        permit: HandlerPermits,
        context: Arc<HandlerContext>,
    ) {
        // Read here, not at the spawn: the wait for a thread is part of the lateness.
        let start = Instant::now();
        delivery.begin(start);
        let span = events::handle(
            delivery.subject(),
            delivery.due_ms(),
            delivery.lateness(),
            delivery.trace_parent(),
        );
        let work = async {
            let settlement = self.run(&delivery, &context, start, &span).await;
            // A throttle keeps the permit until the queue is closed, so that it claims nothing.
            let permit = closes_queue(&settlement).then_some(permit);
            events::outcome(&span, end(&delivery, settlement, &context).await);
            drop(permit);
            drop(guard);
        };
        work.instrument(span.clone()).await;
    }

    async fn run(
        &self,
        delivery: &Delivery,
        context: &HandlerContext,
        start: Instant,
        span: &Span,
    ) -> Settlement {
        // If this task waited too long for a thread, another node may have the message by now.
        if context.abort.is_cancelled() || delivery.is_lost() {
            return Settlement::Release;
        }
        let meters = delivery.partition().meters();
        let running = meters.handler_runs();
        let settlement = self.settlement_of(delivery, context).await;
        drop(running);
        let took = start.elapsed();
        delivery.partition().handled(took);
        events::handled(span, took);
        settlement
    }

    /// The settlement that the handler returns, or the one for its panic, time-out or abort.
    async fn settlement_of(&self, delivery: &Delivery, context: &HandlerContext) -> Settlement {
        let meters = delivery.partition().meters();
        match attempt(context, || self.handler.handle(delivery.clone())).await {
            Ok(settlement) => settlement,
            Err(failure) => failure.counted(meters).settlement(),
        }
    }
}

/// Why a handler did not return.
pub(crate) enum Failure {
    Panicked(String),
    TimedOut(Duration),
    Aborted,
}

impl Failure {
    /// Counts the failure in the metrics, once for each handler.
    pub(crate) fn counted(self, meters: &Meters) -> Self {
        match self {
            Self::Panicked(_) => meters.add(Counter::HandlerPanicked),
            Self::TimedOut(_) => meters.add(Counter::HandlerTimedOut),
            Self::Aborted => {}
        }
        self
    }

    /// The settlement of a delivery whose handler failed in this way.
    pub(crate) fn settlement(&self) -> Settlement {
        match self {
            Self::Panicked(text) => Settlement::retry(format_args!("the handler panicked: {text}")),
            Self::TimedOut(limit) => Settlement::retry(format_args!(
                "the handler exceeded its time limit of {limit:?}"
            )),
            Self::Aborted => Settlement::Release,
        }
    }
}

/// Runs a handler within its time limit, until the abort.
pub(crate) async fn attempt<F: Future>(
    context: &HandlerContext,
    handler: impl FnOnce() -> F,
) -> Result<F::Output, Failure> {
    // The time limit starts before the handler is called, not at its first await.
    let limit = context.time_limit.map(tokio::time::sleep);
    let time_up = async {
        match limit {
            Some(limit) => limit.await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        // The handler is polled first: most handlers complete at once, and their result must count.
        biased;
        result = catch_panic(handler) => {
            result.map_err(|panic| Failure::Panicked(panic_text(&*panic).to_owned()))
        }
        () = context.abort.cancelled() => Err(Failure::Aborted),
        // Unconstrained: a handler that always exhausts the task's budget must still time out.
        () = tokio::task::unconstrained(time_up) => {
            Err(Failure::TimedOut(context.time_limit.unwrap_or_default()))
        }
    }
}

/// Whether this settlement closes the queue, which must happen before the next claim.
pub(crate) fn closes_queue(settlement: &Settlement) -> bool {
    matches!(settlement, Settlement::Throttle(_))
}

/// Settles the delivery unless the handler has done so, and returns the outcome. While Redis is
/// away it repeats the call until the worker stops. The lease is extended as soon as Redis is back,
/// unless it was lost. After a refusal, such as for a missing right, it repeats the call for the
/// duration of a lease.
pub(crate) async fn end(
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_delivery_lost_before_its_handler_began_is_released() {
        struct Acks;
        impl HandleOne for Acks {
            async fn handle(&self, _: Delivery) -> Settlement {
                Settlement::Ack
            }
        }
        let runner = HandlerRunner { handler: Acks };
        let context = HandlerContext::here();
        let kept = Delivery::unconnected(1);
        let lost = Delivery::unconnected(2);
        lost.lose("its lease ran out");
        for (delivery, expected) in [(&kept, Settlement::Ack), (&lost, Settlement::Release)] {
            let settlement = runner
                .run(delivery, &context, Instant::now(), &Span::none())
                .await;
            assert_eq!(settlement, expected);
        }
        context.abort.cancel();
        let settlement = runner
            .run(&kept, &context, Instant::now(), &Span::none())
            .await;
        assert_eq!(settlement, Settlement::Release, "so is one after the abort");
        assert_eq!(
            kept.partition().meters().snapshot().handling.count(),
            1,
            "the handler ran once"
        );
    }
}
