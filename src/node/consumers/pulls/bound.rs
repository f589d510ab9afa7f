//! The pulls that one claim is for.

use std::sync::Arc;

use super::{Grant, Line, PullRequest, Pulls};
use crate::delivery::Delivery;
use crate::error::Error;
use crate::node::PartitionId;
use crate::node::consumers::handling::HandlerContext;

/// The pulls that a claim in flight is for. Dropped without a reply, as at the end of the
/// coordinator, it drops their answers: the callers learn that the node has ended.
pub(crate) struct BoundPulls {
    pulls: Arc<Pulls>,
    partition: PartitionId,
    /// What the claim asks for.
    request: PullRequest,
    /// Their numbers, in the order of their arrival.
    bound: Vec<u64>,
    /// The number of the last pull that came before the claim.
    last_seen: u64,
}

impl Pulls {
    /// Binds the first pulls, for `most` messages at most, to a claim of this partition. `None` if
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
    /// What the claim asks for.
    pub(crate) fn request(&self) -> PullRequest {
        self.request
    }

    /// The claim granted these deliveries, and left messages in its partition or not.
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
        // Pulls that the claim was for may be gone; others take their place.
        while rest.len() > 0
            && let Some(number) = line.next_alike(&self.request)
        {
            line.serve(number, &mut rest, context);
        }
        line.settle();
        drop(line);
        drop(Grant::new(rest.collect(), context));
    }

    /// The claim failed. The pulls wait for the next one, unless that would fail, too.
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
            // The token of a claim is its own, but every claim lacks a right.
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

    /// They wait again. Returns their numbers.
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
            return; // the reply came, and its caller may have the lock
        }
        let mut line = self.pulls.lock();
        for number in &self.bound {
            line.pulls.remove(number);
        }
    }
}

type Deliveries = std::vec::IntoIter<Delivery>;

impl Line {
    /// Answers a pull with its share, if it is still there and anything is left for it.
    fn serve(&mut self, number: u64, rest: &mut Deliveries, context: &Arc<HandlerContext>) {
        if rest.len() > 0
            && let Some(pull) = self.pulls.remove(&number)
        {
            let share = rest.by_ref().take(pull.request.max).collect();
            // Its ticket is there: a ticket that is dropped takes its pull out of the line first.
            let _ = pull.answer.send(Ok(Grant::new(share, context)));
        }
    }

    /// The first pull that can take what a claim of this request granted.
    fn next_alike(&mut self, request: &PullRequest) -> Option<u64> {
        let mut waiting = self.waiting();
        let alike = waiting.find(|(_, pull)| request.shares_with(&pull.request));
        alike.map(|(number, _)| *number)
    }
}
