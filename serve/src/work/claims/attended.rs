//! Keeps this server attending queues for claims: from the first claim of a queue until there was
//! none for some minutes. One node of the library attends all of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use dueq::claims::{Puller, Pullers};
use dueq::{Client, Queue};
use tokio::time::{Instant, sleep_until, timeout};

use crate::edge::problem::{Code, Problem};

/// The time after its last claim for which a queue is still attended.
const IDLE: Duration = Duration::from_secs(300);
/// The most attended queues. It equals the most claims, so that each claim finds room.
const MAX_QUEUES: usize = 512;
/// The most queues that the node may be leaving, in addition to the attended ones.
const MAX_LEAVING: usize = 64;
/// The longest time that the node may take to leave a queue. Then a new node replaces it. A claim
/// waits for twice as long.
const LEAVE_LIMIT: Duration = Duration::from_secs(5);

/// The queues that this server attends.
pub(crate) struct Attended {
    client: Client,
    idle: Duration,
    max_queues: usize,
    /// The longest time that the node may take to leave a queue.
    leave_limit: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The node; it starts with the first claim.
    node: Option<Pullers>,
    queues: HashMap<Arc<str>, Entry>,
    /// Whether a task runs that leaves idle queues.
    is_watched: bool,
    is_ended: bool,
}

struct Entry {
    slot: Arc<Slot>,
    /// The number of claims that use the queue now.
    claims: usize,
    last_claim: Instant,
    is_leaving: bool,
}

/// The puller of a queue; `None` before the node attends the queue. Locked while the node starts to
/// attend the queue, and while it leaves it.
type Slot = tokio::sync::Mutex<Option<Puller>>;

/// Kept by one claim: while it exists, the node does not leave the queue.
pub(crate) struct Attention {
    attended: Arc<Attended>,
    queue: Arc<str>,
}

impl Attended {
    pub(crate) fn new(client: Client) -> Arc<Self> {
        Self::with_limits(client, IDLE, MAX_QUEUES, LEAVE_LIMIT)
    }

    pub(super) fn with_limits(
        client: Client,
        idle: Duration,
        max_queues: usize,
        leave_limit: Duration,
    ) -> Arc<Self> {
        Arc::new(Self {
            client,
            idle,
            max_queues,
            leave_limit,
            state: Mutex::default(),
        })
    }

    /// Whether the queue is attended already.
    pub(crate) fn knows(&self, queue: &str) -> bool {
        self.lock().queues.contains_key(queue)
    }

    /// Begins a claim of this queue.
    pub(crate) fn attention(self: &Arc<Self>, queue: &str) -> Result<Attention, Problem> {
        let mut state = self.lock();
        if state.is_ended {
            return Err(Problem::new(Code::Stopping, "the server has stopped"));
        }
        if !state.queues.contains_key(queue) && state.queues.len() >= self.max_queues {
            if state.queues.len() >= self.max_queues + MAX_LEAVING {
                let detail = "as many queues are attended as may be; claim again later";
                return Err(Problem::new(Code::Busy, detail).retry_after_s(5));
            }
            if let Some(oldest) = state.oldest() {
                tokio::spawn(Arc::clone(self).leave(oldest));
            }
        }
        let queue: Arc<str> = queue.into();
        let entry = state
            .queues
            .entry(Arc::clone(&queue))
            .or_insert_with(|| Entry {
                slot: Arc::default(),
                claims: 0,
                last_claim: Instant::now(),
                is_leaving: false,
            });
        entry.claims += 1;
        if !std::mem::replace(&mut state.is_watched, true) {
            tokio::spawn(watch(Arc::downgrade(self)));
        }
        Ok(Attention {
            attended: Arc::clone(self),
            queue,
        })
    }

    /// Drops the node if it has ended, so that the next claim starts a new one.
    pub(crate) fn check_node(&self) {
        self.lock().check_node();
    }

    /// The number of the node's handlers that no claim uses; `None` before the first claim. Without
    /// a claim in flight it is all of them.
    pub(crate) fn free_handlers(&self) -> Option<usize> {
        let state = self.lock();
        let node = state.node.as_ref()?;
        Some(node.health().free_handlers())
    }

    /// Ends the node. Must be called when no claim runs.
    pub(crate) async fn end(&self) {
        let node = {
            let mut state = self.lock();
            state.is_ended = true;
            state.queues.clear();
            state.node.take()
        };
        if let Some(node) = node
            && let Err(error) = node.shutdown().await
        {
            tracing::debug!(name: "dueq_serve.node_failed", %error, "the node for claims ended with an error");
        }
    }

    /// The running node; starts one if there is none.
    fn node(&self) -> Result<Pullers, Problem> {
        let mut state = self.lock();
        if state.is_ended {
            return Err(Problem::new(Code::Stopping, "the server has stopped"));
        }
        state.check_node();
        let node = state.node.get_or_insert_with(|| self.client.pullers());
        Ok(node.clone())
    }

