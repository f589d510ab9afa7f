//! Runs the handler of one delivery, with its time limit.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::{Instrument, Span};

use crate::delivery::Delivery;
use crate::error::panic_text;
use crate::model::settlement::Settlement;
use crate::node::consumers::guard::HandlerGuard;
use crate::node::consumers::handling::{HandleOne, HandlerContext, Handling};
use crate::node::consumers::settling::end;
use crate::node::consumers::slots::HandlerPermits;
use crate::node::runtime::catch_panic::catch_panic;
use crate::telemetry::events;
use crate::telemetry::metrics::{Counter, Meters};

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
