//! Splits the handlers of a queue between its partitions, which share what the queue may have.

use std::cmp::Reverse;
use std::time::Instant;

use super::{Shares, Want};
use crate::node::{PartitionId, QueueId};

/// A queue's handlers are split between its partitions only if each gets at least this many: one
/// claim for many messages costs little more than a claim for one.
const MIN_PART: usize = 32;

/// A partition that competes for handlers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    pub(crate) id: PartitionId,
    pub(crate) queue: QueueId,
    /// The number of the `allot` in which the partition last got a handler.
    pub(crate) served: u64,
}

impl Shares {
    /// Gives free handlers to the partitions of `wants`, at most as many as each asks for, and
    /// counts them for their queues. Among a queue's partitions, those come first that have got
    /// none for the longest time.
    pub(crate) fn allot_parts(
        &mut self,
        wants: &[Want<Part>],
        now: Instant,
    ) -> Vec<(PartitionId, usize)> {
        let mut parts = wants.to_vec();
        parts.sort_by_key(|part| part.id.queue);
        let mut sums: Vec<Want<QueueId>> = Vec::new();
        for part in &parts {
            match sums.last_mut() {
                Some(sum) if sum.id == part.id.queue => {
                    sum.handlers += part.handlers;
                    sum.soon += part.soon;
                    sum.waited = sum.waited.max(part.waited);
                }
                _ => sums.push(Want {
                    id: part.id.queue,
                    handlers: part.handlers,
                    soon: part.soon,
                    waited: part.waited,
                }),
            }
        }
        let mut grants = Vec::new();
        for (queue, handlers) in self.allot(&sums, now) {
            let first = parts.partition_point(|part| part.id.queue < queue);
            let end = parts.partition_point(|part| part.id.queue <= queue);
            let parts = &mut parts[first..end];
            parts.sort_by_key(|part| (part.id.served, Reverse(part.waited)));
            grants.extend(split(parts, handlers));
        }
        grants
    }

    /// The number of the last `allot`.
    pub(crate) fn allots(&self) -> u64 {
        self.allots
    }
}

/// Splits the handlers of a queue between its partitions. Earlier ones in the list come first.
fn split(parts: &[Want<Part>], handlers: usize) -> Vec<(PartitionId, usize)> {
    let even = handlers.div_ceil(parts.len().max(1)).max(MIN_PART);
    let mut rest = handlers;
    let mut grants: Vec<_> = parts.iter().map(|part| (part.id.id, 0)).collect();
    // First even parts, and then the handlers that some partitions did not ask for.
    for most in [even, usize::MAX] {
        for (part, (_, granted)) in parts.iter().zip(&mut grants) {
            let more = (part.handlers.min(most) - *granted).min(rest);
            *granted += more;
            rest -= more;
        }
    }
    grants.retain(|(_, granted)| *granted > 0);
    grants
}

/// Tests of the split between partitions. `simulation` runs handlers on simulated time.
#[cfg(test)]
mod tests {
    mod simulation;

    use std::time::Duration;

    use super::*;
    use crate::node::consumers::slots::Ended;
    use crate::node::state::shares::{Order, ShareSettings};

    const QUEUE: QueueId = QueueId(1);
    const OTHER: QueueId = QueueId(9);

    fn shares(concurrency: usize) -> Shares {
        let mut shares = Shares::new(concurrency, Order::Weighted);
        let settings = ShareSettings {
            weight: 1,
            reserve: 0,
            max: usize::MAX,
        };
        for queue in [QUEUE, OTHER] {
            shares.add(queue, settings).expect("valid settings");
        }
        shares
    }

    /// The want of a partition. Number 9 is the only one of the other queue.
    fn want(partition: u32, handlers: usize, waited_ms: u64) -> Want<Part> {
        Want {
            id: Part {
                id: PartitionId(partition),
                queue: if partition == 9 { OTHER } else { QUEUE },
                served: 0,
            },
            handlers,
            soon: 0,
            waited: Duration::from_millis(waited_ms),
        }
    }

    fn unused(handlers: usize) -> Ended {
        Ended {
            unused: handlers,
            ..Ended::default()
        }
    }

    #[test]
    fn a_queue_has_one_share_with_three_partitions_or_one() {
        let mut shares = shares(8);
        let wants: Vec<_> = [1, 2, 3, 9].map(|partition| want(partition, 8, 0)).into();
        let grants = shares.allot_parts(&wants, Instant::now());
        let of = |partition| {
            let mut grants = grants.iter();
            let found = grants.find(|(id, _)| *id == PartitionId(partition));
            found.map_or(0, |(_, handlers)| *handlers)
        };
        assert_eq!(of(1) + of(2) + of(3), 4);
        assert_eq!(of(9), 4);
        assert_eq!(shares.free(), 0);
        for queue in [QUEUE, OTHER] {
            shares.release(queue, unused(4), Instant::now());
        }
        assert_eq!(shares.free(), 8);
    }

    #[test]
    fn the_longest_waiting_partition_gets_the_next_handler() {
        let mut shares = shares(10);
        let mut wants = [want(1, 10, 1), want(2, 10, 7), want(3, 10, 3)];
        let mut order = Vec::new();
        for _ in 0..6 {
            let grants = shares.allot_parts(&wants, Instant::now());
            shares.release(QUEUE, unused(10), Instant::now());
            for want in &mut wants {
                if want.id.id == grants[0].0 {
                    want.id.served = shares.allots();
                }
            }
            order.extend(grants);
        }
        let turns = [2, 3, 1].map(|number| (PartitionId(number), 10));
        assert_eq!(order, [turns, turns].concat());
    }

    #[test]
    fn many_handlers_are_split_evenly_between_partitions() {
        let wants = [want(1, 150, 3), want(2, 150, 2), want(3, 20, 1)];
        let grants = shares(300).allot_parts(&wants, Instant::now());
        let expected = [(1, 150), (2, 130), (3, 20)].map(|(id, n)| (PartitionId(id), n));
        assert_eq!(grants, expected);
    }
}
