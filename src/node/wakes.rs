//! Waits on the wake-up lists of a node's queues, instead of polling: one blocking pop for all.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::node::queue_number::QueueNumber;
use crate::server::blocking::BlockingPop;
use crate::server::connector::Connector;
use crate::server::patience::reconnect_delays;
use crate::telemetry::events;

/// How long a list is left out that the server refuses to read.
const REFUSED_PAUSE: Duration = Duration::from_secs(30);

/// What a wait ended with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WakeUp {
    /// A token of this queue came.
    Token(QueueNumber),
    /// The pop failed and may have lost a token.
    Failed,
}

/// A pop in flight. It returns the connection, and the index of the list whose token came.
type Pending = Pin<Box<dyn Future<Output = (BlockingPop, Popped)> + Send>>;

enum Popped {
    Token(Option<usize>),
    /// The pop failed. For each list: whether the server refuses to read it.
    Failed(Error, Vec<bool>),
}

/// The wake-up list of one queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WakeUpList {
    pub(crate) queue: QueueNumber,
    pub(crate) queue_name: String,
    pub(crate) key: String,
}

/// The wake-up lists, as a node waits on them.
pub(crate) struct WakeUps {
    connector: Arc<Connector>,
    /// The lists of the next pop.
    lists: Vec<WakeUpList>,
    /// The lists of the pop in flight.
    in_flight: Vec<WakeUpList>,
    pending: Option<Pending>,
    /// The connection, while no pop is in flight.
    idle: Option<BlockingPop>,
    /// Until when to leave a list out.
    refused: HashMap<QueueNumber, Instant>,
    /// The user may pop from one list at a time only, because each is granted by another rule.
    one_at_a_time: bool,
    failures: u32,
}

impl WakeUps {
    pub(crate) fn new(connector: Arc<Connector>) -> Self {
        Self {
            connector,
            lists: Vec::new(),
            in_flight: Vec::new(),
            pending: None,
            idle: None,
            refused: HashMap::new(),
            one_at_a_time: false,
            failures: 0,
        }
    }

    /// The lists that the next pop covers. The pop in flight, if any, ends within about 2 s.
    pub(crate) fn listen(&mut self, lists: Vec<WakeUpList>) {
        self.lists = lists;
    }

    /// Whether the pop in flight covers the list of this queue, or the next one if none is.
    pub(crate) fn covers(&self, queue: QueueNumber) -> bool {
        let lists = if self.pending.is_some() {
            &self.in_flight
        } else {
            &self.lists
        };
        let covered = if self.one_at_a_time { 1 } else { lists.len() };
        lists
            .iter()
            .filter(|list| !self.refused.contains_key(&list.queue))
            .take(covered)
            .any(|list| list.queue == queue)
    }

    /// Whether a pop is in flight, which may take a token.
    pub(crate) fn is_waiting(&self) -> bool {
        self.pending.is_some()
    }

    /// Completes when there may be work. Pends while there are no lists.
    ///
    /// Cancel safe: a dropped wait stays in flight, and the next call continues it. After dropping
    /// `WakeUps`, return a token to each list, because the pop in flight may take one.
    pub(crate) async fn wait(&mut self) -> WakeUp {
        loop {
            if self.pending.is_none() {
                self.start();
            }
            let Some(pending) = &mut self.pending else {
                return std::future::pending().await;
            };
            let (connection, popped) = pending.await;
            self.pending = None;
            self.idle = Some(connection);
            match popped {
                Popped::Token(None) => self.failures = 0,
                Popped::Token(Some(index)) => {
                    self.failures = 0;
                    if let Some(list) = self.in_flight.get(index) {
                        let queue = list.queue;
                        self.pass(queue);
                        return WakeUp::Token(queue);
                    }
                }
                Popped::Failed(error, refused) => {
                    self.failed(&error, &refused);
                    return WakeUp::Failed;
                }
            }
        }
    }

    /// Starts a pop over the lists, if there are any.
    fn start(&mut self) {
        let now = Instant::now();
        self.refused.retain(|_, until| now < *until);
        let refused = &self.refused;
        let readable = self.lists.iter();
        let readable = readable.filter(|list| !refused.contains_key(&list.queue));
        let most = if self.one_at_a_time { 1 } else { usize::MAX };
        self.in_flight = readable.take(most).cloned().collect();
        if self.in_flight.is_empty() {
            return;
        }
        let keys: Vec<_> = self.in_flight.iter().map(|list| list.key.clone()).collect();
        let connector = &self.connector;
        let idle = self.idle.take();
        let mut pop = idle.unwrap_or_else(|| BlockingPop::new(Arc::clone(connector)));
        let pause =
            (self.failures > 0).then(|| reconnect_delays().delay(self.failures, fastrand::f64()));
        self.pending = Some(Box::pin(async move {
            if let Some(pause) = pause {
                tokio::time::sleep(pause).await;
            }
            let popped = match pop.token(&keys).await {
                Ok(index) => Popped::Token(index),
                Err(error) if error.code().is_some() && keys.len() > 1 => {
                    // One list may be to blame, such as a key of another type.
                    let refusals = pop.refusals(&keys).await.unwrap_or_default();
                    Popped::Failed(error, refusals.iter().map(Option::is_some).collect())
                }
                Err(error) => Popped::Failed(error, Vec::new()),
            };
            (pop, popped)
        }));
    }

    /// Redis serves the first list that has a token: the list served last goes to the end.
    fn pass(&mut self, queue: QueueNumber) {
        if !self.one_at_a_time
            && let Some(index) = self.lists.iter().position(|list| list.queue == queue)
        {
            self.lists.rotate_left(index + 1);
        }
    }

    fn failed(&mut self, error: &Error, refused: &[bool]) {
        self.failures = self.failures.saturating_add(1);
        let until = Instant::now() + REFUSED_PAUSE;
        let mut is_known = false;
        for (list, _) in self.in_flight.iter().zip(refused).filter(|(_, is)| **is) {
            is_known = true;
            events::wake_up_failed(&list.queue_name, error);
            self.refused.insert(list.queue, until);
        }
        if is_known {
            self.failures = 0;
            return;
        }
        if let [first, rest @ ..] = &self.in_flight[..] {
            events::wake_up_failed(&first.queue_name, error);
            // Each list can be read, but not all in one command: different rules grant them.
            self.one_at_a_time |= !rest.is_empty() && error.code() == Some("NOPERM");
        }
    }
}
