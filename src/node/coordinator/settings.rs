//! The settings that a node gets from its worker, and the commands that it gets while it runs.

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
    /// Set for strict order of the queues; with `None` they share handlers by their weights.
    pub(crate) strict: Option<Duration>,
    /// For how long the node may be silent about a queue in which nothing happens.
    pub(crate) parking: Duration,
    pub(crate) grace: Duration,
    pub(crate) health: Arc<SharedHealth>,
    /// Ends the grace period at once when cancelled.
    pub(crate) abort: CancellationToken,
}

/// A function that makes something for the queue of this name.
pub(crate) type ForName<T> = Arc<dyn Fn(&str) -> Result<T, Error> + Send + Sync>;

/// A pattern: the node attends the queues that match, as they are found.
#[derive(Clone)]
pub(crate) struct PatternEntry {
    pub(crate) pattern: Pattern,
    pub(crate) make: ForName<QueueEntry>,
}

/// The sender for the result of a command.
pub(crate) type CommandReply = oneshot::Sender<Result<(), Error>>;

/// A command of the worker's handle to a running node.
pub(crate) enum NodeCommand {
    Add(Box<QueueEntry>, CommandReply),
    /// Removes a queue. The reply comes when the handlers of the queue have ended and the node has
    /// left it.
    Remove(String, CommandReply),
    /// Makes the node attend a queue for pulls, unless it does so already.
    AddPulls(Box<QueueEntry>, oneshot::Sender<Result<Arc<Pulls>, Error>>),
    /// Tells the coordinator that a pull of this queue waits.
    Pulled(Arc<str>),
}
