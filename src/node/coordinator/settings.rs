//! What a node gets from its worker: its settings, and commands while it runs.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::error::Error;
use crate::node::consumers::pulls::Pulls;
use crate::node::state::health::SharedHealth;
use crate::node::state::queue::QueueEntry;
use crate::protocol::pattern::Pattern;
use crate::server::servers::Servers;

/// The settings of a worker, as [`Worker`](crate::Worker) documents them.
pub(crate) struct Settings {
    pub(crate) servers: Arc<Servers>,
    pub(crate) queues: Vec<QueueEntry>,
    pub(crate) patterns: Vec<PatternEntry>,
    pub(crate) concurrency: usize,
    /// `None`: by weights.
    pub(crate) strict: Option<Duration>,
    /// For how long the node may be silent about a queue in which nothing happens.
    pub(crate) parking: Duration,
    pub(crate) grace: Duration,
    pub(crate) health: Arc<SharedHealth>,
    /// Ends the grace period at once.
    pub(crate) abort: CancellationToken,
}

/// Makes something for the queue of this name.
pub(crate) type ForName<T> = Arc<dyn Fn(&str) -> Result<T, Error> + Send + Sync>;

/// Queues to attend as they are found.
#[derive(Clone)]
pub(crate) struct PatternEntry {
    pub(crate) pattern: Pattern,
    pub(crate) make: ForName<QueueEntry>,
}

/// Where the node reports how a command ended.
pub(crate) type CommandReply = oneshot::Sender<Result<(), Error>>;

/// A change while the node runs.
pub(crate) enum NodeCommand {
    Add(Box<QueueEntry>, CommandReply),
    /// Replied when the handlers of the queue have ended and the node has left it.
    Remove(String, CommandReply),
    /// Attends a queue for pulls, if it does not yet.
    AddPulls(Box<QueueEntry>, oneshot::Sender<Result<Arc<Pulls>, Error>>),
    /// A pull of this queue waits.
    Pulled(Arc<str>),
}
