//! The handlers of a node's partitions: all partitions of a queue share what the queue may have.
//! Pure.

use std::collections::HashMap;

use crate::node::queue_number::QueueNumber;
use crate::node::shares::{Order, ShareError, ShareSettings, Shares, Want};

/// A queue's handlers are split between its partitions only if each gets so many: a claim for many
/// messages costs little more than a claim for one.
const MIN_PART: usize = 32;

/// The running handlers of a node, by partition. The number of a queue is that of its group.
pub(crate) struct ShareGroups {
    shares: Shares,
    members: HashMap<QueueNumber, Member>,
}

/// One partition.
struct Member {
    group: QueueNumber,
    running: usize,
    is_paused: bool,
}

impl ShareGroups {
    pub(crate) fn new(concurrency: usize, order: Order) -> Self {
        Self {
            shares: Shares::new(concurrency, order),
            members: HashMap::new(),
        }
    }

    /// Adds a queue behind those added before. After an error nothing has changed.
    pub(crate) fn add_group(
        &mut self,
        group: QueueNumber,
        settings: ShareSettings,
    ) -> Result<(), ShareError> {
        self.shares.add(group, settings)
    }

    /// Gives the queue nothing more.
    pub(crate) fn remove_group(&mut self, group: QueueNumber) {
        self.shares.remove(group);
    }

    /// A partition of the queue that has this group.
    pub(crate) fn add(&mut self, partition: QueueNumber, group: QueueNumber) {
        let member = Member {
            group,
            running: 0,
            is_paused: false,
        };
        self.members.insert(partition, member);
        self.pause_group(group);
    }

    /// The partition runs nothing more.
    pub(crate) fn remove(&mut self, partition: QueueNumber) {
        if let Some(member) = self.members.remove(&partition) {
            self.shares.release(member.group, member.running);
            self.pause_group(member.group);
        }
    }

    /// While a partition is paused it gets nothing. The queue's share and reserve go to other queues
    /// while all of its partitions are paused.
    pub(crate) fn set_paused(&mut self, partition: QueueNumber, paused: bool) {
        if let Some(member) = self.members.get_mut(&partition)
            && std::mem::replace(&mut member.is_paused, paused) != paused
        {
            let group = member.group;
            self.pause_group(group);
        }
    }

    fn pause_group(&mut self, group: QueueNumber) {
        let mut members = self.members.values().filter(|member| member.group == group);
        let is_paused = members.all(|member| member.is_paused);
        self.shares.set_paused(group, is_paused);
    }

    /// Gives free handlers to the partitions of `wants`, at most what each asks for, and counts them
    /// as running. Of a queue's partitions the longest waiting come first.
    pub(crate) fn allot(&mut self, wants: &[Want]) -> Vec<(QueueNumber, usize)> {
        let mut groups: Vec<(Want, Vec<Want>)> = Vec::new();
        for want in wants {
            let Some(member) = self.members.get(&want.queue) else {
                continue;
            };
            if member.is_paused {
                continue;
            }
            let group = member.group;
            match groups.iter_mut().find(|(sum, _)| sum.queue == group) {
                Some((sum, parts)) => {
                    sum.handlers += want.handlers;
                    sum.waited = sum.waited.max(want.waited);
                    parts.push(*want);
                }
                None => groups.push((
                    Want {
                        queue: group,
                        ..*want
                    },
                    vec![*want],
                )),
            }
        }
        let sums: Vec<_> = groups.iter().map(|(sum, _)| *sum).collect();
        let mut grants = Vec::new();
        for (group, handlers) in self.shares.allot(&sums) {
            let of_group = |(sum, _): &&(Want, Vec<Want>)| sum.queue == group;
            let parts = groups.iter().find(of_group).map(|(_, parts)| &parts[..]);
            grants.extend(split(parts.unwrap_or_default(), handlers));
        }
        for (partition, handlers) in &grants {
            if let Some(member) = self.members.get_mut(partition) {
                member.running += handlers;
            }
        }
        grants
    }

    /// Handlers of the partition ended, or it did not need them.
    pub(crate) fn release(&mut self, partition: QueueNumber, handlers: usize) {
        if let Some(member) = self.members.get_mut(&partition) {
            member.running = member.running.saturating_sub(handlers);
            self.shares.release(member.group, handlers);
        }
    }

