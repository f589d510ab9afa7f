//! Runs a worker, and has the handle of a worker that runs in a task.

use std::fmt;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::error::{Applied, Error, ErrorKind};
use crate::model::codec::Codec;
use crate::node::coordinator::run as node;
use crate::node::coordinator::settings::{NodeCommand, Settings};
use crate::node::state::health::SharedHealth;
use crate::queue::Queue;
use crate::server::servers::Servers;
use crate::worker::assemble::{Added, Layers};
use crate::worker::handler::IntoHandler;
use crate::worker::health::WorkerHealth;
use crate::worker::settings::{Defaults, QueueSettings};

/// A running [`Worker`](crate::Worker). Cheap to clone: clones are handles of the same worker.
/// Dropping it does not stop the worker.
///
/// ```
/// # dueq_testkit::doctest!(|client| {
/// # async fn rate(_: dueq::Delivery) {}
/// let orders = client.queue("orders")?;
/// let worker = client.worker().queue(&orders, rate).spawn()?;
/// // The program does other things, and at its end:
/// worker.shutdown().await?;
/// assert!(!worker.health().is_running());
/// # });
/// ```
#[derive(Clone)]
pub struct WorkerHandle(Arc<Inner>);

struct Inner {
    commands: mpsc::UnboundedSender<NodeCommand>,
    stop: CancellationToken,
    abort: CancellationToken,
    result: watch::Receiver<Option<Result<(), Error>>>,
    health: Arc<SharedHealth>,
    servers: Arc<Servers>,
    defaults: Defaults,
    layers: Layers,
}

/// Runs a worker in the caller's task.
pub(crate) async fn run<T>(settings: Settings, stop: impl Future<Output = T>) -> Result<(), Error> {
    // No handle exists that could send commands, but the channel must stay open for the node.
    let (_commands, received) = mpsc::unbounded_channel();
    let stop = async {
        stop.await;
    };
    // Boxed: rustc's limit on nested futures would otherwise reach callers with deep futures.
    Box::pin(node::run(settings, received, stop)).await
}

/// Runs a worker in a task of its own.
pub(crate) fn spawn(
    settings: Settings,
    defaults: Defaults,
    layers: Layers,
    servers: Arc<Servers>,
) -> WorkerHandle {
    let (commands, received) = mpsc::unbounded_channel();
    let stop = CancellationToken::new();
    let (report, result) = watch::channel(None);
    let (abort, health) = (settings.abort.clone(), Arc::clone(&settings.health));
    let (stopped, aborted, kept) = (stop.clone(), abort.clone(), commands.clone());
    tokio::spawn(async move {
        let stop = async {
            tokio::select! {
                () = stopped.cancelled() => {}
                () = aborted.cancelled() => {}
            }
        };
        let result = node::run(settings, received, stop).await;
        // Kept because the channel must stay open for the node even if all handles are dropped.
        drop(kept);
        report.send_replace(Some(result));
    });
    WorkerHandle(Arc::new(Inner {
        commands,
        stop,
        abort,
        result,
        health,
        servers,
        defaults,
        layers,
    }))
}

impl WorkerHandle {
    /// Stops the worker: it claims no more, lets the handlers finish within the grace period,
    /// releases the other deliveries, and returns when every settlement has its reply.
    ///
    /// It may be called repeatedly, also after the end, and returns the same result each time. If
    /// the future is dropped while it waits, the worker still stops.
    ///
    /// # Errors
    /// The errors of [`wait`](WorkerHandle::wait).
    ///
    /// ```
    /// # dueq_testkit::doctest!(|worker| {
    /// worker.shutdown().await?;
    /// # worker.shutdown().await?;
    /// # worker.wait().await?;
    /// # });
    /// ```
    pub async fn shutdown(&self) -> Result<(), Error> {
        self.0.stop.cancel();
        self.wait().await
    }

    /// Stops the worker without a grace period: the handlers are dropped, and their deliveries are
    /// released. [`wait`](WorkerHandle::wait) returns when that is done.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|worker| {
    /// worker.abort();
    /// worker.wait().await?;
    /// # });
    /// ```
    pub fn abort(&self) {
        self.0.abort.cancel();
    }

    /// Waits for the end of the worker. It is cancel safe. It may be called repeatedly, also after
    /// the end, and returns the same result each time.
    ///
    /// # Errors
    /// The errors of [`Worker::run`](crate::Worker::run), and
    /// [`ErrorKind::Internal`] if the runtime of the worker has ended.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|worker| {
    /// # worker.abort();
    /// if let Err(error) = worker.wait().await {
    ///     eprintln!("the worker ended: {error}");
    /// }
    /// # });
    /// ```
    pub async fn wait(&self) -> Result<(), Error> {
        let mut result = self.0.result.clone();
        match result.wait_for(Option::is_some).await {
            Ok(result) => result.clone().unwrap_or(Ok(())),
            Err(_) => Err(ended("the runtime of the worker has ended")),
        }
    }

