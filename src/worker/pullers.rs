//! A node that attends queues for pulls, without handlers.

use std::fmt;
use std::sync::Arc;

use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::client::Client;
use crate::error::Error;
use crate::model::codec::Codec;
use crate::node::consumers::consumer::Consumer;
use crate::node::consumers::pulls::Pulls;
use crate::node::coordinator::settings::{NodeCommand, Settings};
use crate::node::state::queue::QueueEntry;
use crate::node::state::shares::ShareSettings;
use crate::queue::Queue;
use crate::router::Router;
use crate::server::servers::Servers;
use crate::worker::assemble::Layers;
use crate::worker::handle::{self, WorkerHandle};
use crate::worker::health::WorkerHealth;
use crate::worker::puller::Puller;
use crate::worker::settings::Defaults;

/// The concurrency of the node, which runs no handlers: only pulls limit what it claims.
const CONCURRENCY: usize = 1 << 20;

/// A node that attends queues for pulls: it promotes, takes expired leases back and gets wake-up
/// tokens as a [`Worker`](crate::Worker) does, and claims only what a [pull](Puller::pull) asks for.
/// For programs that hand messages on, such as a server for consumers in other languages.
///
/// Created by [`Client::pullers`]; for a single queue, [`Queue::puller`] is shorter. It costs two
/// threads and the connections of a worker; a queue without pulls costs as much as with an idle
/// worker. Cheap to clone: clones are the same node. The node ends with
/// [`shutdown`](Pullers::shutdown), or when its last clone and the last [`Puller`] of it are
/// dropped.
///
/// ```
/// # dueq_testkit::doctest!(|client| {
/// use std::time::Duration;
///
/// let pullers = client.pullers();
/// let orders = pullers.attend(&client.queue("orders")?).await?;
/// let mails = pullers.attend(&client.queue("mails")?).await?;
/// let (lease, wait) = (Duration::from_secs(30), Duration::from_millis(20));
/// let (orders, mails) = tokio::join!(orders.pull(10, lease, wait), mails.pull(10, lease, wait));
/// assert!(orders?.is_empty() && mails?.is_empty());
/// pullers.shutdown().await?;
/// # });
/// ```
#[derive(Clone)]
pub struct Pullers(Arc<Node>);

struct Node {
    worker: WorkerHandle,
    servers: Arc<Servers>,
    /// Stops the node when the last handle is dropped.
    _stop: DropGuard,
}

impl Client {
    /// Starts a node for pulls that attends no queue yet: see [`Pullers`].
    ///
    /// # Panics
    /// Outside of a tokio runtime, as `tokio::spawn`.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|client| {
    /// let pullers = client.pullers();
    /// let puller = pullers.attend(&client.queue("orders")?).await?;
    /// # drop(puller);
    /// pullers.shutdown().await?;
    /// # });
    /// ```
    pub fn pullers(&self) -> Pullers {
        Pullers::spawn(self.servers(), Vec::new())
    }
}

impl Pullers {
    pub(super) fn spawn(servers: &Arc<Servers>, queues: Vec<QueueEntry>) -> Self {
        let defaults = Defaults {
            concurrency: CONCURRENCY,
            ..Defaults::default()
        };
        let settings = Settings {
            servers: Arc::clone(servers),
            queues,
            patterns: Vec::new(),
            concurrency: CONCURRENCY,
            strict: None,
            parking: defaults.parking,
            grace: defaults.grace,
            health: Arc::default(),
            abort: CancellationToken::new(),
        };
        let worker = handle::spawn(settings, defaults, Layers::default(), Arc::clone(servers));
        Self(Arc::new(Node {
            _stop: worker.stop_on_drop(),
            worker,
            servers: Arc::clone(servers),
        }))
    }

    pub(super) fn worker(&self) -> &WorkerHandle {
        &self.0.worker
    }

    /// Attends this queue from now on, unless the node does so already. Until
    /// [`leave`](Puller::leave), the queue costs as much as with an idle worker.
    ///
    /// A dropped future may have attended the queue: attend it again to leave it.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if the queue belongs to another
    /// client, or the node is still leaving it.
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) if the node has ended.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|client| {
    /// let pullers = client.pullers();
    /// let orders = pullers.attend(&client.queue("orders")?).await?;
    /// orders.leave().await?;
    /// # pullers.shutdown().await?;
    /// # });
    /// ```
    pub async fn attend<C: Codec>(&self, queue: &Queue<C>) -> Result<Puller, Error> {
        let router = queue.router();
        if !Arc::ptr_eq(router.servers(), &self.0.servers) {
            let name = queue.name();
            let message = format!("queue {name}: it was made by another client than the puller");
            return Err(Error::invalid(message));
        }
        let (entry, _) = entry(router);
        let add = |reply: oneshot::Sender<_>| NodeCommand::AddPulls(Box::new(entry), reply);
        let pulls = self.0.worker.command(add).await?;
        Ok(Puller::new(router, pulls, self.clone()))
    }

    /// Ends the node: waiting pulls return no message, messages that no caller has received are
    /// released, and the node leaves its queues. Messages that were pulled stay leased.
    ///
    /// It may be called repeatedly, and returns the same result each time. If the future is dropped,
    /// the node still ends.
    ///
    /// # Errors
    /// The errors of [`WorkerHandle::wait`](crate::WorkerHandle::wait).
    ///
    /// ```
    /// # dueq_testkit::doctest!(|client| {
    /// let pullers = client.pullers();
    /// pullers.shutdown().await?;
    /// assert!(!pullers.health().is_running());
    /// # });
    /// ```
    pub async fn shutdown(&self) -> Result<(), Error> {
        self.0.worker.shutdown().await
    }

    /// The state of the node and of each queue that it attends. Makes no call.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|client| {
    /// let pullers = client.pullers();
    /// assert!(pullers.health().is_running());
    /// # pullers.shutdown().await?;
    /// # });
    /// ```
    pub fn health(&self) -> WorkerHealth {
        self.0.worker.health()
    }
}

/// Makes the node's entry of the queue for pulls. Also returns the pulls.
pub(super) fn entry(router: &Arc<Router>) -> (QueueEntry, Arc<Pulls>) {
    let defaults = Defaults::default();
    let pulls = Arc::<Pulls>::default();
    let entry = QueueEntry {
        router: Arc::clone(router),
        consumer: Consumer::Pulls(Arc::clone(&pulls)),
        share: ShareSettings {
            weight: 1,
            reserve: 0,
            max: usize::MAX,
        },
        // Not used: each pull has its own lease.
        lease: defaults.lease,
        retry: defaults.retry,
        time_limit: None,
    };
    (entry, pulls)
}

impl fmt::Debug for Pullers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pullers")
            .field("health", &self.health())
            .finish_non_exhaustive()
    }
}
