//! Running one handler: its panics, its time limit and its settlement.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
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
use crate::node::claim_lease::HandlerGuard;
use crate::server::lane::reconnect_delays;
use crate::telemetry::events;
use crate::telemetry::metrics::Count;

/// A worker's delays may grow without limit; what Redis is asked for has one.
const MAX_DELAY: Duration = Duration::from_millis(MAX_DELAY_MS);

/// What all handlers of a node share.
pub(crate) struct HandlerRunner<H> {
    pub(crate) handler: H,
    pub(crate) retry: Retry,
    pub(crate) time_limit: Option<Duration>,
    /// The worker is to stop: a settle that fails is not repeated any more.
    pub(crate) stop: CancellationToken,
    /// The grace is over: give back what is not finished.
    pub(crate) abort: CancellationToken,
}

impl<H, F, S> HandlerRunner<H>
where
    H: Fn(Delivery) -> F,
    F: Future<Output = S>,
    S: IntoSettlement,
{
    /// Runs the handler, then gives its permit back, then settles. The lease is extended until that is answered.
    pub(crate) async fn handle(
        self: Arc<Self>,
        delivery: Delivery,
        guard: HandlerGuard,
        running: OwnedSemaphorePermit,
    ) {
        // Now and not when the task was spawned: what it waited for a thread is lateness too.
        let began = Instant::now();
        delivery.begin(began);
        let span = events::handle(
            delivery.subject(),
            delivery.due_ms(),
            delivery.lateness(),
            delivery.trace_parent(),
        );
        let work = async {
            let settlement = self.run(&delivery, began, &span).await;
            drop(running);
            events::outcome(&span, self.end(&delivery, settlement).await);
            drop(guard);
        };
        work.instrument(span.clone()).await;
    }

    async fn run(&self, delivery: &Delivery, began: Instant, span: &Span) -> Settlement {
        // What it waited for a thread may have been too long: then somebody else may have it by now.
        if self.abort.is_cancelled() || delivery.is_lost() {
            return Settlement::Release;
        }
        let meters = delivery.partition().meters();
        let in_hand = meters.hold();
        let settlement = self.judged(delivery).await;
        drop(in_hand);
        let took = began.elapsed();
        meters.handled(took);
        events::handled(span, took);
        settlement
    }

    /// What the handler says, or what its end says for it.
    async fn judged(&self, delivery: &Delivery) -> Settlement {
        // Counted from here, not from where the handler first waits.
        let limit = self.time_limit.map(tokio::time::sleep);
        let time_up = async {
            match limit {
                Some(limit) => limit.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // First of all, as most handlers that end at once are never waited for.
            biased;
            result = caught(|| {
                let handling = (self.handler)(delivery.clone());
                async { handling.await.into_settlement() }
            }) => result.unwrap_or_else(|panic| {
                delivery.partition().meters().add(Count::HandlerPanicked);
                Settlement::retry(format_args!("the handler panicked: {}", text_of(&*panic)))
            }),
            () = self.abort.cancelled() => Settlement::Release,
            // Heard even if the handler uses up what a task may do in one go, each time.
            () = tokio::task::unconstrained(time_up) => {
                delivery.partition().meters().add(Count::HandlerTimedOut);
                Settlement::retry(format_args!("the handler exceeded its time limit of {:?}", self.time_limit.unwrap_or_default()))
            }
        }
    }

    /// Settles what the handler has not; says how it ended. While Redis is away it tries until the worker is to stop: the lease
    /// is extended as soon as Redis is back, or found lost by the answer.
    async fn end(&self, delivery: &Delivery, mut settlement: Settlement) -> &'static str {
        // Given back is what never began, too: as long as nobody has taken it, that spares it a crash.
        if delivery.is_lost() && !matches!(settlement, Settlement::Release) {
            return "lost";
        }
        if delivery.is_settled() {
            return "by_handler";
        }
        let _settling = delivery.settling();
        let (mut invalid, mut failures) = (false, 0);
        loop {
            let error = match self.settle(delivery, settlement.clone()).await {
                Ok(outcome) => return outcome,
                Err(error) => error,
            };
            match error.kind() {
                // What cannot be asked for, such as a delay of 101 years, is the handler's failure: the message must not
                // wait for its lease to run out, nor be charged a crash.
                ErrorKind::InvalidInput if !invalid => {
                    (settlement, invalid) = (Settlement::retry(error), true)
                }
                ErrorKind::Unavailable | ErrorKind::Timeout if !self.stop.is_cancelled() => {
                    events::call_failed(
                        delivery.partition().queue_name(),
                        "settle",
                        &error,
                        "it is repeated",
                    );
                    failures += 1;
                    let pause =
                        tokio::time::sleep(reconnect_delays().delay(failures, fastrand::f64()));
                    self.stop.run_until_cancelled(pause).await;
                }
                _ => {
                    events::settle_failed(delivery.subject(), &error);
                    return "unsettled";
                }
            }
        }
    }

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
                let delay = || {
                    self.retry
                        .delay(delivery.attempt(), fastrand::f64())
                        .min(MAX_DELAY)
                };
                return Ok(
                    match delivery.retry(after.unwrap_or_else(delay), &error).await? {
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
                    },
                );
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

/// Runs what `start` returns; a panic of either is a value.
pub(crate) async fn caught<F: Future>(
    start: impl FnOnce() -> F,
) -> Result<F::Output, Box<dyn Any + Send>> {
    // What the handler leaves half done is its own: nothing here is shared with it.
    let mut future = Shielded(Some(Box::pin(catch_unwind(AssertUnwindSafe(start))?)));
    std::future::poll_fn(
        |context| match catch_unwind(AssertUnwindSafe(|| future.poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
            Err(panic) => Poll::Ready(Err(panic)),
        },
    )
    .await
}

/// A future that may be dropped at any time: a panic of its values' drops must not keep its delivery from being settled.
struct Shielded<F>(Option<Pin<Box<F>>>);

impl<F: Future> Shielded<F> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<F::Output> {
        self.0
            .as_mut()
            .map_or(Poll::Pending, |future| future.as_mut().poll(context))
    }
}

impl<F> Drop for Shielded<F> {
    fn drop(&mut self) {
        let future = self.0.take();
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(future))) {
            events::drop_panicked(text_of(&*panic));
        }
    }
}

pub(crate) fn text_of(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no text")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_was_lost_or_is_too_late_before_it_began_is_given_back_unseen() {
        let handler = |_: Delivery| std::future::ready(());
        let handling = |abort: &CancellationToken| HandlerRunner {
            handler,
            retry: Retry::default(),
            time_limit: None,
            stop: CancellationToken::new(),
            abort: abort.clone(),
        };
        let abort = CancellationToken::new();
        let (kept, lost) = (Delivery::unconnected(1), Delivery::unconnected(2));
        lost.lose("its lease ran out");
        for (delivery, expected) in [(&kept, Settlement::Ack), (&lost, Settlement::Release)] {
            let settlement = handling(&abort)
                .run(delivery, Instant::now(), &Span::none())
                .await;
            assert_eq!(settlement, expected);
        }
        abort.cancel();
        let settlement = handling(&abort)
            .run(&kept, Instant::now(), &Span::none())
            .await;
        assert_eq!(settlement, Settlement::Release);
        assert_eq!(
            kept.partition().meters().snapshot().handling.count(),
            1,
            "only what began was handled"
        );
    }
}
