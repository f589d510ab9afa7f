//! The refill of the lists of fires, by the leader of a queue with schedules.

use std::time::Instant;

use crate::model::schedule::tzdata_version;
use crate::node::PartitionId;
use crate::node::coordinator::Coordinator;
use crate::node::coordinator::event::Reply;
use crate::node::state::refills::RefillReply;
use crate::protocol::results::administer::Beat;
use crate::telemetry::events;

impl Coordinator {
    /// Refills the lists of fires of a queue that this node leads, if the reply to a beat asks for
    /// it.
    pub(crate) fn refill(&mut self, id: PartitionId, beat: &Beat, now: Instant) {
        let Some(partition) = self.partitions.get_mut(&id) else {
            return;
        };
        let name = partition.remote.queue_name();
        let Some(lists) = partition.refills.wanted(beat.leader, beat.low_lists, now) else {
            return;
        };
        if tzdata_version().is_none() {
            if beat.low_lists > Some(0) && !partition.refills.warned_of_feature {
                partition.refills.warned_of_feature = true;
                events::cannot_refill(name);
            }
            return;
        }
        let mut warned = partition.refills.started();
        self.call(id, move |partition| async move {
            let result = partition.refill(lists, &mut warned).await;
            Reply::Refilled(Box::new(RefillReply {
                lists,
                warned,
                result,
            }))
        });
    }

    /// Handles the answer to a refill.
    pub(crate) fn refilled(&mut self, id: PartitionId, mut reply: RefillReply, now: Instant) {
        let Some(partition) = self.partitions.get_mut(&id) else {
            return;
        };
        let name = partition.remote.queue_name();
        match &reply.result {
            Ok(refilled) => {
                for why in &refilled.failed {
                    events::refill_refused(name, why);
                }
            }
            Err(error) => events::call_failed(name, "refill", error, "it is repeated in 5 s"),
        }
        partition.refills.ended(&mut reply, now);
    }
}
