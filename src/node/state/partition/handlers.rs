//! The handlers and deliveries of a partition: their counts, and how many more it asks for.

use std::time::Instant;

use super::NodePartition;
use crate::node::consumers::slots::HandlerPermits;
use crate::node::state::shares::Want;
use crate::node::state::shares::parts::Part;

impl NodePartition {
    /// Whether the partition has handlers, including those kept for a claim in flight.
    pub(crate) fn is_busy(&self) -> bool {
        self.slots.held() > 0
    }

    /// Whether the node may leave the partition now: no handler, settlement or claim is left.
    pub(crate) fn has_ended(&self) -> bool {
        !self.claim.is_in_flight()
            && !self.lost.must_look_up()
            && !self.is_busy()
            && self.slots.unsettled() == 0
    }

    /// How many more deliveries the partition may claim.
    pub(crate) fn room(&self) -> usize {
        match self.consumer.capacity(self.context.max_handlers) {
            0 => 0,
            capacity => self.slots.room(capacity),
        }
    }

    /// What the partition asks for if it can use this many handlers now.
    pub(crate) fn want(&self, handlers: usize, now: Instant) -> Want<Part> {
        Want {
            id: Part {
                id: self.id,
                queue: self.queue,
                served: self.served,
            },
            handlers,
            soon: 0,
            waited: self.oldest.waited(now),
        }
    }

    /// Makes the permits of the handlers that the `allot` with this number gave to the partition.
    pub(crate) fn permits(&mut self, handlers: usize, allot: u64) -> HandlerPermits {
        self.served = allot;
        self.slots.permits(handlers)
    }
}
