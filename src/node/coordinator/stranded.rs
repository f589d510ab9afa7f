//! The end of a batch of messages whose mover died, by the leader of the partition that it left.

use std::sync::Arc;
use std::time::Instant;

use crate::error::Error;
use crate::node::PartitionId;
use crate::node::coordinator::Coordinator;
use crate::node::coordinator::event::Reply;
use crate::protocol::partition_map::PartitionMap;
use crate::protocol::results::administer::Beat;
use crate::telemetry::events;

impl Coordinator {
    /// Ends the batch that is on its way from a partition that this node leads, if nobody moves it
    /// any more. Nodes do not park while messages move, so that they see such a batch in time.
    pub(crate) fn end_stranded(&mut self, id: PartitionId, beat: &Beat, now: Instant) {
        let Some(partition) = self.partitions.get_mut(&id) else {
            return;
        };
        let stranded = partition.stranded.wanted(beat.leader, beat.moving, now);
        let Some(queue) = self.membership.queues.get(&partition.queue) else {
            return;
        };
        let watch = queue.watch.as_ref();
        let map = watch.and_then(|watch| watch.partitions.map());
        partition.is_changing = map.is_some_and(PartitionMap::moves);
        let Some(number) = stranded else {
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
