//! What a worker reports for readiness probes.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::node::state::health::{QueueState, SharedHealth};

/// After this time without an answered beat, a queue counts as not connected. A beat is sent every
/// 0.9 s.
const CONNECTED_FOR: Duration = Duration::from_secs(3);

/// The state of a worker: see [`WorkerHandle::health`](crate::WorkerHandle::health).
///
/// ```
/// # dueq_testkit::doctest!(|worker| {
/// let health = worker.health();
/// if !health.is_ready() {
///     for (name, queue) in health.queues() {
///         println!("{name}: last beat {:?} ago, {:?}", queue.since_beat(), queue.error());
///     }
/// }
/// # });
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct WorkerHealth {
    is_running: bool,
    free_handlers: usize,
    /// Whether Redis answered the last step of the scan for queues; also true without patterns.
    is_scan_answered: bool,
    queues: BTreeMap<String, QueueHealth>,
}

/// The state of one queue of a worker.
#[derive(Debug, Clone)]
pub struct QueueHealth {
    since_beat: Option<Duration>,
    is_leader: bool,
    is_parked: bool,
    error: Option<Error>,
}

impl WorkerHealth {
    pub(crate) fn new(shared: &SharedHealth, is_running: bool) -> Self {
        let states = shared.snapshot();
        let now = Instant::now();
        let health = |state: QueueState| QueueHealth {
            since_beat: state.beaten.map(|beaten| now.duration_since(beaten)),
            is_leader: state.is_leader,
            is_parked: state.is_parked,
            error: state.error,
        };
        let queues = states.into_iter();
        Self {
            is_running,
            free_handlers: shared.free_handlers(),
            is_scan_answered: shared.is_scan_answered(),
            queues: queues.map(|(name, state)| (name, health(state))).collect(),
        }
    }

    /// Whether the worker runs: it was started and has not ended.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|worker| {
    /// assert!(worker.health().is_running());
    /// worker.shutdown().await?;
    /// assert!(!worker.health().is_running());
    /// # });
    /// ```
    pub fn is_running(&self) -> bool {
        self.is_running
    }

    /// Whether the worker runs, and every queue is [connected](QueueHealth::is_connected). While a
    /// worker with patterns has no queue, Redis must have answered the last step of its scan for them.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|worker| {
    /// let status = if worker.health().is_ready() { 200 } else { 503 };
    /// # let _ = status;
    /// # });
    /// ```
    pub fn is_ready(&self) -> bool {
        let is_answered = if self.queues.is_empty() {
            self.is_scan_answered
        } else {
            self.queues.values().all(QueueHealth::is_connected)
        };
        self.is_running && is_answered
    }

    /// How many handlers are free, including reserved ones. The worker updates the number whenever
    /// a handler ends while all are busy, and otherwise at least every second. In an idle worker it
    /// is the concurrency.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|worker| {
    /// println!("{} handlers are free", worker.health().free_handlers());
    /// # });
    /// ```
    pub fn free_handlers(&self) -> usize {
        self.free_handlers
    }

    /// The queues that the worker attends, by name.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|worker| {
    /// let health = worker.health();
    /// for (name, _) in health.queues().filter(|(_, queue)| queue.is_leader()) {
    ///     println!("this worker is the leader of {name}");
    /// }
    /// # });
    /// ```
    pub fn queues(&self) -> impl Iterator<Item = (&str, &QueueHealth)> {
        self.queues
            .iter()
            .map(|(name, queue)| (name.as_str(), queue))
    }

    /// The queue of this name; `None` if the worker does not attend it.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|worker| {
    /// let health = worker.health();
    /// let is_connected = health.queue("orders").is_some_and(|orders| orders.is_connected());
    /// assert!(health.queue("mails").is_none());
    /// # let _ = is_connected;
    /// # });
    /// ```
    pub fn queue(&self, name: &str) -> Option<&QueueHealth> {
        self.queues.get(name)
    }
}

impl QueueHealth {
    /// Whether Redis has replied to the last beat of this queue, within the last 3 s; for a parked
    /// queue, within a longer time.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|worker| {
    /// # let health = worker.health();
    /// # if let Some(queue) = health.queue("orders") {
    /// if !queue.is_connected() {
    ///     println!("{:?}", queue.error());
    /// }
    /// # }
    /// # });
    /// ```
    pub fn is_connected(&self) -> bool {
        let is_recent = |since: Duration| self.is_parked || since <= CONNECTED_FOR;
        self.error.is_none() && self.since_beat.is_some_and(is_recent)
    }

    /// How long ago the worker sent the last beat that Redis replied to; `None` before the first.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|worker| {
    /// # let health = worker.health();
    /// # if let Some(queue) = health.queue("orders") {
    /// if let Some(since) = queue.since_beat() {
    ///     println!("the last beat was {} ms ago", since.as_millis());
    /// }
    /// # }
    /// # });
    /// ```
    pub fn since_beat(&self) -> Option<Duration> {
        self.since_beat
    }

    /// Whether this worker is the leader of the queue.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|worker| {
    /// # let health = worker.health();
    /// # if let Some(queue) = health.queue("orders") {
    /// println!("{}", if queue.is_leader() { "leader" } else { "standby" });
    /// # }
    /// # });
    /// ```
    pub fn is_leader(&self) -> bool {
        self.is_leader
    }

    /// Whether the queue is parked: nothing happens in it, so the worker beats rarely.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|worker| {
    /// # let health = worker.health();
    /// # if let Some(queue) = health.queue("orders") {
    /// assert!(!queue.is_parked());
    /// # }
    /// # });
    /// ```
    pub fn is_parked(&self) -> bool {
        self.is_parked
    }

    /// Why the last beat failed; `None` if it succeeded.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|worker| {
    /// # let health = worker.health();
    /// # if let Some(queue) = health.queue("orders") {
    /// if let Some(error) = queue.error() {
    ///     println!("{error}");
    /// }
    /// # }
    /// # });
    /// ```
    pub fn error(&self) -> Option<&Error> {
        self.error.as_ref()
    }
}
