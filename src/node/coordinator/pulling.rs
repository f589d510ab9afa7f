//! The coordinator's part of pulls, which a queue may have instead of a handler.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use crate::error::Error;
use crate::node::PartitionId;
use crate::node::consumers::pulls::Pulls;
use crate::node::consumers::pulls::bound::BoundPulls;
use crate::node::coordinator::Coordinator;
use crate::node::coordinator::event::Reply;
use crate::node::coordinator::recovered::deliveries;
use crate::node::state::claim_state::Wanted;
use crate::node::state::partition::NodePartition;
use crate::node::state::queue::QueueEntry;
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
        let queue_id = self.membership.by_name.get(name);
        let attended = queue_id.and_then(|id| self.membership.queues.get(id));
        let consumer = match attended {
            Some(queue) => queue.entry.consumer.clone(),
            None => {
                let consumer = entry.consumer.clone();
                self.attend(entry, None, now)?;
                consumer
            }
        };
        let pulls = consumer.pulls().map(Arc::clone);
        pulls.ok_or_else(|| Error::invalid("a worker handles the queue"))
    }

    /// Called when a pull has come. It asks each partition once, whatever earlier replies said: the
    /// caller wants to know what is due now.
    pub(crate) fn pulled(&mut self, name: &str, now: Instant) {
        let queue_id = self.membership.by_name.get(name);
        let Some(queue) = queue_id.and_then(|id| self.membership.queues.get(id)) else {
            return;
        };
        // While the node is drained, a pull asks nothing, and ends without messages.
        let members = self.attended(queue).filter(|it| !it.is_drained);
        let members: BTreeSet<_> = members.map(|partition| partition.id).collect();
        if let Some(pulls) = queue.entry.consumer.pulls() {
            pulls.seen(&members);
        }
        for id in members {
            self.open(id);
            self.want_for(id, Wanted::Pulled, now);
        }
    }

    /// Called when the token that the caller of a pull chose already has a lease. Only that pull
    /// fails.
    pub(crate) fn refused_token(
        &mut self,
        id: PartitionId,
        bound: Option<BoundPulls>,
        refusal: &Error,
        for_promote: bool,
        now: Instant,
    ) {
        if let Some(bound) = bound {
            bound.failed(refusal);
        }
        if let Some(partition) = self.partitions.get_mut(&id) {
            partition.claim.succeeded(false);
        }
        if for_promote {
            // The refused claim was sent instead of a promote, which is made now.
            self.call(id, |partition| async move {
                Reply::Promoted(partition.promote().await)
            });
        }
        // The token that woke this node, if any, is meant for another pull or another node.
        if self
            .partitions
            .get(&id)
            .is_some_and(NodePartition::is_needed)
        {
            self.want(id, now);
        } else {
            self.return_token(id);
        }
    }

    /// Gives the messages of a claim to its pulls. Their callers extend the leases and settle: the
    /// node keeps nothing of the deliveries.
    pub(crate) fn answer_pulls(
        &mut self,
        id: PartitionId,
        bound: BoundPulls,
        granted: Vec<Granted>,
        is_left: bool,
    ) {
        let Some(partition) = self.partitions.get(&id) else {
            return;
        };
        let deliveries = deliveries(&partition.remote, granted);
        bound.granted(deliveries.collect(), is_left, &partition.context);
    }
}

#[cfg(test)]
mod tests;
