//! A node that an operator drained takes nothing new of a queue. It handles what it has, and beats,
//! promotes and reaps as before.

use std::time::Instant;

use crate::node::QueueId;
use crate::node::coordinator::Coordinator;
use crate::node::state::claim_state::Wanted;
use crate::telemetry::events;

impl Coordinator {
    /// Called with what the home of a queue says about this node.
    pub(crate) fn drain(&mut self, queue_id: QueueId, is_drained: bool, now: Instant) {
        let Some(queue) = self.membership.queues.get_mut(&queue_id) else {
            return;
        };
        if std::mem::replace(&mut queue.is_drained, is_drained) == is_drained {
            return;
        }
        events::drained(queue.name(), &self.node, is_drained);
        let ids: Vec<_> = queue.partitions.values().copied().collect();
        for id in ids {
            let Some(partition) = self.partitions.get_mut(&id) else {
                continue;
            };
            partition.is_drained = is_drained;
            if is_drained {
                // The next pop leaves the list to other nodes.
                self.wake_lists.refuse(id);
                if let Some(pulls) = partition.consumer.pulls() {
                    pulls.forget(id);
                }
                self.open(id);
            } else {
                self.open(id);
                self.want_for(id, Wanted::Woken, now);
            }
        }
    }
}
