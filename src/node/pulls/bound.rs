//! The pulls that one claim is for.

use std::sync::Arc;

use super::{Grant, Line, Pull, PullRequest, Pulls};
use crate::delivery::Delivery;
use crate::error::Error;
use crate::node::handling::HandlerContext;
use crate::node::queue_number::QueueNumber;

/// The pulls that a claim in flight is for. Dropped without a reply, as at the end of the
/// coordinator, it drops their answers: the callers learn that the node has ended.
pub(crate) struct BoundPulls {
    pulls: Arc<Pulls>,
    partition: QueueNumber,
    /// What the claim asks for.
    request: PullRequest,
    /// In the order of their arrival.
    bound: Vec<(u64, Pull)>,
    /// The number of the last pull that came before the claim.
    last_seen: u64,
}

impl BoundPulls {
    pub(super) fn new(
        pulls: &Arc<Pulls>,
        partition: QueueNumber,
        request: PullRequest,
        bound: Vec<(u64, Pull)>,
        last_seen: u64,
    ) -> Self {
        Self {
            pulls: Arc::clone(pulls),
            partition,
            request,
            bound,
            last_seen,
        }
    }

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
        let (mut unserved, bound) = (Vec::new(), self.unbind());
        for (number, pull) in bound {
            let (share, back) = serve(pull, rest, context);
            rest = share;
            unserved.extend(back.map(|pull| (number, pull)));
        }
        let mut line = self.pulls.lock();
        for (number, pull) in unserved {
            line.put_back(number, pull);
        }
        if !is_left {
            for (_, pull) in line.waiting.range_mut(..=self.last_seen) {
                pull.asked(self.partition);
            }
        }
        // Pulls that the claim was for may be gone; others take their place.
        while rest.len() > 0
            && let Some(number) = line.next_alike(&self.request)
            && let Some(pull) = line.waiting.remove(&number)
        {
            let (share, back) = serve(pull, rest, context);
            rest = share;
            drop(back);
        }
        line.answer_over();
        drop(line);
        drop(Grant::new(rest.collect(), context));
    }

    /// The claim failed. Its pulls wait for the next one, unless that would fail, too.
    pub(crate) fn failed(mut self, error: &Error) {
        let bound = self.unbind();
        let mut line = self.pulls.lock();
        for (number, mut pull) in bound {
            if !error.is_retryable() {
                let _ = pull.answer.send(Err(error.clone()));
                continue;
            }
            pull.asked(self.partition);
            pull.failed = Some((self.partition, error.clone()));
            line.put_back(number, pull);
        }
        line.answer_over();
    }

    fn unbind(&mut self) -> Vec<(u64, Pull)> {
        let bound = std::mem::take(&mut self.bound);
        self.pulls.lock().bound -= bound.len();
        bound
    }
}

impl Drop for BoundPulls {
    fn drop(&mut self) {
        self.unbind();
    }
}

type Deliveries = std::vec::IntoIter<Delivery>;

/// Answers a pull with its share. Returns the rest, and the pull if there was nothing for it.
fn serve(
    pull: Pull,
    mut rest: Deliveries,
    context: &Arc<HandlerContext>,
) -> (Deliveries, Option<Pull>) {
    if rest.len() == 0 {
        return (rest, Some(pull));
    }
    let share: Vec<_> = rest.by_ref().take(pull.request.max).collect();
    match pull.answer.send(Ok(Grant::new(share, context))) {
        // Its caller dropped it: the next pull gets them.
        Err(Ok(grant)) => {
            let mut back = grant.reuse();
            back.extend(rest);
            (back.into_iter(), None)
        }
        _ => (rest, None),
    }
}

impl Line {
    /// A pull that was bound waits again, where it stood.
    fn put_back(&mut self, number: u64, mut pull: Pull) {
        let (last_seen, partitions) = &self.seen;
        if number <= *last_seen {
            // The coordinator may have seen it while it was bound, or left a partition.
            let unasked = pull.unasked.get_or_insert_with(|| partitions.clone());
            unasked.retain(|partition| partitions.contains(partition));
        }
        if self.is_closed {
            let _ = pull.answer.send(Ok(Grant::none()));
        } else if !pull.answer.is_closed() {
            self.waiting.insert(number, pull);
        }
    }

    /// The first pull that can take what a claim of this request granted.
    fn next_alike(&self, request: &PullRequest) -> Option<u64> {
        let mut waiting = self.waiting.iter();
        let alike = waiting.find(|(_, pull)| request.shares_with(&pull.request));
        alike.map(|(number, _)| *number)
    }
}
