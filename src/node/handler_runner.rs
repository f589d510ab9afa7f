//! Runs the handler of one delivery, with its time limit, and settles the delivery.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span};

use crate::delivery::Delivery;
use crate::error::{Error, ErrorKind};
use crate::model::due::MAX_DELAY_MS;
use crate::model::outcomes::{Retried, Settled};
use crate::model::retry::Retry;
use crate::model::settlement::{IntoSettlement, Settlement};
use crate::node::catch_panic::{catch_panic, panic_text};
use crate::node::handler_guard::HandlerGuard;
use crate::server::patience::reconnect_delays;
use crate::telemetry::events;
use crate::telemetry::metrics::Count;

/// The longest delay that the protocol takes; a worker's `Retry` may ask for more.
const MAX_DELAY: Duration = Duration::from_millis(MAX_DELAY_MS);

/// The handler of a worker and its settings.
pub(crate) struct HandlerRunner<H> {
    pub(crate) handler: H,
    pub(crate) retry: Retry,
    pub(crate) time_limit: Option<Duration>,
    /// The worker stops: failed settlements are no longer repeated.
    pub(crate) stop: CancellationToken,
    /// The grace period is over: running handlers are dropped, their deliveries released.
    pub(crate) abort: CancellationToken,
}

impl<H, F, S> HandlerRunner<H>
where
    H: Fn(Delivery) -> F,
    F: Future<Output = S>,
    S: IntoSettlement,
{
    /// Runs the handler, returns `permit` so that another handler can start, and then settles. The
    /// guard keeps the lease extended until the settlement is answered.
    pub(crate) async fn handle(
        self: Arc<Self>,
        delivery: Delivery,
        guard: HandlerGuard,
        permit: OwnedSemaphorePermit,
    ) {
        // Not when the task was spawned: the wait for a thread is part of the lateness.
        let start = Instant::now();
        delivery.begin(start);
        let span = events::handle(
            delivery.subject(),
            delivery.due_ms(),
            delivery.lateness(),
            delivery.trace_parent(),
        );
        let work = async {
            let settlement = self.run(&delivery, start, &span).await;
            drop(permit);
            events::outcome(&span, self.end(&delivery, settlement).await);
            drop(guard);
        };
        work.instrument(span.clone()).await;
    }

    async fn run(&self, delivery: &Delivery, start: Instant, span: &Span) -> Settlement {
        // If the task waited too long for a thread, another node may have the message by now.
        if self.abort.is_cancelled() || delivery.is_lost() {
            return Settlement::Release;
        }
        let meters = delivery.partition().meters();
        let running = meters.handler_runs();
        let settlement = self.settlement_of(delivery).await;
        drop(running);
        let took = start.elapsed();
        meters.handled(took);
        events::handled(span, took);
        settlement
    }

    /// The settlement that the handler returns, or the one for its panic, time-out or abort.
    async fn settlement_of(&self, delivery: &Delivery) -> Settlement {
        // Created before the handler is called: its time counts from there, not from its first
        // await.
        let limit = self.time_limit.map(tokio::time::sleep);
        let time_up = async {
            match limit {
                Some(limit) => limit.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // The handler first: most handlers complete at once, and their result must count.
            biased;
            result = catch_panic(|| {
                let handling = (self.handler)(delivery.clone());
                async { handling.await.into_settlement() }
            }) => result.unwrap_or_else(|panic| {
                delivery.partition().meters().add(Count::HandlerPanicked);
                Settlement::retry(format_args!("the handler panicked: {}", panic_text(&*panic)))
            }),
            () = self.abort.cancelled() => Settlement::Release,
            // Unconstrained: a handler that always exhausts the task's budget must still time out.
            () = tokio::task::unconstrained(time_up) => {
                delivery.partition().meters().add(Count::HandlerTimedOut);
                let limit = self.time_limit.unwrap_or_default();
                Settlement::retry(format_args!("the handler exceeded its time limit of {limit:?}"))
            }
        }
    }

    /// Settles the delivery unless the handler has done so, and returns the outcome. While Redis is
    /// away it repeats the call until the worker stops. Meanwhile the lease is extended as soon as
    /// Redis is back, or the reply reports that it is lost.
    async fn end(&self, delivery: &Delivery, mut settlement: Settlement) -> &'static str {
        // A lost delivery may be released, too: if no node has taken it yet, that avoids a crash in
        // its count.
        if delivery.is_lost() && !matches!(settlement, Settlement::Release) {
            return "lost";
        }
        if delivery.is_settled() {
            return "by_handler";
        }
        let _settling = delivery.settling();
        let mut was_invalid = false;
        let mut failures = 0;
        loop {
            let error = match self.settle(delivery, settlement.clone()).await {
                Ok(outcome) => return outcome,
                Err(error) => error,
            };
            match error.kind() {
                // An invalid settlement, such as a delay of 101 years, counts as a failure of the
                // handler. Otherwise the lease would have to run out, which counts as a crash.
                ErrorKind::InvalidInput if !was_invalid => {
                    settlement = Settlement::retry(error);
                    was_invalid = true;
                }
                ErrorKind::Unavailable | ErrorKind::Timeout if !self.stop.is_cancelled() => {
                    let name = delivery.partition().queue_name();
                    events::call_failed(name, "settle", &error, "it is repeated");
                    failures += 1;
                    let pause = reconnect_delays().delay(failures, fastrand::f64());
                    let pause = tokio::time::sleep(pause);
                    self.stop.run_until_cancelled(pause).await;
                }
                _ => {
                    events::settle_failed(delivery.subject(), &error);
                    return "unsettled";
                }
            }
        }
    }

    /// Makes the call, and returns the outcome for the span.
    async fn settle(
        &self,
        delivery: &Delivery,
        settlement: Settlement,
    ) -> Result<&'static str, Error> {
        let subject = delivery.subject();
        let (settled, outcome) = match settlement {
            Settlement::Ack => (delivery.ack_behind().await?, "acked"),
            Settlement::Again(due) => (delivery.again(due).await?, "repeated"),
            Settlement::Retry { after, error } => {
                let own_delay = || {
                    let delay = self.retry.delay(delivery.attempt(), fastrand::f64());
                    delay.min(MAX_DELAY)
                };
                let after = after.unwrap_or_else(own_delay);
                return Ok(match delivery.retry(after, &error).await? {
                    Retried::Scheduled(due_ms) => {
                        events::retried(subject, due_ms, &error);
                        "retried"
                    }
                    Retried::Dead => {
                        events::died(subject, &error);
                        "died"
                    }
                    Retried::Gone => "gone",
                    Retried::Lost => "lost",
                });
            }
            Settlement::Release => (delivery.release().await?, "released"),
            Settlement::Bury(reason) => {
                let settled = delivery.bury(&reason).await?;
                if settled == Settled::Done {
                    events::buried(subject, &reason);
                }
                (settled, "buried")
            }
        };
        match settled {
            Settled::Done if outcome == "released" => events::released(subject),
            Settled::Done => {}
            Settled::Gone => return Ok("gone"),
            Settled::Lost => return Ok("lost"),
        }
        Ok(outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_delivery_lost_before_its_handler_began_is_released() {
        let runner = |abort: &CancellationToken| HandlerRunner {
            handler: |_: Delivery| std::future::ready(()),
            retry: Retry::default(),
            time_limit: None,
            stop: CancellationToken::new(),
            abort: abort.clone(),
        };
        let abort = CancellationToken::new();
        let kept = Delivery::unconnected(1);
        let lost = Delivery::unconnected(2);
        lost.lose("its lease ran out");
        for (delivery, expected) in [(&kept, Settlement::Ack), (&lost, Settlement::Release)] {
            let settlement = runner(&abort)
                .run(delivery, Instant::now(), &Span::none())
                .await;
            assert_eq!(settlement, expected);
        }
        abort.cancel();
        let settlement = runner(&abort)
            .run(&kept, Instant::now(), &Span::none())
            .await;
        assert_eq!(settlement, Settlement::Release, "so is one after the abort");
        assert_eq!(
            kept.partition().meters().snapshot().handling.count(),
            1,
            "the handler ran once"
        );
    }
}