    /// Makes the node leave a queue that no claim uses. A claim that comes meanwhile attends the
    /// queue again.
    async fn leave(self: Arc<Self>, queue: Arc<str>) {
        let slot = match self.lock().queues.get(&queue) {
            Some(entry) => Arc::clone(&entry.slot),
            None => return,
        };
        let mut puller = slot.lock().await;
        let is_used = {
            let mut state = self.lock();
            let entry = state.queues.get_mut(&queue);
            entry.is_some_and(|entry| {
                entry.is_leaving = entry.claims == 0;
                !entry.is_leaving
            })
        };
        if is_used {
            return;
        }
        if let Some(puller) = puller.take() {
            match timeout(self.leave_limit, puller.leave()).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::debug!(name: "dueq_serve.not_left", queue = &*queue, %error, "the node did not attend the queue any more");
                }
                Err(_) => {
                    tracing::warn!(name: "dueq_serve.node_replaced", queue = &*queue, limit = ?self.leave_limit, "the node did not leave the queue in time: claims begin another node");
                    self.lock().replace(&slot);
                }
            }
        }
        let mut state = self.lock();
        if let Some(entry) = state.queues.get_mut(&queue) {
            entry.is_leaving = false;
            // A new node may attend the queue by now: then it leaves the queue later.
            if entry.claims == 0 && Arc::ptr_eq(&entry.slot, &slot) {
                state.queues.remove(&queue);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Drops the node, and the pullers that belong to it, if it has ended.
    fn check_node(&mut self) {
        let has_ended = |node: &Pullers| !node.health().is_running();
        if self.node.as_ref().is_some_and(has_ended) {
            self.forget_node();
        }
    }

    /// Drops the node: the next claim starts a new one. The old one ends with its last claim.
    fn forget_node(&mut self) {
        self.node = None;
        for entry in self.queues.values_mut() {
            entry.slot = Arc::default();
        }
    }

    /// Drops the node to which this slot belongs.
    fn replace(&mut self, slot: &Arc<Slot>) {
        let mut entries = self.queues.values();
        if entries.any(|entry| Arc::ptr_eq(&entry.slot, slot)) {
            self.forget_node();
        }
    }

    /// The queue whose last claim is the longest ago, among those that no claim uses.
    fn oldest(&mut self) -> Option<Arc<str>> {
        let unused = self.queues.iter_mut();
        let unused = unused.filter(|(_, entry)| entry.claims == 0 && !entry.is_leaving);
        let (queue, entry) = unused.min_by_key(|(_, entry)| entry.last_claim)?;
        // A concurrent claim of a further queue then picks another queue to leave.
        entry.is_leaving = true;
        Some(Arc::clone(queue))
    }

    /// The unused queues whose last claim is at least `idle` ago, and the instant at which the next
    /// one becomes idle.
    fn idle(&mut self, idle: Duration) -> (Vec<Arc<str>>, Option<Instant>) {
        let now = Instant::now();
        let (mut leaving, mut next) = (Vec::new(), None);
        for (queue, entry) in &mut self.queues {
            let end = match entry.claims {
                0 => entry.last_claim + idle,
                _ => now + idle,
            };
            if end <= now && !entry.is_leaving {
                entry.is_leaving = true;
                leaving.push(Arc::clone(queue));
            } else if end > now {
                next = Some(next.map_or(end, |next: Instant| next.min(end)));
            }
        }
        (leaving, next)
    }
}

/// Makes the node leave idle queues, until no queue is attended.
async fn watch(attended: Weak<Attended>) {
    loop {
        let next = {
            let Some(attended) = attended.upgrade() else {
                return;
            };
            let mut state = attended.lock();
            if state.queues.is_empty() {
                state.is_watched = false;
                return;
            }
            let (leaving, next) = state.idle(attended.idle);
            drop(state);
            for queue in leaving {
                tokio::spawn(Arc::clone(&attended).leave(queue));
            }
            next.unwrap_or_else(|| Instant::now() + attended.idle)
        };
        sleep_until(next).await;
    }
}

impl Attention {
    /// Another use of the same queue, for a task of this claim.
    fn another(&self) -> Self {
        if let Some(entry) = self.attended.lock().queues.get_mut(&self.queue) {
            entry.claims += 1;
        }
        Self {
            attended: Arc::clone(&self.attended),
            queue: Arc::clone(&self.queue),
        }
    }

    /// The current slot of the queue. A new node has new slots.
    fn slot(&self) -> Arc<Slot> {
        let state = self.attended.lock();
        let entry = state.queues.get(&self.queue);
        entry.map_or_else(Arc::default, |entry| Arc::clone(&entry.slot))
    }

    /// The puller of the queue. If the node does not attend the queue yet, it begins to.
    pub(crate) async fn puller(&self, queue: &Queue) -> Result<Puller, Problem> {
        if let Ok(slot) = self.slot().try_lock()
            && let Some(puller) = &*slot
        {
            return Ok(puller.clone());
        }
        // In a task: if this future were dropped half-way, the node would attend the queue forever.
        let (own, queue) = (self.another(), queue.clone());
        let attend = tokio::spawn(async move {
            loop {
                // Get the node first: if it is a new one, the slot is new too.
                let (node, slot) = (own.attended.node()?, own.slot());
                let mut puller = slot.lock().await;
                if let Some(puller) = &*puller {
                    return Ok(puller.clone());
                }
                if Arc::ptr_eq(&slot, &own.slot()) {
                    let attended = node.attend(&queue).await?;
                    return Ok(puller.insert(attended).clone());
                }
                // Another node has replaced this one, and the slot with it: try again.
            }
        });
        match timeout(2 * self.attended.leave_limit, attend).await {
            Ok(Ok(attended)) => attended,
            Ok(Err(_)) => Err(Problem::new(Code::Internal, "the claim panicked")),
            Err(_) => {
                let detail = "the node for claims does not answer; claim again later";
                Err(Problem::new(Code::Busy, detail).retry_after_s(5))
            }
        }
    }
}

impl Drop for Attention {
    fn drop(&mut self) {
        let mut state = self.attended.lock();
        if let Some(entry) = state.queues.get_mut(&self.queue) {
            entry.claims = entry.claims.saturating_sub(1);
            entry.last_claim = Instant::now();
        }
    }
}