    /// How many handlers the partition has.
    pub(crate) fn running(&self, partition: QueueNumber) -> usize {
        let member = self.members.get(&partition);
        member.map_or(0, |member| member.running)
    }

    /// How many handlers no queue has, reserved ones included.
    pub(crate) fn free(&self) -> usize {
        self.shares.free()
    }

    /// How many handlers the partition would get now if no other wanted any.
    pub(crate) fn free_for(&self, partition: QueueNumber) -> usize {
        let member = self.members.get(&partition);
        let member = member.filter(|member| !member.is_paused);
        member.map_or(0, |member| self.shares.free_for(member.group))
    }
}

/// Splits the handlers of a queue between its partitions.
fn split(parts: &[Want], handlers: usize) -> Vec<(QueueNumber, usize)> {
    let mut parts = parts.to_vec();
    parts.sort_by_key(|want| std::cmp::Reverse(want.waited));
    let even = handlers.div_ceil(parts.len().max(1)).max(MIN_PART);
    let mut rest = handlers;
    let mut grants: Vec<_> = parts.iter().map(|part| (part.queue, 0)).collect();
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
mod tests {
    use std::time::Duration;

    use super::*;

    const GROUP: QueueNumber = QueueNumber(1);
    const OTHER: QueueNumber = QueueNumber(9);

    fn groups(concurrency: usize) -> ShareGroups {
        let mut groups = ShareGroups::new(concurrency, Order::Weighted);
        let settings = ShareSettings {
            weight: 1,
            reserve: 0,
            max: usize::MAX,
        };
        for group in [GROUP, OTHER] {
            groups.add_group(group, settings).expect("valid settings");
        }
        for partition in 1..=3 {
            groups.add(QueueNumber(partition), GROUP);
        }
        groups.add(OTHER, OTHER);
        groups
    }

    fn want(queue: u32, handlers: usize, waited_ms: u64) -> Want {
        Want {
            queue: QueueNumber(queue),
            handlers,
            waited: Duration::from_millis(waited_ms),
        }
    }

    #[test]
    fn a_queue_of_three_partitions_weighs_as_much_as_one() {
        let mut groups = groups(8);
        let wants: Vec<_> = [1, 2, 3, 9].map(|queue| want(queue, 8, 0)).into();
        let grants = groups.allot(&wants);
        let of = |queue| {
            let found = grants
                .iter()
                .find(|(number, _)| *number == QueueNumber(queue));
            found.map_or(0, |(_, handlers)| *handlers)
        };
        assert_eq!(of(1) + of(2) + of(3), 4);
        assert_eq!(of(9), 4);
        assert_eq!(groups.free(), 0);
        for (number, handlers) in grants {
            assert_eq!(groups.running(number), handlers);
            groups.release(number, handlers);
        }
        assert_eq!(groups.free(), 8);
    }

    #[test]
    fn the_longest_waiting_partition_comes_first() {
        let mut groups = groups(10);
        let grants = groups.allot(&[want(1, 10, 1), want(2, 10, 7), want(3, 10, 3)]);
        assert_eq!(grants, [(QueueNumber(2), 10)]);
    }

    #[test]
    fn many_handlers_are_split_evenly() {
        let mut groups = groups(300);
        let grants = groups.allot(&[want(1, 150, 3), want(2, 150, 2), want(3, 20, 1)]);
        let expected = [(1, 150), (2, 130), (3, 20)].map(|(queue, n)| (QueueNumber(queue), n));
        assert_eq!(grants, expected);
    }

    #[test]
    fn a_paused_partition_gets_nothing_its_queue_goes_on() {
        let mut groups = groups(10);
        groups.set_paused(QueueNumber(1), true);
        assert_eq!(groups.free_for(QueueNumber(1)), 0);
        assert_eq!(groups.free_for(QueueNumber(2)), 10);
        let grants = groups.allot(&[want(1, 10, 9), want(2, 10, 1)]);
        assert_eq!(grants, [(QueueNumber(2), 10)]);
    }

    #[test]
    fn a_partition_that_leaves_frees_its_handlers() {
        let mut groups = groups(10);
        groups.allot(&[want(2, 6, 0)]);
        groups.remove(QueueNumber(2));
        assert_eq!((groups.free(), groups.running(QueueNumber(2))), (10, 0));
        assert_eq!(groups.free_for(QueueNumber(3)), 10);
    }
}
