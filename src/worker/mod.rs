//! A worker: the public face of a node, and the one place where its parts are put together.

pub(crate) mod settlement;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::delivery::Delivery;
use crate::error::{Error, ErrorKind};
use crate::model::id::compact;
use crate::model::retry::Retry;
use crate::node::claimer::{Claimer, Nudge};
use crate::node::coordinator::{self, Coordinator};
use crate::node::handler_runner::HandlerRunner;
use crate::node::notices;
use crate::node::panics::TaskPanics;
use crate::node::wake::WakeUps;
use crate::protocol::limits;
use crate::queue::Queue;
use crate::telemetry::events;
use crate::worker::settlement::IntoSettlement;

/// Handles the messages of a queue as they become due: promotes, claims, extends leases, settles, reaps what others lost.
///
/// Made by [`Queue::worker`]. Any number of workers in any number of processes share a queue. What those of a handle do is
/// counted in its [`Queue::metrics`]; each handler runs in a `tracing` span `dueq.handle`.
///
/// ```no_run
/// # async fn example(orders: dueq::Queue) -> Result<(), dueq::Error> {
/// use dueq::{Delivery, Retry};
/// use std::time::Duration;
///
/// async fn rate(delivery: Delivery) -> anyhow::Result<()> {
///     println!("{} is due", delivery.id());
///     Ok(())
/// }
///
/// orders
///     .worker()
///     .concurrency(64)
///     .lease(Duration::from_secs(30))
///     .retry(Retry::exponential(Duration::from_secs(1), Duration::from_secs(600))?)
///     .run(rate, async { tokio::signal::ctrl_c().await.unwrap_or_default() })
///     .await
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Worker {
    queue: Queue,
    concurrency: usize,
    lease: Duration,
    retry: Retry,
    time_limit: Option<Duration>,
    grace: Duration,
}

impl Worker {
    pub(crate) fn new(queue: Queue) -> Self {
        Self {
            queue,
            concurrency: 64,
            lease: Duration::from_secs(30),
            retry: Retry::default(),
            time_limit: None,
            grace: Duration::from_secs(30),
        }
    }

