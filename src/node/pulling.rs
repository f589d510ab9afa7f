//! The coordinator's part of pulls, which take the place of a handler.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use crate::delivery::Delivery;
use crate::error::Error;
use crate::node::claim_state::Wanted;
use crate::node::commands::QueueEntry;
use crate::node::coordinator::Coordinator;
use crate::node::event::Reply;
use crate::node::pulls::{BoundPulls, Pulls};
use crate::node::queue_number::QueueNumber;
use crate::protocol::results::claim::Granted;

impl Coordinator {
    /// Attends a queue for pulls, unless it does so already. Returns the pulls of the queue.
    ///
    /// # Errors
    /// `InvalidInput` if the node is still leaving the queue.
    pub(crate) fn attend_for_pulls(
        &mut self,
        entry: QueueEntry,
        now: Instant,
    ) -> Result<Arc<Pulls>, Error> {
        let name = entry.router.queue_name();
        let number = self.membership.numbers.get(name);
        let attended = number.and_then(|number| self.membership.queues.get(number));
        let handling = match attended {
            Some(queue) => Arc::clone(&queue.entry.handling),
            None => {
                let handling = Arc::clone(&entry.handling);
                self.attend(entry, None, now)?;
                handling
            }
        };
        handling
            .pulls()
            .ok_or_else(|| Error::invalid("a worker handles the queue"))
    }

    /// A pull has come. Each partition is asked once, whatever the last replies said: the caller
    /// wants to know what is due now.
    pub(crate) fn pulled(&mut self, name: &str, now: Instant) {
        let number = self.membership.numbers.get(name);
        let Some(queue) = number.and_then(|number| self.membership.queues.get(number)) else {
            return;
        };
        let members: BTreeSet<_> = queue.members.values().copied().collect();
        if let Some(pulls) = Arc::clone(&queue.entry.handling).pulls() {
            pulls.seen(&members);
        }
        for number in members {
            self.shares.set_paused(number, false);
            self.want_for(number, Wanted::Pulled, now);
        }
    }

    /// A lease has the token that the caller of a pull has chosen: only that pull has failed.
    pub(crate) fn refused_token(
        &mut self,
        number: QueueNumber,
        bound: Option<BoundPulls>,
        refusal: &Error,
        for_promote: bool,
        now: Instant,
    ) {
        if let Some(bound) = bound {
            bound.failed(refusal);
        }
        if let Some(queue) = self.queues.get_mut(&number) {
            queue.claim.succeeded(false);
        }
        if for_promote {
            // The claim was to take its place.
            self.call(number, |partition| async move {
                Reply::Promoted(partition.promote().await)
            });
        }
        // The token that woke this node, if one did, is for another pull or another node.
        if self
            .queues
            .get(&number)
            .is_some_and(|queue| queue.handling.is_needed())
        {
            self.want(number, now);
        } else {
            self.return_token(number);
        }
    }

    /// Hands what a claim granted to its pulls. Their callers extend the leases and settle: the node
    /// keeps nothing of the deliveries.
    pub(crate) fn answer_pulls(
        &mut self,
        number: QueueNumber,
        bound: BoundPulls,
        granted: Vec<Granted>,
        is_left: bool,
    ) {
        let Some(queue) = self.queues.get(&number) else {
            return;
        };
        let deliveries = granted
            .into_iter()
            .map(|granted| Delivery::new(Arc::clone(&queue.partition), granted));
        bound.granted(deliveries.collect(), is_left, &queue.context);
    }
}

#[cfg(test)]
mod tests;
