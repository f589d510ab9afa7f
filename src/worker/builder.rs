//! The builder of a worker with any number of queues.

use std::fmt;
use std::sync::Arc;

use tower_layer::Layer;
use tower_service::Service;

use crate::client::Client;
use crate::delivery::Delivery;
use crate::error::Error;
use crate::model::codec::{BoxError, Codec};
use crate::model::settlement::Settlement;
use crate::node::coordinator::settings::Settings;
use crate::queue::Queue;
use crate::server::servers::Servers;
use crate::worker::assemble::{self, Added, AddedPattern, Layers};
use crate::worker::handle::{self, WorkerHandle};
use crate::worker::handler::IntoHandler;
use crate::worker::layer::{self, HandlerService};
use crate::worker::settings::{Defaults, QueueSettings};

/// Handles the messages of queues as they become due. A worker promotes and claims messages, runs
/// their handlers, extends the leases, settles the deliveries, and takes back leases of crashed
/// workers.
///
/// Created by [`Client::worker`]. Any number of workers in any number of processes may share a
/// queue. The queues of a worker share its handlers: see [`Share`](crate::Share). The settings
/// apply to all queues, including those added earlier, except [`layer`](Worker::layer).
///
/// Handlers run on the tokio runtime in which [`spawn`](Worker::spawn) or [`run`](Worker::run) is
/// called, each in a `tracing` span `dueq.handle`. The worker's own tasks run on a thread of their
/// own, and a second thread is its timer. So a handler that blocks a thread of the runtime delays
/// no lease and no other queue, as long as another thread of the runtime is free. More queues add
/// no threads, and no connections except in a cluster:
/// [`connections_opened`](crate::Client::connections_opened).
///
/// ```
/// # dueq_testkit::doctest!(|client| {
/// use dueq::Delivery;
/// use std::time::Duration;
///
/// async fn rate(delivery: Delivery) -> anyhow::Result<()> {
///     println!("{} is due", delivery.id());
///     Ok(())
/// }
///
/// async fn mail(payload: Vec<u8>, delivery: Delivery) -> anyhow::Result<()> {
///     println!("{} bytes to send, attempt {}", payload.len(), delivery.attempt());
///     Ok(())
/// }
///
/// let (orders, mails) = (client.queue("orders")?, client.queue("mails")?);
/// let worker = client
///     .worker()
///     .concurrency(64)
///     .lease(Duration::from_secs(30))
///     .queue(&orders, rate)
///     .queue(&mails, mail)
///     .spawn()?;
/// // The program does other things, and at its end:
/// worker.shutdown().await?;
/// # });
/// ```
#[must_use = "a worker does nothing until `spawn` or `run`"]
pub struct Worker {
    servers: Arc<Servers>,
    pub(super) defaults: Defaults,
    pub(super) layers: Layers,
    queues: Vec<Added>,
    pub(super) patterns: Vec<AddedPattern>,
}

impl Client {
    /// Makes a worker of queues of this client, which is then configured and started.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|client| {
    /// # let stop = async {};
    /// async fn rate(delivery: dueq::Delivery) {
    ///     println!("{} is due", delivery.id());
    /// }
    ///
    /// let orders = client.queue("orders")?;
    /// // Until `stop` completes, for example `tokio::signal::ctrl_c()`:
    /// client.worker().queue(&orders, rate).run(stop).await?;
    /// # });
    /// ```
    pub fn worker(&self) -> Worker {
        Worker::new(Arc::clone(self.servers()))
    }
}

impl Worker {
    fn new(servers: Arc<Servers>) -> Self {
        Self {
            servers,
            defaults: Defaults::default(),
            layers: Layers::default(),
            queues: Vec::new(),
            patterns: Vec::new(),
        }
    }

    /// Adds a queue: the worker handles its messages, with the default [`Share`](crate::Share).
    ///
    /// [`IntoHandler`] lists what a handler can be. It returns nothing, a
    /// [`Settlement`](crate::Settlement), or a `Result` of either: `Ok` acks, `Err` retries. A
    /// panic counts as a failure. If the handler settles the delivery itself, its result is
    /// ignored. Handlers must be idempotent: a message is delivered at least once, and again if its
    /// lease is lost (see [`Delivery::lost`]).
    ///
    /// ```
    /// # dueq_testkit::doctest!(|client| {
    /// let orders = client.queue("orders")?;
    /// let worker = client
    ///     .worker()
    ///     .queue(&orders, |delivery: dueq::Delivery| async move {
    ///         println!("{} is due", delivery.id());
    ///     })
    ///     .spawn()?;
    /// # worker.shutdown().await?;
    /// # });
    /// ```
    pub fn queue<C: Codec, M>(
        self,
        queue: &Queue<C>,
        handler: impl IntoHandler<C::Value, M>,
    ) -> Self {
        self.queue_with(queue, QueueSettings::new(), handler)
    }

