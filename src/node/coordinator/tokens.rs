//! Decides which wake-up tokens the coordinator uses and which it gives back.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use crate::node::PartitionId;
use crate::node::coordinator::Coordinator;
use crate::node::coordinator::event::{Event, Reply};
use crate::node::hints::wakes::{WakeUp, WakeUps};
use crate::node::runtime::task::Task;
use crate::node::state::partition::NodePartition;
use crate::telemetry::events;

/// The lease of a claim of 0 messages, which leases nothing.
const ANY_LEASE_MS: u64 = 1;

impl Coordinator {
    /// Handles a wake-up token, or a failed pop that may have lost one.
    pub(crate) fn woken(&mut self, wake_up: WakeUp, now: Instant) {
        match wake_up {
            WakeUp::Token(id) => {
                let partition = self.partitions.get_mut(&id);
                let Some(partition) = partition.filter(|partition| partition.is_attending()) else {
                    // The partition was removed while a pop covered its list.
                    return self.return_token(id);
                };
                // A token shows that the queue is not paused: scripts write none during a pause.
                partition.resumed();
                let in_flight = partition.claim.is_in_flight();
                let is_needed = partition.is_needed();
                self.open(id);
                self.collect_ended();
                if is_needed && (in_flight || self.free_for(id) > 0) {
                    self.want(id, now);
                } else {
                    // This node has no free handler or no waiting pull, or is drained, so it gives
                    // the token to another node.
                    self.return_token(id);
                    self.wake_lists.refuse(id);
                }
            }
            WakeUp::Failed(covered) => {
                for id in covered {
                    let partition = self.partitions.get(&id);
                    if partition.is_some_and(NodePartition::takes_tokens) {
                        self.want(id, now);
                    } else {
                        self.return_token(id);
                    }
                }
            }
        }
    }

    /// Wants a claim for each partition whose last token was given back, as soon as the partition
    /// can get a handler.
    pub(crate) fn accept_refused(&mut self, now: Instant) {
        let accepted: Vec<_> = self
            .wake_lists
            .refused()
            .filter(|id| {
                let partition = self.partitions.get(id);
                self.free_for(*id) > 0 && partition.is_some_and(NodePartition::takes_tokens)
            })
            .collect();
        for id in accepted {
            self.wake_lists.accept(id);
            self.want(id, now);
            // Until a pop covers the list again, the node relies on notices of new work.
            if let Some(partition) = self.partitions.get_mut(&id) {
                partition.timers.beat_at(now, &mut self.timers, now);
            }
        }
    }

    /// The partitions whose token the last pop may have taken, and those that the next pop covers.
    pub(crate) fn token_lists(&self) -> BTreeSet<PartitionId> {
        let last = self.wake.iter().flat_map(WakeUps::last_covered);
        let last = last.map(|list| list.partition);
        self.wake_lists.lists().chain(last).collect()
    }

    /// Gives a wake-up token back: a claim of 0 messages writes one if there is work.
    pub(crate) fn return_token(&mut self, id: PartitionId) {
        let attended = self.partitions.get(&id).map(|partition| &partition.remote);
        let covered = || {
            let mut last = self.wake.iter().flat_map(WakeUps::last_covered);
            last.find(|list| list.partition == id)
                .map(|list| &list.remote)
        };
        let Some(partition) = attended.or_else(covered).map(Arc::clone) else {
            return;
        };
        self.returning += 1;
        let sender = self.sender.clone();
        self.tasks.spawn(Task::Call, async move {
            if let Err(error) = partition.claim(0, ANY_LEASE_MS).await {
                let then = "a beat wakes the other nodes within a second";
                events::call_failed(partition.queue_name(), "wake", &error, then);
            }
            // The send fails if the coordinator has stopped.
            let _ = sender.send(Event::Reply(id, Reply::TokenReturned));
        });
    }
}