    /// The state of the worker and of each queue that it attends, for readiness probes. Makes no
    /// call.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|worker| {
    /// let status = if worker.health().is_ready() { 200 } else { 503 };
    /// # assert!(status == 200 || status == 503);
    /// # });
    /// ```
    pub fn health(&self) -> WorkerHealth {
        let is_running = self.0.result.borrow().is_none() && self.0.result.has_changed().is_ok();
        WorkerHealth::new(&self.0.health, is_running)
    }

    /// Adds a queue while the worker runs, with the settings and layers of the worker.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if the worker attends the queue already or a setting is out of
    /// its range, and [`ErrorKind::Unavailable`] if the worker has ended.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|client, worker| {
    /// # async fn mail(_: dueq::Delivery) {}
    /// worker.add(&client.queue("mails")?, mail).await?;
    /// // The worker attends the queue already:
    /// assert!(worker.add(&client.queue("mails")?, mail).await.is_err());
    /// # });
    /// ```
    pub async fn add<C: Codec, M>(
        &self,
        queue: &Queue<C>,
        handler: impl IntoHandler<C::Value, M>,
    ) -> Result<(), Error> {
        self.add_with(queue, QueueSettings::new(), handler).await
    }

    /// Adds a queue as [`add`](WorkerHandle::add) does, with settings for this queue only.
    ///
    /// # Errors
    /// The errors of [`add`](WorkerHandle::add).
    ///
    /// ```
    /// # dueq_testkit::doctest!(|client, worker| {
    /// # async fn mail(_: dueq::Delivery) {}
    /// use dueq::Share;
    ///
    /// worker.add_with(&client.queue("mails")?, Share::weight(3), mail).await?;
    /// # });
    /// ```
    pub async fn add_with<C: Codec, M>(
        &self,
        queue: &Queue<C>,
        settings: impl Into<QueueSettings>,
        handler: impl IntoHandler<C::Value, M>,
    ) -> Result<(), Error> {
        let inner = &*self.0;
        let (router, settings) = (queue.router(), settings.into());
        let added = Added::new(router, queue.codec(), settings, &inner.layers, handler);
        let entry = added.checked(&inner.defaults, &inner.servers)?;
        self.command(|reply| NodeCommand::Add(Box::new(entry), reply))
            .await
    }

    /// Removes the queue of this name while the worker runs: takes no more of its messages, and
    /// returns when its handlers have ended. A pattern that matches the name does not bring the
    /// queue back; [`add`](WorkerHandle::add) does.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if the worker does not attend the queue, and
    /// [`ErrorKind::Unavailable`] if the worker has ended.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|worker| {
    /// worker.remove("orders").await?;
    /// assert!(worker.remove("mails").await.is_err());
    /// # });
    /// ```
    pub async fn remove(&self, name: &str) -> Result<(), Error> {
        self.command(|reply| NodeCommand::Remove(name.to_owned(), reply))
            .await
    }

    /// Sends a command that has no reply.
    pub(super) fn tell(&self, command: NodeCommand) {
        // The send fails if the worker has ended.
        let _ = self.0.commands.send(command);
    }

    /// Stops the worker when the guard is dropped.
    pub(super) fn stop_on_drop(&self) -> DropGuard {
        self.0.stop.clone().drop_guard()
    }

    /// The error with which the worker has ended, if it has.
    pub(super) fn failure(&self) -> Option<Error> {
        self.0.result.borrow().clone()?.err()
    }

    pub(super) async fn command<T>(
        &self,
        make: impl FnOnce(oneshot::Sender<Result<T, Error>>) -> NodeCommand,
    ) -> Result<T, Error> {
        let (reply, replied) = oneshot::channel();
        let unavailable = || {
            let message = "the worker has ended, or is about to";
            Error::new(ErrorKind::Unavailable, Applied::No, message)
        };
        self.0
            .commands
            .send(make(reply))
            .map_err(|_| unavailable())?;
        tokio::select! {
            reply = replied => reply.map_err(|_| unavailable())?,
            _ = self.wait() => Err(unavailable()),
        }
    }
}

fn ended(message: &str) -> Error {
    Error::new(ErrorKind::Internal, Applied::Unknown, message)
}

impl fmt::Debug for WorkerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerHandle")
            .field("health", &self.health())
            .finish_non_exhaustive()
    }
}