    /// How many handlers run at once: at least 1, 64 unless set.
    ///
    /// A worker holds at most 512 deliveries more: those whose handlers have ended and whose settles wait for an answer. If
    /// settles stall, it claims nothing beyond that, and extends the leases of all that it holds.
    #[must_use]
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.concurrency = concurrency;
        self
    }

    /// How long a delivery is this worker's without a sign of life: 1 ms to a day, 30 s unless set. It is extended at a third
    /// of it, from the claim until the delivery is settled. If the worker dies, its messages come back after it.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// The delays after failures; from 1 s doubling to 1 h unless set.
    #[must_use]
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// How long a handler may take; then it is dropped and its delivery retried. No limit unless set. A handler that blocks
    /// its thread cannot be dropped: use `spawn_blocking` for such work.
    #[must_use]
    pub fn time_limit(mut self, time_limit: Duration) -> Self {
        self.time_limit = Some(time_limit);
        self
    }

    /// How long handlers may go on after the stop; then they are dropped and their deliveries released, uncharged. 30 s
    /// unless set.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Handles messages until `stop` completes; then claims no more, lets the handlers finish within the grace time,
    /// releases the rest, and returns when every settle has had its answer.
    ///
    /// The handler gets each delivery and returns nothing, a [`Settlement`](crate::Settlement), or a `Result` of either: `Ok`
    /// acks, `Err` retries. A panic is a failure like any other. What the handler settles itself is left alone. Handlers
    /// must be idempotent: a message is delivered at least once, and again if its lease is lost
    /// ([`Delivery::lost`] tells).
    ///
    /// While Redis is away it keeps trying, for ever, and goes on where it was. Dropping the future stops at once: handlers
    /// are dropped, their deliveries released.
    ///
    /// # Errors
    /// At the start [`ErrorKind::InvalidInput`] for settings out of range, [`ErrorKind::Denied`] and
    /// [`ErrorKind::Unsupported`] as the server says. Later only [`ErrorKind::Internal`], if a task of the worker itself
    /// panics: handlers are dropped and their deliveries released before it returns.
    pub async fn run<H, F, S>(self, handler: H, stop: impl Future<Output = ()>) -> Result<(), Error>
    where
        H: Fn(Delivery) -> F + Send + Sync + 'static,
        F: Future<Output = S> + Send + 'static,
        S: IntoSettlement + Send + 'static,
    {
        if !(1..=Semaphore::MAX_PERMITS).contains(&self.concurrency) {
            return Err(Error::invalid(format!(
                "concurrency {}: at least one handler is needed",
                self.concurrency
            )));
        }
        let lease_ms = limits::lease_ms(self.lease)?;
        let Self {
            queue,
            concurrency,
            lease,
            retry,
            time_limit,
            grace,
        } = self;
        let (name, node) = (queue.name().to_owned(), compact(Uuid::now_v7()));
        let control = Arc::clone(queue.control());
        match coordinator::beat(&control, &queue, &node, b"stay").await {
            Err(error) if matches!(error.kind(), ErrorKind::Denied | ErrorKind::Unsupported) => {
                return Err(error);
            }
            // Redis may be away just now: the node keeps trying.
            _ => {}
        }

        let (stopping, abort, leaving) = (
            CancellationToken::new(),
            CancellationToken::new(),
            CancellationToken::new(),
        );
        // Whoever drops this future stops the node all the same.
        let guards =
            [stopping.clone(), abort.clone(), leaving.clone()].map(CancellationToken::drop_guard);
        let (sender, events) = mpsc::unbounded_channel();
        let (connector, keys) = (
            Arc::clone(control.connector()),
            Arc::clone(queue.all_keys()),
        );
        let nudge = Arc::new(Nudge::new(concurrency));
        events::worker_started(&name, &node, concurrency, lease_ms);
        let panics = TaskPanics::default();
        let coordinator = Coordinator::new(
            node.clone(),
            queue.clone(),
            Arc::clone(&control),
            sender.clone(),
            leaving.clone(),
            Arc::clone(&nudge),
            panics.clone(),
        );
        let handlers = TaskTracker::new();
        let claimer = Claimer {
            queue: queue.clone(),
            wake: WakeUps::new(queue.name(), Arc::clone(&connector), keys.wake.clone()),
            lease,
            lease_ms,
            nudge,
            handling: Arc::new(HandlerRunner {
                handler,
                retry,
                time_limit,
                stop: stopping.clone(),
                abort: abort.clone(),
            }),
            handlers: handlers.clone(),
            events: sender.clone(),
            stop: stopping.clone(),
        };
        let coordinator = panics.spawn("coordinator", coordinator.run(events));
        let listening = notices::listen(name.clone(), connector, keys.notice.clone(), sender);
        let listening = leaving.clone().run_until_cancelled_owned(listening);
        panics.spawn("listener", async { listening.await.unwrap_or_default() });
        let claimer = panics.spawn("claimer", claimer.run());

        // Without one of its parts the worker would do nothing for ever, or lose its leases.
        let ended = async {
            panics.happened().await;
            stopping.cancel();
            abort.cancel();
        };
        tokio::select! {
            () = stop => {}
            () = ended => {}
        }
        stopping.cancel();
        let _ = claimer.await;
        handlers.close();
        tokio::select! {
            () = handlers.wait() => {}
            () = tokio::time::sleep(grace) => {}
            () = panics.happened() => {}
        }
        abort.cancel();
        handlers.wait().await;
        leaving.cancel();
        let _ = coordinator.await;
        if panics.first().is_some() {
            // The coordinator may not have said it. Without it the node counts as alive for 3 s more.
            let _ = coordinator::beat(&control, &queue, &node, b"leave").await;
        }
        drop(guards);
        events::worker_stopped(&name, &node);
        panics.first().map_or(Ok(()), Err)
    }
}
