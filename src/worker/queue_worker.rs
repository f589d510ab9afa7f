//! The short form of a worker, for one queue.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tower_layer::Layer;
use tower_service::Service;

use crate::delivery::Delivery;
use crate::error::Error;
use crate::model::codec::{BoxError, Codec, RawBytes};
use crate::model::retry::Retry;
use crate::model::settlement::Settlement;
use crate::node::coordinator::settings::Settings;
use crate::queue::Queue;
use crate::worker::assemble::{self, Added, Layers};
use crate::worker::batch::{Batch, IntoSettlements, in_batches};
use crate::worker::handle::{self, WorkerHandle};
use crate::worker::handler::IntoHandler;
use crate::worker::layer::{self, HandlerService};
use crate::worker::settings::{Defaults, QueueSettings};

/// A [`Worker`](crate::Worker) of one queue.
///
/// Created by [`Queue::worker`]. [`Queue::metrics`] counts the work of all workers of that `Queue`
/// and its clones.
///
/// ```
/// # dueq_testkit::doctest!(|orders| {
/// # let stop = async {};
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
///     .run(rate, stop) // for example `tokio::signal::ctrl_c()`
///     .await?;
/// # });
/// ```
#[derive(Clone)]
#[must_use = "a worker does nothing until `spawn` or `run`"]
pub struct QueueWorker<C = RawBytes> {
    queue: Queue<C>,
    defaults: Defaults,
    layers: Layers,
}

impl<C: Codec> Queue<C> {
    /// Makes a worker of this queue, which is then configured and started. For many queues see
    /// [`Client::worker`](crate::Client::worker).
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// # let stop = async {};
    /// async fn rate(delivery: dueq::Delivery) {
    ///     println!("{} is due", delivery.id());
    /// }
    ///
    /// // Until `stop` completes, for example `tokio::signal::ctrl_c()`:
    /// orders.worker().run(rate, stop).await?;
    /// # });
    /// ```
    pub fn worker(&self) -> QueueWorker<C> {
        QueueWorker {
            queue: self.clone(),
            defaults: Defaults::default(),
            layers: Layers::default(),
        }
    }
}