    /// Adds a queue as [`queue`](Worker::queue) does, with settings for this queue only: a
    /// [`Share`](crate::Share) or [`QueueSettings`].
    ///
    /// ```
    /// # dueq_testkit::doctest!(|client| {
    /// use dueq::{Delivery, Share};
    ///
    /// async fn rate(_: Delivery) {}
    /// async fn mail(_: Delivery) {}
    ///
    /// let (orders, mails) = (client.queue("orders")?, client.queue("mails")?);
    /// let worker = client
    ///     .worker()
    ///     .concurrency(64)
    ///     .queue_with(&orders, Share::weight(6).reserve(2), rate)
    ///     .queue_with(&mails, Share::weight(1).max(16), mail)
    ///     .spawn()?;
    /// # worker.shutdown().await?;
    /// # });
    /// ```
    pub fn queue_with<C: Codec, M>(
        mut self,
        queue: &Queue<C>,
        settings: impl Into<QueueSettings>,
        handler: impl IntoHandler<C::Value, M>,
    ) -> Self {
        let settings = settings.into();
        let added = Added::new(
            queue.router(),
            queue.codec(),
            settings,
            &self.layers,
            handler,
        );
        self.queues.push(added);
        self
    }

    /// Wraps the handlers of all queues that are added after this call into a `tower` layer:
    /// time-outs, limits, tracing and more of the ecosystem.
    ///
    /// The request is a [`Delivery`](crate::Delivery), and the response the
    /// [`Settlement`](crate::Settlement) that the handler asks for. An error of the layer becomes a
    /// retry. The first layer is the outermost. Each queue gets its own service. To an outer layer
    /// the inner service always seems ready, so combine a load shedder with the limit that it
    /// watches in one layer, by `tower::ServiceBuilder`. A worker without layers has no extra cost
    /// per delivery.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|client| {
    /// use dueq::Delivery;
    /// use std::time::Duration;
    /// use tower::limit::ConcurrencyLimitLayer;
    /// use tower::timeout::TimeoutLayer;
    ///
    /// async fn rate(_: Delivery) {}
    ///
    /// let orders = client.queue("orders")?;
    /// let worker = client
    ///     .worker()
    ///     .layer(ConcurrencyLimitLayer::new(8))
    ///     .layer(TimeoutLayer::new(Duration::from_secs(10)))
    ///     .queue(&orders, rate)
    ///     .spawn()?;
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

    /// Starts the worker in a task of this runtime.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if a setting is out of its
    /// range, if a queue was added twice or if no queue was added: then nothing starts. Errors of
    /// the server, such as a missing right, are returned by [`WorkerHandle::wait`].
    ///
    /// # Panics
    /// Outside of a tokio runtime, as `tokio::spawn`.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|client| {
    /// # async fn rate(_: dueq::Delivery) {}
    /// let orders = client.queue("orders")?;
    /// let worker = client.worker().queue(&orders, rate).spawn()?;
    /// // The program does other things, and at its end:
    /// worker.shutdown().await?;
    /// # });
    /// ```
    pub fn spawn(self) -> Result<WorkerHandle, Error> {
        let (defaults, layers, servers) = (
            self.defaults.clone(),
            self.layers.clone(),
            Arc::clone(&self.servers),
        );
        let settings = self.checked()?;
        Ok(handle::spawn(settings, defaults, layers, servers))
    }

    /// Handles messages until `stop` completes. The output of `stop` is ignored, even an `Err`. To
    /// stop for one of several reasons and know which, use [`spawn`](Worker::spawn),
    /// `tokio::select!` and [`WorkerHandle::shutdown`].
    ///
    /// After `stop` the worker claims no more, lets the handlers finish within the grace period,
    /// releases the other deliveries, and returns when every settlement has its reply.
    ///
    /// While Redis is away, the worker keeps trying without a limit, and continues when Redis is
    /// back. Dropping the future stops the worker at once: the handlers are dropped and their
    /// deliveries released.
    ///
    /// # Errors
    /// At the start [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) for a setting out
    /// of range. If no queue can be attended and there is no pattern:
    /// [`ErrorKind::Denied`](crate::ErrorKind::Denied) for a missing right, or
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) for a queue or a server that
    /// cannot be used. If only some of the queues are refused, the worker serves the others, and
    /// reports each refusal by the event `dueq.queue_refused`.
    ///
    /// Later [`ErrorKind::Internal`](crate::ErrorKind::Internal) if a task of the worker itself
    /// panics: the error names the task, and the handlers are dropped and their deliveries released
    /// before it returns. [`ErrorKind::Timeout`](crate::ErrorKind::Timeout) if a handler blocks its
    /// thread for 15 s after the grace period.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|client| {
    /// # async fn rate(_: dueq::Delivery) {}
    /// # let stop = async {};
    /// let orders = client.queue("orders")?;
    /// // `stop` is any future, for example `tokio::signal::ctrl_c()`.
    /// client.worker().queue(&orders, rate).run(stop).await?;
    /// # });
    /// ```
    pub async fn run<T>(self, stop: impl Future<Output = T>) -> Result<(), Error> {
        handle::run(self.checked()?, stop).await
    }

    /// Checks the settings, and makes those of the node.
    fn checked(self) -> Result<Settings, Error> {
        assemble::checked(&self.servers, &self.defaults, self.queues, self.patterns)
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("defaults", &self.defaults)
            .field("queues", &self.queues.len())
            .finish_non_exhaustive()
    }
}
