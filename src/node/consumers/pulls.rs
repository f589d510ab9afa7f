//! The pulls of one queue, which take the place of a handler: each waits for messages in the order
//! of its arrival. All partitions of the queue share them.
//!
//! A claim binds the first pulls and asks for as many messages as they take. The claim's reply
//! answers these pulls; a pull that gets nothing keeps its place in the line. A pull that its
//! caller drops leaves the line. The messages that a claim granted for it go to the next pull, or
//! are released without a failure.
//!
//! Each pull must see one claim of each partition that was sent after its arrival. A claim that
//! left no message, or failed, counts for all pulls, not only for those that it was bound to.

pub(crate) mod bound;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::delivery::Delivery;
use crate::error::{Applied, Error, ErrorKind};
use crate::model::lease_token::LeaseToken;
use crate::model::settlement::Settlement;
use crate::node::PartitionId;
use crate::node::consumers::handling::HandlerContext;
use crate::node::consumers::settling::end;

/// The messages that answer a pull. If it is dropped before [`take`](Self::take), it releases them
/// without a failure.
pub(crate) struct Grant {
    deliveries: Vec<Delivery>,
    context: Option<Arc<HandlerContext>>,
}

impl Grant {
    pub(crate) fn none() -> Self {
        Self {
            deliveries: Vec::new(),
            context: None,
        }
    }

    pub(crate) fn new(deliveries: Vec<Delivery>, context: &Arc<HandlerContext>) -> Self {
        Self {
            deliveries,
            context: Some(Arc::clone(context)),
        }
    }

    /// Gives the messages to the caller, which owns them from now on.
    pub(crate) fn take(mut self) -> Vec<Delivery> {
        let now = Instant::now();
        for delivery in &self.deliveries {
            delivery.begin(now);
        }
        std::mem::take(&mut self.deliveries)
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        let deliveries = std::mem::take(&mut self.deliveries);
        let Some(context) = self.context.take().filter(|_| !deliveries.is_empty()) else {
            return;
        };
        let (tracker, runtime) = (context.tracker.clone(), context.runtime.clone());
        let releases = async move {
            let release = |delivery: Delivery| {
                let context = Arc::clone(&context);
                // Each release has a task of its own, so that the releases share calls.
                context.tracker.clone().spawn(async move {
                    end(&delivery, Settlement::Release, &context).await;
                });
            };
            deliveries.into_iter().for_each(release);
        };
        // The node waits for the tracker's tasks before it ends.
        tracker.spawn_on(releases, &runtime);
    }
}

#[cfg(test)]
mod tests;

/// How many pulls of a queue may wait at once.
pub(crate) const MAX_PULLS: usize = 1_024;

/// After a failed claim, a pull that has been over time for this long asks no other partition. If
/// the server is silent, each further claim would take the full time limit of a reply.
const OVERTIME: Duration = Duration::from_millis(500);

/// The pulls of one queue that have no answer yet.
#[derive(Default)]
pub(crate) struct Pulls {
    line: Mutex<Line>,
}

#[derive(Default)]
struct Line {
    /// The waiting pulls by their numbers, which grow with each arrival.
    pulls: BTreeMap<u64, Pull>,
    last: u64,
    /// Whether the node takes no more messages of the queue.
    is_closed: bool,
}

/// What the caller of a pull asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PullRequest {
    pub(crate) max: usize,
    pub(crate) lease_ms: u64,
    /// The token of the claim that the caller chose; with `None` the node draws one.
    pub(crate) token: Option<LeaseToken>,
}

impl PullRequest {
    /// Whether the pull accepts messages of a claim with this lease and a token that the node drew.
    pub(crate) fn takes_lease(&self, lease_ms: u64) -> bool {
        self.lease_ms == lease_ms && self.token.is_none()
    }

    /// Whether one claim can serve both pulls: a claim has one lease and one token.
    fn shares_with(&self, other: &Self) -> bool {
        self.lease_ms == other.lease_ms && self.token.is_none() && other.token.is_none()
    }
}

struct Pull {
    request: PullRequest,
    answer: oneshot::Sender<Result<Grant, Error>>,
    /// Whether a claim in flight is for this pull.
    is_bound: bool,
    /// Since when the pull's waiting time is over.
    over: Option<Instant>,
    /// The partitions that have not been asked since the pull arrived; `None` until the coordinator
    /// has seen the pull.
    unasked: Option<BTreeSet<PartitionId>>,
    /// The partition whose last claim for this pull failed, and the error.
    failed: Option<(PartitionId, Error)>,
}

/// A caller's side of a pull. Dropping it ends the pull; messages that were granted to it are
/// released.
pub(crate) struct Ticket {
    pulls: Arc<Pulls>,
    number: u64,
    answer: oneshot::Receiver<Result<Grant, Error>>,
}

impl Pulls {
    /// Adds a pull at the end of the line.
    ///
    /// # Errors
    /// `Unavailable` if the node has left the queue, or too many pulls wait.
    pub(crate) fn join(self: &Arc<Self>, request: PullRequest) -> Result<Ticket, Error> {
        let (sender, answer) = oneshot::channel();
        let mut line = self.lock();
        if line.is_closed {
            let why = "the puller has left the queue, or has ended";
            return Err(Error::new(ErrorKind::Unavailable, Applied::No, why));
        }
        if line.pulls.len() >= MAX_PULLS {
            let why =
                format!("{MAX_PULLS} pulls of this puller wait already: repeat the pull later");
            return Err(Error::new(ErrorKind::Unavailable, Applied::No, why));
        }
        line.last += 1;
        let number = line.last;
        let pull = Pull {
            request,
            answer: sender,
            is_bound: false,
            over: None,
            unasked: None,
            failed: None,
        };
        line.pulls.insert(number, pull);
        Ok(Ticket {
            pulls: Arc::clone(self),
            number,
            answer,
        })
    }

