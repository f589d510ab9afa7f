//! Running one handler: its panics, its time limit and its settlement.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::UnboundedSender;
use tokio_util::sync::CancellationToken;

use crate::delivery::{Delivery, Granted};
use crate::due::MAX_DELAY_MS;
use crate::error::{Error, ErrorKind};
use crate::node::Event;
use crate::node::settlement::{IntoSettlement, Settlement};
use crate::queue::Queue;
use crate::retry::Retry;

/// A worker's delays may grow without limit; what Redis is asked for has one.
const MAX_DELAY: Duration = Duration::from_millis(MAX_DELAY_MS);

/// What all handlers of a node share.
pub(super) struct Handling<H> {
    pub(super) handler: H,
    pub(super) retry: Retry,
    pub(super) time_limit: Option<Duration>,
    pub(super) events: UnboundedSender<Event>,
    /// The grace is over: give back what is not finished.
    pub(super) abort: CancellationToken,
}

impl<H, F, S> Handling<H>
where
    H: Fn(Delivery) -> F,
    F: Future<Output = S>,
    S: IntoSettlement,
{
    /// Runs the handler, then frees its place, then settles.
    pub(super) async fn handle(
        self: Arc<Self>,
        number: u64,
        queue: Queue,
        granted: Granted,
        claimed: Instant,
        place: OwnedSemaphorePermit,
    ) {
        // Made here and not where the task was spawned: what it waited for a thread is lateness too.
        let delivery = Delivery::new(queue, granted);
        let time_up = CancellationToken::new();
        // The conductor outlives the handlers: these sends fail only if the runtime is going down.
        let _ =
            self.events.send(Event::Started { number, delivery: delivery.clone(), claimed, time_up: time_up.clone() });
        let settlement = tokio::select! {
            biased;
            () = self.abort.cancelled() => Settlement::Release,
            () = time_up.cancelled() => {
                Settlement::retry(format_args!("the handler exceeded its time limit of {:?}", self.time_limit.unwrap_or_default()))
            }
            result = caught(|| {
                let handling = (self.handler)(delivery.clone());
                async { handling.await.into_settlement() }
            }) => match result {
                Ok(settlement) => settlement,
                Err(panic) => Settlement::retry(format_args!("the handler panicked: {}", text_of(&*panic))),
            },
        };
        let _ = self.events.send(Event::Finished { number });
        drop(place);
        if delivery.is_settled() || delivery.is_lost() {
            return;
        }
        let mut settled = self.settle(&delivery, settlement).await;
        // What cannot be asked for, such as a delay of 101 years, is the handler's failure: the message must not wait for
        // its lease to run out, nor be charged a crash.
        if let Err(error) = &settled
            && error.kind() == ErrorKind::InvalidInput
        {
            settled = self.settle(&delivery, Settlement::retry(error)).await;
        }
        if let Err(error) = settled {
            tracing::warn!(id = %delivery.id(), %error, "a delivery could not be settled: it comes back when its lease runs out");
        }
    }

    async fn settle(&self, delivery: &Delivery, settlement: Settlement) -> Result<(), Error> {
        match settlement {
            Settlement::Ack => delivery.ack().await.map(drop),
            Settlement::Again(due) => delivery.again(due).await.map(drop),
            Settlement::Retry { after, error } => {
                let delay = || self.retry.delay(delivery.attempt(), fastrand::f64()).min(MAX_DELAY);
                delivery.retry(after.unwrap_or_else(delay), &error).await.map(drop)
            }
            Settlement::Release => delivery.release().await.map(drop),
            Settlement::Bury(reason) => delivery.bury(&reason).await.map(drop),
        }
    }
}

/// Runs what `start` returns; a panic of either is a value.
async fn caught<F: Future>(start: impl FnOnce() -> F) -> Result<F::Output, Box<dyn Any + Send>> {
    // What the handler leaves half done is its own: nothing here is shared with it.
    let mut future = Shielded(Some(Box::pin(catch_unwind(AssertUnwindSafe(start))?)));
    std::future::poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| future.poll(context))) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
        Err(panic) => Poll::Ready(Err(panic)),
    })
    .await
}

/// A future that may be dropped at any time: a panic of its values' drops must not keep its delivery from being settled.
struct Shielded<F>(Option<Pin<Box<F>>>);

impl<F: Future> Shielded<F> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<F::Output> {
        self.0.as_mut().map_or(Poll::Pending, |future| future.as_mut().poll(context))
    }
}

impl<F> Drop for Shielded<F> {
    fn drop(&mut self) {
        let future = self.0.take();
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(future))) {
            tracing::error!("a handler panicked when it was dropped: {}", text_of(&*panic));
        }
    }
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no text")
}
