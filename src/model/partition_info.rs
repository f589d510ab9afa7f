//! What a queue reports of one of its partitions.

use crate::model::stats::Stats;

/// A partition of a queue: see [`Queue::partitions`](crate::Queue::partitions).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartitionInfo {
    /// Its index, from 0.
    pub index: usize,
    /// What distinguishes its keys: `-` for the first, whose keys begin with `dueq:{QUEUE}`, and a
    /// number such as `17` for `dueq:{QUEUE/17}`.
    pub tag: String,
    /// The slot of its keys in a cluster.
    pub slot: u16,
    /// The address of the server that holds it.
    pub server: String,
    /// What it holds and has done.
    pub stats: Stats,
}