impl<C: Codec> QueueWorker<C> {
    /// Sets how many handlers may run at once: at least 1; the default is 64.
    ///
    /// Besides these, a worker holds at most 512 deliveries of a queue whose handlers have ended and
    /// whose settlements have no reply yet. If settlements stall, it stops claiming, and extends the
    /// leases of all deliveries that it holds.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// # async fn rate(_: dueq::Delivery) {}
    /// let worker = orders.worker().concurrency(16).spawn(rate)?;
    /// # worker.shutdown().await?;
    /// # });
    /// ```
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.defaults.concurrency = concurrency;
        self
    }

    /// Sets the lease of a delivery: 1 ms to a day; the default is 30 s. The worker extends it
    /// every third of this time, from the claim until the delivery is settled. If the worker dies,
    /// its messages are delivered again when their leases run out.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// # async fn rate(_: dueq::Delivery) {}
    /// use std::time::Duration;
    ///
    /// let worker = orders.worker().lease(Duration::from_secs(5)).spawn(rate)?;
    /// # worker.shutdown().await?;
    /// # });
    /// ```
    pub fn lease(mut self, lease: Duration) -> Self {
        self.defaults.lease = lease;
        self
    }

    /// Sets the back-off before a retry. The default is 1 s, doubling up to 1 h; jitter takes off
    /// up to half of each delay.
    ///
    /// The number of attempts is not set here, but by
    /// [`Push::max_attempts`](crate::Push::max_attempts) for a message and
    /// [`QueueLimits::max_attempts`](crate::QueueLimits::max_attempts) for a queue. It is 20 by
    /// default.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// # async fn rate(_: dueq::Delivery) {}
    /// use dueq::Retry;
    /// use std::time::Duration;
    ///
    /// let worker = orders.worker().retry(Retry::fixed(Duration::from_secs(10))).spawn(rate)?;
    /// # worker.shutdown().await?;
    /// # });
    /// ```
    pub fn retry(mut self, retry: Retry) -> Self {
        self.defaults.retry = retry;
        self
    }

    /// Sets how long a handler may run, more than 0. A handler that runs longer is dropped, and its
    /// delivery retried. The default is no limit. A handler that blocks its thread cannot be
    /// dropped: use `spawn_blocking` for such work.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// # async fn rate(_: dueq::Delivery) {}
    /// use std::time::Duration;
    ///
    /// let worker = orders.worker().time_limit(Duration::from_secs(60)).spawn(rate)?;
    /// # worker.shutdown().await?;
    /// # });
    /// ```
    pub fn time_limit(mut self, time_limit: Duration) -> Self {
        self.defaults.time_limit = Some(time_limit);
        self
    }

    /// Sets the grace period: how long handlers may continue after the stop. After it they are
    /// dropped, and their deliveries are released, which counts no attempt. The default is 30 s; 0
    /// drops the handlers at the stop.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// # async fn rate(_: dueq::Delivery) {}
    /// use std::time::Duration;
    ///
    /// let worker = orders.worker().grace(Duration::from_secs(5)).spawn(rate)?;
    /// # worker.shutdown().await?;
    /// # });
    /// ```
    pub fn grace(mut self, grace: Duration) -> Self {
        self.defaults.grace = grace;
        self
    }

    /// Wraps the handler into a `tower` layer: time-outs, limits, tracing and more of the
    /// ecosystem.
    ///
    /// The request is a [`Delivery`](crate::Delivery), and the response the
    /// [`Settlement`](crate::Settlement) that the handler asks for. An error of the layer becomes a
    /// retry. The first layer is the outermost. Each queue gets its own service. To an outer layer
    /// the inner service always seems ready, so combine a load shedder with the limit that it
    /// watches in one layer, by `tower::ServiceBuilder`. A worker without layers has no extra cost
    /// per delivery.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use dueq::Delivery;
    /// use std::time::Duration;
    /// use tower::limit::ConcurrencyLimitLayer;
    /// use tower::timeout::TimeoutLayer;
    ///
    /// async fn rate(_: Delivery) {}
    ///
    /// let worker = orders
    ///     .worker()
    ///     .layer(ConcurrencyLimitLayer::new(8))
    ///     .layer(TimeoutLayer::new(Duration::from_secs(10)))
    ///     .spawn(rate)?;
    /// # worker.shutdown().await?;
    /// # });
    /// ```
    pub fn layer<L>(mut self, layer: L) -> Self
    where
        L: Layer<HandlerService> + Send + Sync + 'static,
        L::Service: Service<Delivery, Response = Settlement> + Clone + Send + Sync + 'static,
        <L::Service as Service<Delivery>>::Error: Into<BoxError>,
        <L::Service as Service<Delivery>>::Future: Send,
    {
        self.layers.push(layer::wrap(layer));
        self
    }

    /// Handles messages until `stop` completes: see [`Worker::run`](crate::Worker::run). The
    /// handler is as [`Worker::queue`](crate::Worker::queue) describes.
    ///
    /// # Errors
    /// The errors of [`Worker::run`](crate::Worker::run).
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// # let stop = async {};
    /// async fn rate(payload: Vec<u8>, delivery: dueq::Delivery) {
    ///     println!("{} is due: {} bytes", delivery.id(), payload.len());
    /// }
    ///
    /// orders.worker().run(rate, stop).await?;
    /// # });
    /// ```
    pub async fn run<T, M>(
        self,
        handler: impl IntoHandler<C::Value, M>,
        stop: impl Future<Output = T>,
    ) -> Result<(), Error> {
        handle::run(self.checked(handler)?, stop).await
    }

    /// Handles messages in batches until `stop` completes: see [`in_batches`].
    ///
    /// # Errors
    /// The errors of [`Worker::run`](crate::Worker::run).
    ///
    /// ```
    /// # dueq_testkit::doctest!(|client| {
    /// # let stop = async {};
    /// use dueq::Batch;
    /// use std::time::Duration;
    ///
    /// async fn index(batch: Batch<Vec<u8>>) -> anyhow::Result<()> {
    ///     println!("{} pages", batch.len());
    ///     Ok(())
    /// }
    ///
    /// let pages = client.queue("pages")?;
    /// pages.worker().run_batch(100, Duration::from_millis(200), index, stop).await?;
    /// # });
    /// ```
    pub async fn run_batch<T, H, F>(
        self,
        max: usize,
        linger: Duration,
        handler: H,
        stop: impl Future<Output = T>,
    ) -> Result<(), Error>
    where
        H: Fn(Batch<C::Value>) -> F + Send + Sync + 'static,
        F: Future + Send + 'static,
        F::Output: IntoSettlements,
    {
        self.run(in_batches(max, linger, handler), stop).await
    }

    /// Starts the worker in a task of this runtime: see [`Worker::spawn`](crate::Worker::spawn).
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if a setting is out of its range:
    /// then nothing starts.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// # async fn rate(_: dueq::Delivery) {}
    /// let worker = orders.worker().concurrency(16).spawn(rate)?;
    /// // The program does other things, and at its end:
    /// worker.shutdown().await?;
    /// # });
    /// ```
    pub fn spawn<M>(self, handler: impl IntoHandler<C::Value, M>) -> Result<WorkerHandle, Error> {
        let (defaults, layers) = (self.defaults.clone(), self.layers.clone());
        let servers = Arc::clone(self.queue.router().servers());
        let settings = self.checked(handler)?;
        Ok(handle::spawn(settings, defaults, layers, servers))
    }

    /// Checks the settings, and makes those of the node.
    fn checked<M>(self, handler: impl IntoHandler<C::Value, M>) -> Result<Settings, Error> {
        let router = self.queue.router();
        let settings = QueueSettings::new();
        let added = Added::new(router, self.queue.codec(), settings, &self.layers, handler);
        assemble::checked(router.servers(), &self.defaults, vec![added], Vec::new())
    }
}

impl<C: Codec> fmt::Debug for QueueWorker<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueWorker")
            .field("queue", &self.queue.name())
            .field("defaults", &self.defaults)
            .finish_non_exhaustive()
    }
}
