//! The end of a batch of messages whose mover died, by the leader of the partition that it left.

use std::sync::Arc;
use std::time::Instant;

use crate::error::Error;
use crate::node::PartitionId;
use crate::node::coordinator::Coordinator;
use crate::node::coordinator::event::Reply;
use crate::protocol::results::administer::Beat;
use crate::telemetry::events;

impl Coordinator {
    /// Ends the batch that is on its way from a partition that this node leads, if nobody moves it
    /// any more.
    pub(crate) fn end_stranded(&mut self, id: PartitionId, beat: &Beat, now: Instant) {
        let Some(partition) = self.partitions.get_mut(&id) else {
            return;
        };
        let stranded = partition.stranded.wanted(beat.leader, beat.moving, now);
        let queue = self.membership.queues.get(&partition.queue);
        let (Some(number), Some(queue)) = (stranded, queue) else {
            return;
        };
        let router = Arc::clone(&queue.entry.router);
        self.call(id, move |partition| async move {
            Reply::BatchEnded(router.end_batch(partition.tag(), number).await)
        });
    }

    /// Handles the end of a batch.
    pub(crate) fn batch_ended(&mut self, id: PartitionId, result: &Result<(), Error>) {
        let Some(partition) = self.partitions.get_mut(&id) else {
            return;
        };
        partition.stranded.ended();
        if let Err(error) = result {
            let then =
                "messages on their way to another partition wait; it is repeated in some seconds";
            events::call_failed(partition.remote.queue_name(), "depart", error, then);
        }
    }
}
