//! The pulls of one queue, which take the place of a handler: each waits for messages in the order
//! of its arrival. All partitions of the queue share them.
//!
//! A claim binds the first pulls and asks for as many messages as they take. Its reply answers
//! them; those that get nothing go back to where they stood. A pull whose caller dropped it leaves
//! the line, and what a claim granted for it goes to the next pull, or is released uncharged.

mod bound;
mod grant;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::delivery::Delivery;
use crate::error::{Applied, Error, ErrorKind};
use crate::model::lease_token::LeaseToken;
use crate::node::handler_guard::HandlerGuard;
use crate::node::handling::{HandlerContext, Handling};
use crate::node::queue_number::QueueNumber;
use crate::node::slots::HandlerPermits;

pub(crate) use bound::BoundPulls;
pub(crate) use grant::Grant;

/// How many pulls of a queue may wait at once.
pub(crate) const MAX_PULLS: usize = 1_024;

/// The pulls of one queue that have no answer yet.
#[derive(Default)]
pub(crate) struct Pulls {
    line: Mutex<Line>,
}

#[derive(Default)]
struct Line {
    /// By their numbers, which grow with each arrival.
    waiting: BTreeMap<u64, Pull>,
    last: u64,
    /// The last pull that the coordinator has seen, and the partitions that it asks for it.
    seen: (u64, BTreeSet<QueueNumber>),
    /// How many pulls are bound to a claim in flight.
    bound: usize,
    /// Pulls whose time is over while they are bound, or while a partition has not been asked.
    over: BTreeSet<u64>,
    /// The node takes no more messages of the queue.
    is_closed: bool,
}

/// What a caller asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PullRequest {
    pub(crate) max: usize,
    pub(crate) lease_ms: u64,
    /// The token of its claim; `None`: one that the node draws.
    pub(crate) token: Option<LeaseToken>,
}

impl PullRequest {
    /// Whether one claim may be for both: it has one lease and one token.
    fn shares_with(&self, other: &Self) -> bool {
        self.lease_ms == other.lease_ms && self.token.is_none() && other.token.is_none()
    }
}

struct Pull {
    request: PullRequest,
    answer: oneshot::Sender<Result<Grant, Error>>,
    /// The partitions that have not been asked since it came; `None` until the coordinator has seen
    /// it.
    unasked: Option<BTreeSet<QueueNumber>>,
    /// The partition whose last claim for it failed, and why.
    failed: Option<(QueueNumber, Error)>,
}

/// A caller's pull. Dropping it ends the pull; messages that it was granted are released.
pub(crate) struct Ticket {
    pulls: Arc<Pulls>,
    number: u64,
    answer: oneshot::Receiver<Result<Grant, Error>>,
}

