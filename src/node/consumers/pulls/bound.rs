//! The pulls that are bound to one claim.

use std::sync::Arc;

use super::{Grant, Line, PullRequest, Pulls};
use crate::delivery::Delivery;
use crate::error::Error;
use crate::node::PartitionId;
use crate::node::consumers::handling::HandlerContext;

/// The pulls that are bound to a claim in flight. If this is dropped without a reply, as when the
/// coordinator ends, the pulls' answers are dropped too: their callers learn that the node has
/// ended.
pub(crate) struct BoundPulls {
    pulls: Arc<Pulls>,
    partition: PartitionId,
    /// The request that the claim makes.
    request: PullRequest,
    /// The numbers of the bound pulls, in the order of their arrival.
    bound: Vec<u64>,
    /// The number of the last pull that arrived before the claim was sent.
    last_seen: u64,
}

impl Pulls {
    /// Binds the first pulls, for at most `most` messages, to a claim of this partition. `None` if
    /// no pull waits.
    pub(crate) fn bind(
        self: &Arc<Self>,
        partition: PartitionId,
        most: usize,
    ) -> Option<BoundPulls> {
        let mut line = self.lock();
        let last_seen = line.last;
        let (mut bound, mut asked, mut request) = (Vec::new(), 0, None);
        for (number, pull) in line.waiting() {
            let first = *request.get_or_insert(pull.request);
            if asked >= most || !bound.is_empty() && !first.shares_with(&pull.request) {
                break;
            }
            asked += pull.request.max;
            pull.is_bound = true;
            bound.push(*number);
        }
        let request = PullRequest {
            max: asked.min(most),
            ..request.filter(|_| !bound.is_empty())?
        };
        drop(line);
        Some(BoundPulls {
            pulls: Arc::clone(self),
            partition,
            request,
            bound,
            last_seen,
        })
    }
}

impl BoundPulls {
    /// The request that the claim makes.
    pub(crate) fn request(&self) -> PullRequest {
        self.request
    }

    /// Called when the claim granted these deliveries; the flag says whether messages are left in
    /// the partition.
    pub(crate) fn granted(
        mut self,
        deliveries: Vec<Delivery>,
        is_left: bool,
        context: &Arc<HandlerContext>,
    ) {
        let mut rest = deliveries.into_iter();
        let pulls = Arc::clone(&self.pulls);
        let mut line = pulls.lock();
        for number in self.unbind(&mut line) {
            line.serve(number, &mut rest, context);
        }
        if !is_left {
            for (_, pull) in line.pulls.range_mut(..=self.last_seen) {
                pull.asked(self.partition);
            }
        }
        // Bound pulls may have been dropped meanwhile; then others of the line take their messages.
        while rest.len() > 0
            && let Some(number) = line.next_alike(&self.request)
        {
            line.serve(number, &mut rest, context);
        }
        line.settle();
        drop(line);
        drop(Grant::new(rest.collect(), context));
    }

    /// Called when the claim failed. The pulls wait for the next claim, unless that would fail as
    /// well.
    pub(crate) fn failed(mut self, error: &Error) {
        let pulls = Arc::clone(&self.pulls);
        let mut line = pulls.lock();
        let bound = self.unbind(&mut line);
        if error.is_retryable() {
            for (_, pull) in line.pulls.range_mut(..=self.last_seen) {
                pull.asked(self.partition);
                pull.failed = Some((self.partition, error.clone()));
            }
        } else {
            // A token that is held fails only its own claim. A missing right fails every claim.
            let refused = match error.is_held() {
                true => bound,
                false => line.waiting().map(|(number, _)| *number).collect(),
            };
            for number in refused {
                if number <= self.last_seen
                    && let Some(mut pull) = line.pulls.remove(&number)
                {
                    pull.failed = Some((self.partition, error.clone()));
                    pull.end();
                }
            }
        }
        line.settle();
    }

    /// Makes the bound pulls wait again. Returns their numbers.
    fn unbind(&mut self, line: &mut Line) -> Vec<u64> {
        let bound = std::mem::take(&mut self.bound);
        for number in &bound {
            if let Some(pull) = line.pulls.get_mut(number) {
                pull.is_bound = false;
            }
        }
        bound
    }
}

impl Drop for BoundPulls {
    fn drop(&mut self) {
        if self.bound.is_empty() {
            return; // a reply came; the caller may hold the lock
        }
        let mut line = self.pulls.lock();
        for number in &self.bound {
            line.pulls.remove(number);
        }
    }
}

type Deliveries = std::vec::IntoIter<Delivery>;

impl Line {
    /// Answers a pull with its share, if the pull still waits and messages are left.
    fn serve(&mut self, number: u64, rest: &mut Deliveries, context: &Arc<HandlerContext>) {
        if rest.len() > 0
            && let Some(pull) = self.pulls.remove(&number)
        {
            let share = rest.by_ref().take(pull.request.max).collect();
            // The send succeeds: a ticket removes its pull from the line before it is dropped.
            let _ = pull.answer.send(Ok(Grant::new(share, context)));
        }
    }

    /// The first waiting pull that accepts messages of this request.
    fn next_alike(&mut self, request: &PullRequest) -> Option<u64> {
        let mut waiting = self.waiting();
        let alike = waiting.find(|(_, pull)| request.shares_with(&pull.request));
        alike.map(|(number, _)| *number)
    }
}
