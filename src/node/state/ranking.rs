//! Which partitions of a queue a node attends, and at which rank. Pure.
//!
//! The rule is rendezvous hashing: each pair of a node and a partition has a weight, which all
//! nodes compute alike. A node attends a partition if it is among the partition's
//! [`NODES_OF_PARTITION`] nodes of the highest weights, or if the partition is among the node's
//! [`PARTITIONS_OF_NODE`] partitions of the highest weights. So a node that joins or leaves changes
//! only its own partitions. Decision 0045 in docs/decisions gives the reasons and the figures.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use crate::node::state::timers::BEAT_INTERVAL;
use crate::partition::Standing;
use crate::protocol::partition_map::Tag;

/// How many nodes attend each partition, if the queue has that many.
const NODES_OF_PARTITION: usize = 3;
/// How many partitions each node attends, if the queue has that many. So a node that is not among
/// the first three of any partition still finds work.
const PARTITIONS_OF_NODE: usize = 4;

/// Time between two beats of a standby of rank 2 or more. Redis forgets a node after 3 s.
const LATE_RANK_INTERVAL: Duration = Duration::from_secs(2);
/// Time between two watches of a large roster. Each change of it costs every node a reply with all
/// names: 25 KB for 1,000 nodes.
const LARGE_WATCH_INTERVAL: Duration = Duration::from_millis(1_500);
/// From this number of nodes on, a roster counts as large.
const LARGE_ROSTER: usize = 200;
/// Each interval between watches is up to this much shorter or longer, so that nodes that started
/// together spread out.
const WATCH_JITTER: Duration = Duration::from_millis(25);

/// The time between two beats of a node of this rank. The rank is `None` in a queue of one
/// partition.
pub(crate) fn beat_interval(rank: Option<usize>, is_leader: bool) -> Duration {
    match rank {
        Some(2..) if !is_leader => LATE_RANK_INTERVAL,
        _ => BEAT_INTERVAL,
    }
}

/// The claim to the lead that a beat of a node of this rank makes.
pub(crate) fn standing(rank: Option<usize>) -> Standing {
    match rank {
        None => Standing::Any,
        Some(0) => Standing::First,
        Some(_) => Standing::Second,
    }
}

/// The time between two watches of a roster with this many nodes. `part` (0 to 1) spreads the
/// watches.
pub(crate) fn watch_interval(nodes: usize, part: f64) -> Duration {
    let interval = if nodes < LARGE_ROSTER {
        BEAT_INTERVAL
    } else {
        LARGE_WATCH_INTERVAL
    };
    interval - WATCH_JITTER + 2 * WATCH_JITTER.mul_f64(part)
}

/// The live nodes of a queue, as sorted hashes of their names. Clones share them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Roster(Arc<[u64]>);

impl Roster {
    /// Makes the roster of the nodes with these names.
    pub(crate) fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let mut nodes: Vec<_> = names.into_iter().map(hash).collect();
        nodes.sort_unstable();
        nodes.dedup();
        Self(nodes.into())
    }

    /// How many nodes the roster has.
    pub(crate) fn nodes(&self) -> usize {
        self.0.len()
    }
}

/// The ranks of one node in the partitions of a queue.
///
/// A change of the roster costs one comparison for each node and one hash for each partition and
/// node that joined or left. 1,000 nodes that join 256 partitions cost 256,000 hashes, once.
pub(crate) struct Ranking {
    /// The hash of this node's name.
    node: u64,
    roster: Roster,
    partitions: Vec<Partition>,
}

/// A partition, and the rank of this node in it.
struct Partition {
    tag: Tag,
    hash: u64,
    /// The weight of this node in the partition.
    weight: u64,
    /// How many nodes of the roster have a higher weight in the partition.
    rank: usize,
    /// Whether the partition is among those in which this node has its highest weights.
    is_own: bool,
}

impl Partition {
    /// The node's rank, if the node attends this partition.
    fn own_rank(&self) -> Option<usize> {
        (self.is_own || self.rank < NODES_OF_PARTITION).then_some(self.rank)
    }
}

impl Ranking {
    /// Makes the ranking for the partitions with these tags. Until the first
    /// [`update`](Self::update), the roster has only this node.
    pub(crate) fn new(queue_name: &str, tags: &[Tag], node: &str) -> Self {
        let node = hash(node);
        let mut partitions: Vec<_> = tags
            .iter()
            .map(|tag| {
                let hash = hash(&format!("{queue_name}/{tag}"));
                Partition {
                    tag: *tag,
                    hash,
                    weight: weight(node, hash),
                    rank: 0,
                    is_own: true,
                }
            })
            .collect();
        if let Some(last) = partitions.len().checked_sub(PARTITIONS_OF_NODE + 1) {
            partitions.select_nth_unstable_by_key(last, |partition| partition.weight);
            for partition in &mut partitions[..=last] {
                partition.is_own = false;
            }
            partitions.sort_unstable_by_key(|partition| partition.tag);
        }
        Self {
            node,
            roster: Roster([node].into()),
            partitions,
        }
    }

    /// Sets the roster, to which this node always belongs. Returns whether the attended partitions
    /// or the ranks may have changed.
    pub(crate) fn update(&mut self, roster: &Roster) -> bool {
        let (old, new) = (std::mem::replace(&mut self.roster, roster.clone()), roster);
        let (mut left, mut joined, mut is_changed) = (0, 0, false);
        loop {
            match (old.0.get(left), new.0.get(joined)) {
                (Some(gone), other) if other.is_none_or(|other| gone < other) => {
                    is_changed |= self.count(*gone, |rank| *rank -= 1);
                    left += 1;
                }
                (other, Some(new)) if other.is_none_or(|other| new < other) => {
                    is_changed |= self.count(*new, |rank| *rank += 1);
                    joined += 1;
                }
                (Some(_), Some(_)) => {
                    left += 1;
                    joined += 1;
                }
                _ => return is_changed,
            }
        }
    }

    /// The partitions that the node attends, by tag, with its rank in each: 0 is the first.
    pub(crate) fn ranks(&self) -> impl Iterator<Item = (Tag, usize)> {
        let own = |partition: &Partition| Some((partition.tag, partition.own_rank()?));
        self.partitions.iter().filter_map(own)
    }

    /// How many nodes of the roster come before this node in a partition; `None` if the queue has no
    /// such partition.
    pub(crate) fn rank(&self, tag: Tag) -> Option<usize> {
        let of = |partition: &&Partition| partition.tag == tag;
        self.partitions
            .iter()
            .find(of)
            .map(|partition| partition.rank)
    }

    /// Changes the ranks in the partitions where `other` comes before this node. Returns whether
    /// this node attends one of them, before or after.
    fn count(&mut self, other: u64, change: impl Fn(&mut usize)) -> bool {
        if other == self.node {
            return false;
        }
        let mut is_changed = false;
        for partition in &mut self.partitions {
            // Of two nodes with equal weights, the one with the greater hash comes first.
            let own = (partition.weight, self.node);
            if (weight(other, partition.hash), other) > own {
                let before = partition.own_rank();
                change(&mut partition.rank);
                is_changed |= before.or(partition.own_rank()).is_some();
            }
        }
        is_changed
    }
}

/// The hash FNV-1a.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3)
    })
}

/// The finalizer of SplitMix64: each bit of the input changes half of the bits of the result.
fn weight(node: u64, partition: u64) -> u64 {
    // The product keeps nodes and partitions apart even if their hashes differ in the same bits.
    let mut mixed = node ^ partition.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}