    /// Called when the coordinator is about to ask these partitions, on behalf of the pulls that it
    /// has not seen before.
    pub(crate) fn seen(&self, partitions: &BTreeSet<PartitionId>) {
        let mut line = self.lock();
        for pull in line.pulls.values_mut() {
            pull.unasked.get_or_insert_with(|| partitions.clone());
        }
        line.settle();
    }

    /// Called when the node leaves a partition: no pull waits for its answer any more.
    pub(crate) fn forget(&self, partition: PartitionId) {
        let mut line = self.lock();
        for pull in line.pulls.values_mut() {
            pull.asked(partition);
        }
        line.settle();
    }

    /// How many messages the next claim may ask for.
    fn wanted(&self) -> usize {
        let mut line = self.lock();
        let mut pulls = line.waiting().map(|(_, pull)| pull.request);
        let Some(first) = pulls.next() else {
            return 0;
        };
        let alike = pulls.take_while(|pull| first.shares_with(pull));
        first.max + alike.map(|pull| pull.max).sum::<usize>()
    }

    /// Called when a pull's waiting time is over: answers the pull as soon as every partition has
    /// been asked.
    fn expire(&self, number: u64, now: Instant) {
        let mut line = self.lock();
        if let Some(pull) = line.pulls.get_mut(&number) {
            pull.over = Some(now);
        }
        line.settle();
    }

    /// Removes a pull whose caller has its answer, or waits no longer.
    fn leave(&self, number: u64) {
        let _pull = self.lock().pulls.remove(&number);
    }

    fn lock(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line {
    /// The pulls that are not bound to a claim in flight.
    fn waiting(&mut self) -> impl Iterator<Item = (&u64, &mut Pull)> {
        self.pulls.iter_mut().filter(|(_, pull)| !pull.is_bound)
    }

    /// Answers the pulls for which nothing remains to wait for.
    fn settle(&mut self) {
        let (now, is_closed) = (Instant::now(), self.is_closed);
        let waiting = self.waiting();
        let ended = waiting.filter(|(_, pull)| is_closed || pull.has_ended(now));
        for number in ended.map(|(number, _)| *number).collect::<Vec<_>>() {
            if let Some(mut pull) = self.pulls.remove(&number) {
                // A closed line answers with no messages, whether a claim failed or not.
                pull.failed.take_if(|_| is_closed);
                pull.end();
            }
        }
    }
}

impl Pull {
    /// Records that this partition was asked on behalf of the pull.
    fn asked(&mut self, partition: PartitionId) {
        self.failed.take_if(|(failed, _)| *failed == partition);
        if let Some(unasked) = &mut self.unasked {
            unasked.remove(&partition);
        }
    }

    /// Whether the pull's time is over and no partition remains to be asked for it.
    fn has_ended(&self, now: Instant) -> bool {
        let Some(over) = self.over else {
            return false;
        };
        let is_asked = self.unasked.as_ref().is_some_and(BTreeSet::is_empty);
        is_asked || self.failed.is_some() && now.saturating_duration_since(over) >= OVERTIME
    }

    /// Answers the pull without messages, or with the error of the server's failure.
    fn end(self) {
        // Nobody receives the answer if the caller has dropped its pull.
        let answer = self
            .failed
            .map_or_else(|| Ok(Grant::none()), |(_, error)| Err(error));
        let _ = self.answer.send(answer);
    }
}

impl Pulls {
    /// How many messages a claim may ask for, with this many handlers.
    pub(crate) fn capacity(&self, handlers: usize) -> usize {
        self.wanted().min(handlers)
    }

    /// Whether a pull waits. If none does, the node claims nothing and takes no wake-up token.
    pub(crate) fn is_needed(&self) -> bool {
        !self.lock().pulls.is_empty()
    }

    /// Whether this partition must be claimed from for a pull, even if its last reply said that it
    /// is paused: that reply may be older than the pull.
    pub(crate) fn must_ask(&self, partition: PartitionId) -> bool {
        let is_owed = |pull: &Pull| {
            let unasked = pull.unasked.as_ref();
            unasked.is_some_and(|unasked| unasked.contains(&partition))
        };
        self.lock().pulls.values().any(is_owed)
    }

    /// Ends the pulls that wait: each gets no message. A pull that is bound to a claim gets what the
    /// claim grants.
    pub(crate) fn close(&self) {
        let mut line = self.lock();
        line.is_closed = true;
        line.settle();
    }
}

impl Ticket {
    /// Waits for the answer: messages, or the error of a refusal. `None` if the node has ended;
    /// after that it must not be called again. Cancel safe.
    pub(crate) async fn answer(&mut self) -> Option<Result<Grant, Error>> {
        (&mut self.answer).await.ok()
    }

    /// The answer, if there is one already.
    #[cfg(test)]
    pub(crate) fn try_answer(&mut self) -> Option<Result<Grant, Error>> {
        self.answer.try_recv().ok()
    }

    /// Tells the line that the pull's waiting time is over. The answer comes as soon as every
    /// partition has been asked once.
    pub(crate) fn expire(&self) {
        self.pulls.expire(self.number, Instant::now());
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.pulls.leave(self.number);
    }
}
