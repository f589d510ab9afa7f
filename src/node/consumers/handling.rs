//! The traits through which a node runs the handler of a queue.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::delivery::Delivery;
use crate::error::ErrorKind;
use crate::model::retry::Retry;
use crate::model::settlement::Settlement;
use crate::node::consumers::guard::HandlerGuard;
use crate::node::consumers::slots::HandlerPermits;
use crate::node::runtime::thread::NodeThread;

/// Starts the handlers of one queue. The node knows neither their type nor that of their payloads.
pub(crate) trait Handling: Send + Sync + 'static {
    /// How many deliveries the handler can take now if it gets this many more permits.
    fn capacity(&self, handlers: usize) -> usize;

    /// For how many messages the next claim asks, given this many permits.
    fn asks(&self, handlers: usize) -> usize {
        self.capacity(handlers)
    }

    /// Starts handlers for the deliveries of one claim. `permits` has one permit for each handler
    /// that may start. Returns the permits that are left.
    fn start(
        self: Arc<Self>,
        deliveries: Vec<(Delivery, HandlerGuard)>,
        permits: HandlerPermits,
        context: &Arc<HandlerContext>,
    ) -> HandlerPermits;

    /// How many more handlers could start for deliveries that wait here.
    fn waiting(&self) -> usize {
        0
    }

    /// Called when no further delivery comes: a batch handler gets its incomplete batch at once.
    fn close(&self);
}

/// A handler of one delivery at a time.
pub(crate) trait HandleOne: Send + Sync + 'static {
    fn handle(&self, delivery: Delivery) -> impl Future<Output = Settlement> + Send;
}

/// A handler of many deliveries at a time.
pub(crate) trait HandleMany: Send + Sync + 'static {
    type Value: Send;

    /// Decodes the payload of a delivery. If it cannot, returns the settlement instead.
    fn decode(&self, delivery: &Delivery) -> Result<Self::Value, Settlement>;

    /// Handles a batch, and returns a settlement for each of its deliveries in their order.
    fn handle(
        &self,
        batch: Vec<(Self::Value, Delivery)>,
    ) -> impl Future<Output = Vec<Settlement>> + Send;
}

/// Where and how the handlers of one queue run.
#[derive(Clone)]
pub(crate) struct HandlerContext {
    /// The runtime of the caller, on which handlers run.
    pub(crate) runtime: Handle,
    pub(crate) tracker: TaskTracker,
    pub(crate) retry: Retry,
    pub(crate) time_limit: Option<Duration>,
    /// How long a delivery is leased without an extension.
    pub(crate) lease: Duration,
    pub(crate) lease_ms: u64,
    /// The most handlers that a partition may have at once.
    pub(crate) max_handlers: usize,
    /// Cancelled when the worker stops: failed settlements are no longer repeated.
    pub(crate) stop: CancellationToken,
    /// Cancelled when the grace period is over: running handlers are dropped and their deliveries
    /// released.
    pub(crate) abort: CancellationToken,
    /// The node's thread, which must not end before the last settlement: the connections live on
    /// it.
    pub(crate) thread: Arc<NodeThread>,
}

impl HandlerContext {
    /// Whether a settlement with this error was lost inside the node, not on the way to Redis.
    pub(crate) fn has_lost(&self, error: ErrorKind) -> bool {
        let has_ended = self.thread.ended().is_cancelled();
        error == ErrorKind::Internal || error == ErrorKind::Unavailable && has_ended
    }
}

#[cfg(test)]
impl HandlerContext {
    /// A context whose handlers run on the runtime of the test.
    pub(crate) fn here() -> Self {
        Self {
            runtime: Handle::current(),
            tracker: TaskTracker::new(),
            retry: Retry::default(),
            time_limit: None,
            lease: Duration::from_secs(30),
            lease_ms: 30_000,
            max_handlers: 1,
            stop: CancellationToken::new(),
            abort: CancellationToken::new(),
            thread: Arc::new(NodeThread::start(std::future::pending(), |_| {}).expect("a thread")),
        }
    }
}