impl Pulls {
    /// A pull at the end of the line.
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
        if line.waiting.len() + line.bound >= MAX_PULLS {
            let why =
                format!("{MAX_PULLS} pulls of this puller wait already: repeat the pull later");
            return Err(Error::new(ErrorKind::Unavailable, Applied::No, why));
        }
        line.last += 1;
        let number = line.last;
        let pull = Pull {
            request,
            answer: sender,
            unasked: None,
            failed: None,
        };
        line.waiting.insert(number, pull);
        Ok(Ticket {
            pulls: Arc::clone(self),
            number,
            answer,
        })
    }

    /// The coordinator is about to ask these partitions for the pulls that it has not seen before.
    pub(crate) fn seen(&self, partitions: &BTreeSet<QueueNumber>) {
        let mut line = self.lock();
        line.seen = (line.last, partitions.clone());
        for pull in line.waiting.values_mut() {
            pull.unasked.get_or_insert_with(|| partitions.clone());
        }
        line.answer_over();
    }

    /// The node leaves a partition: no pull waits for it.
    pub(crate) fn forget(&self, partition: QueueNumber) {
        let mut line = self.lock();
        line.seen.1.remove(&partition);
        for pull in line.waiting.values_mut() {
            pull.asked(partition);
        }
        line.answer_over();
    }

    /// Binds the first pulls, for `most` messages at most, to a claim of this partition. `None` if
    /// no pull waits.
    pub(crate) fn bind(
        self: &Arc<Self>,
        partition: QueueNumber,
        most: usize,
    ) -> Option<BoundPulls> {
        let mut line = self.lock();
        let (mut pulls, mut asked) = (Vec::new(), 0);
        while asked < most
            && let Some(first) = line.waiting.first_entry()
            && !first_differs(&pulls, first.get())
        {
            let (number, pull) = first.remove_entry();
            if !pull.answer.is_closed() {
                asked += pull.request.max;
                pulls.push((number, pull));
            }
        }
        let (_, first) = pulls.first()?;
        let request = PullRequest {
            max: asked.min(most),
            ..first.request
        };
        line.bound += pulls.len();
        let last_seen = line.last;
        drop(line);
        Some(BoundPulls::new(self, partition, request, pulls, last_seen))
    }

    /// How many messages the next claim may ask for.
    fn wanted(&self) -> usize {
        let line = self.lock();
        let mut pulls = line.waiting.values().map(|pull| pull.request);
        let Some(first) = pulls.next() else {
            return 0;
        };
        let alike = pulls.take_while(|pull| first.shares_with(pull));
        first.max + alike.map(|pull| pull.max).sum::<usize>()
    }

    /// The time of a pull is over: answers it as soon as every partition has been asked.
    fn expire(&self, number: u64) {
        let mut line = self.lock();
        line.over.insert(number);
        line.answer_over();
    }

    /// The caller has its answer, or waits for it no more.
    fn leave(&self, number: u64) {
        let mut line = self.lock();
        line.over.remove(&number);
        let _pull = line.waiting.remove(&number);
    }

    fn lock(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a pull cannot share a claim with these.
fn first_differs(pulls: &[(u64, Pull)], pull: &Pull) -> bool {
    let first = pulls.first();
    first.is_some_and(|(_, first)| !first.request.shares_with(&pull.request))
}

impl Line {
    /// Answers the pulls whose time is over and for which every partition was asked.
    fn answer_over(&mut self) {
        let Line { waiting, over, .. } = self;
        over.retain(|number| {
            let is_asked = |pull: &Pull| pull.unasked.as_ref().is_some_and(BTreeSet::is_empty);
            if !waiting.get(number).is_some_and(is_asked) {
                return true;
            }
            if let Some(pull) = waiting.remove(number) {
                pull.end();
            }
            false
        });
    }
}

impl Pull {
    /// The partition needs to be asked for it no more.
    fn asked(&mut self, partition: QueueNumber) {
        self.failed.take_if(|(failed, _)| *failed == partition);
        if let Some(unasked) = &mut self.unasked {
            unasked.remove(&partition);
        }
    }

    /// Answers it with no message, or why there was no answer of the server.
    fn end(self) {
        // A caller that dropped its pull needs no answer.
        let answer = self
            .failed
            .map_or_else(|| Ok(Grant::none()), |(_, error)| Err(error));
        let _ = self.answer.send(answer);
    }
}

impl Handling for Pulls {
    fn capacity(&self, handlers: usize) -> usize {
        self.wanted().min(handlers)
    }

    fn is_needed(&self) -> bool {
        let line = self.lock();
        line.bound > 0 || !line.waiting.is_empty()
    }

    /// Also while pulls are bound: each may need the other partitions when its claim grants it nothing.
    fn must_ask(&self, partition: QueueNumber) -> bool {
        let is_owed = |pull: &Pull| {
            let unasked = pull.unasked.as_ref();
            unasked.is_some_and(|unasked| unasked.contains(&partition))
        };
        let line = self.lock();
        line.bound > 0 || line.waiting.values().any(is_owed)
    }

    fn pulls(self: Arc<Self>) -> Option<Arc<Pulls>> {
        Some(self)
    }

    /// Only for deliveries without bound pulls, of which there are none.
    fn start(
        self: Arc<Self>,
        deliveries: Vec<(Delivery, HandlerGuard)>,
        permits: HandlerPermits,
        context: &Arc<HandlerContext>,
    ) -> HandlerPermits {
        let deliveries = deliveries.into_iter().map(|(delivery, _)| delivery);
        drop(Grant::new(deliveries.collect(), context));
        permits
    }

    fn stop(&self) {
        self.close();
    }

    /// Ends the pulls that wait: each gets no message. A pull that is bound to a claim gets what the
    /// claim grants.
    fn close(&self) {
        let mut line = self.lock();
        line.is_closed = true;
        let waiting = std::mem::take(&mut line.waiting);
        drop(line);
        for pull in waiting.into_values() {
            // Also if the last claim failed: the node ends.
            let _ = pull.answer.send(Ok(Grant::none()));
        }
    }
}

impl Ticket {
    /// Waits for the answer: messages, or why the server refused. `None` if the node has ended; then
    /// it must not be called again. Cancel safe.
    pub(crate) async fn answer(&mut self) -> Option<Result<Grant, Error>> {
        (&mut self.answer).await.ok()
    }

    /// Its time is over: the answer comes as soon as every partition has been asked once.
    pub(crate) fn expire(&self) {
        self.pulls.expire(self.number);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.pulls.leave(self.number);
    }
}
