//! The structures, a file each.

mod delay_queue;
mod dueq_wheel;
mod hash_wheel;
mod heap;
mod kafka;
mod netty;
mod nexus;
mod skynet;
mod slabs;
mod sorted_map;

use std::time::{Duration, Instant};

pub(super) use delay_queue::{TokioUtil, enter_runtime};
pub(super) use dueq_wheel::Dueq;
pub(super) use hash_wheel::HashWheel;
pub(super) use heap::LazyHeap;
pub(super) use kafka::Kafka;
pub(super) use netty::Netty;
pub(super) use nexus::Nexus;
pub(super) use skynet::Skynet;
pub(super) use slabs::SlabWheel;
pub(super) use sorted_map::SortedMap;

/// Ticks for those that count in instants.
struct Epoch(Instant);

impl Epoch {
    fn new(start: Instant) -> Self {
        Self(start)
    }

    fn at(&self, tick: u64) -> Instant {
        self.0 + Duration::from_millis(tick)
    }

    fn tick(&self, instant: Instant) -> u64 {
        instant.saturating_duration_since(self.0).as_millis() as u64
    }
}
