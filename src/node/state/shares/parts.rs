//! Splits the handlers of a queue between its partitions, which share what the queue may have.

use std::cmp::Reverse;
use std::time::Instant;

use super::{Shares, Want};
use crate::node::{PartitionId, QueueId};

/// A queue's handlers are split between its partitions only if each gets so many: a claim for many
/// messages costs little more than a claim for one.
const MIN_PART: usize = 32;

/// A partition that competes for handlers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    pub(crate) id: PartitionId,
    pub(crate) queue: QueueId,
    /// The `allot` in which it last got a handler.
    pub(crate) served: u64,
}

impl Shares {
    /// Gives free handlers to the partitions of `wants`, at most what each asks for, and counts them
    /// as those of its queue. Of a queue's partitions those come first that got none for the longest
    /// time.
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

/// Splits the handlers of a queue between its partitions, the first ones first.
fn split(parts: &[Want<Part>], handlers: usize) -> Vec<(PartitionId, usize)> {
    let even = handlers.div_ceil(parts.len().max(1)).max(MIN_PART);
    let mut rest = handlers;
    let mut grants: Vec<_> = parts.iter().map(|part| (part.id.id, 0)).collect();
    // Then what some did not ask for.
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

#[cfg(test)]
mod tests;
