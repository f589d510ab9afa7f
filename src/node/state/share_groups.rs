//! The handlers of a node's partitions: all partitions of a queue share what the queue may have.
//! Pure.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use crate::node::consumers::slots::{Ended, HandlerPermits, PartitionSlots};
use crate::node::state::shares::{Order, ShareError, ShareSettings, Shares, Want};
use crate::node::{PartitionId, QueueId};

/// A queue's handlers are split between its partitions only if each gets so many: a claim for many
/// messages costs little more than a claim for one.
const MIN_PART: usize = 32;

/// The running handlers of a node, by partition. Those of one queue are a group.
pub(crate) struct ShareGroups {
    shares: Shares,
    members: HashMap<PartitionId, Member>,
    /// Grows with each `allot`.
    allots: u64,
}

/// One partition.
struct Member {
    group: QueueId,
    slots: Arc<PartitionSlots>,
    /// The handlers that it has, and how many of these have started.
    running: usize,
    started: usize,
    is_paused: bool,
    /// The `allot` in which it last got a handler.
    served: u64,
}

impl ShareGroups {
    pub(crate) fn new(concurrency: usize, order: Order) -> Self {
        Self {
            shares: Shares::new(concurrency, order),
            members: HashMap::new(),
            allots: 0,
        }
    }

    /// Adds a queue behind those added before. After an error nothing has changed.
    pub(crate) fn add_group(
        &mut self,
        group: QueueId,
        settings: ShareSettings,
    ) -> Result<(), ShareError> {
        self.shares.add(group, settings)
    }

    /// Gives the queue nothing more.
    pub(crate) fn remove_group(&mut self, group: QueueId) {
        self.shares.remove(group);
    }

    /// A partition of the queue that has this group.
    pub(crate) fn add(
        &mut self,
        partition: PartitionId,
        group: QueueId,
        slots: Arc<PartitionSlots>,
    ) {
        let member = Member {
            group,
            slots,
            running: 0,
            started: 0,
            is_paused: false,
            served: 0,
        };
        self.members.insert(partition, member);
        self.pause_group(group);
    }

    /// The partition runs nothing more.
    pub(crate) fn remove(&mut self, partition: PartitionId, now: Instant) {
        if let Some(member) = self.members.remove(&partition) {
            let ended = Ended {
                unused: member.running - member.started,
                ran: member.started,
                ago: 0.0,
            };
            self.shares.release(member.group, ended, now);
            self.pause_group(member.group);
        }
    }

    /// While a partition is paused it gets nothing. The queue's share and reserve go to other queues
    /// while all of its partitions are paused.
    pub(crate) fn set_paused(&mut self, partition: PartitionId, paused: bool) {
        if let Some(member) = self.members.get_mut(&partition)
            && std::mem::replace(&mut member.is_paused, paused) != paused
        {
            let group = member.group;
            self.pause_group(group);
        }
    }

    fn pause_group(&mut self, group: QueueId) {
        let mut members = self.members.values().filter(|member| member.group == group);
        let is_paused = members.all(|member| member.is_paused);
        self.shares.set_paused(group, is_paused);
    }

    /// Gives free handlers to the partitions of `wants`, at most what each asks for, and counts them
    /// as running. Of a queue's partitions those come first that got none for the longest time.
    pub(crate) fn allot(
        &mut self,
        wants: &[Want<PartitionId>],
        now: Instant,
    ) -> Vec<(PartitionId, HandlerPermits)> {
        let counts = self.count(wants, now).into_iter();
        let permits = counts.filter_map(|(partition, handlers)| {
            let member = self.members.get(&partition)?;
            Some((partition, member.slots.permits(handlers)))
        });
        permits.collect()
    }

    /// `allot` without the permits.
    fn count(&mut self, wants: &[Want<PartitionId>], now: Instant) -> Vec<(PartitionId, usize)> {
        let mut sums: Vec<Want<QueueId>> = Vec::new();
        let mut groups: HashMap<QueueId, (usize, Vec<Want<PartitionId>>)> = HashMap::new();
        for want in wants {
            let member = self.members.get(&want.id);
            let Some(member) = member.filter(|member| !member.is_paused) else {
                continue;
            };
            let (index, parts) = groups.entry(member.group).or_insert_with(|| {
                sums.push(Want {
                    id: member.group,
                    handlers: 0,
                    soon: 0,
                    waited: want.waited,
                });
                (sums.len() - 1, Vec::new())
            });
            let sum = &mut sums[*index];
            sum.handlers += want.handlers;
            sum.soon += want.soon;
            sum.waited = sum.waited.max(want.waited);
            parts.push(*want);
        }
        let mut grants = Vec::new();
        for (group, handlers) in self.shares.allot(&sums, now) {
            if let Some((_, parts)) = groups.get_mut(&group) {
                let served =
                    |want: &Want<PartitionId>| self.members.get(&want.id).map(|m| m.served);
                parts.sort_by_key(|want| (served(want), Reverse(want.waited)));
                grants.extend(split(parts, handlers));
            }
        }
        self.allots += 1;
        for (partition, handlers) in &grants {
            if let Some(member) = self.members.get_mut(partition) {
                member.running += handlers;
                member.served = self.allots;
            }
        }
        grants
    }

    /// Handlers of the partition have started: from now on their time is charged.
    pub(crate) fn start(&mut self, partition: PartitionId, handlers: usize, now: Instant) {
        if let Some(member) = self.members.get_mut(&partition) {
            member.started += handlers;
            self.shares.start(member.group, handlers, now);
        }
    }

    /// Counts the handlers of the partition that ended, or were not needed. Returns how many it has.
    pub(crate) fn collect(&mut self, partition: PartitionId, now: Instant) -> usize {
        let slots = self.members.get(&partition).map(|member| &member.slots);
        let ended = slots.map(|slots| slots.take_ended(now)).unwrap_or_default();
        self.release(partition, ended, now);
        self.running(partition)
    }

    fn release(&mut self, partition: PartitionId, ended: Ended, now: Instant) {
        if let Some(member) = self.members.get_mut(&partition) {
            member.running = member.running.saturating_sub(ended.unused + ended.ran);
            member.started = member.started.saturating_sub(ended.ran);
            self.shares.release(member.group, ended, now);
        }
    }

    /// Whether each partition has as many handlers as there are permits of it.
    pub(crate) fn is_consistent(&self) -> bool {
        let mut members = self.members.values();
        members.all(|member| member.running == member.slots.counted())
    }

    /// How many handlers the partition has.
    pub(crate) fn running(&self, partition: PartitionId) -> usize {
        let member = self.members.get(&partition);
        member.map_or(0, |member| member.running)
    }

    /// How many handlers no queue has, reserved ones included.
    pub(crate) fn free(&self) -> usize {
        self.shares.free()
    }

    /// How many handlers the partition would get now if no other wanted any.
    pub(crate) fn free_for(&self, partition: PartitionId) -> usize {
        let member = self.members.get(&partition);
        let member = member.filter(|member| !member.is_paused);
        member.map_or(0, |member| self.shares.free_for(member.group))
    }
}

/// Splits the handlers of a queue between its partitions, the first ones first.
fn split(parts: &[Want<PartitionId>], handlers: usize) -> Vec<(PartitionId, usize)> {
    let even = handlers.div_ceil(parts.len().max(1)).max(MIN_PART);
    let mut rest = handlers;
    let mut grants: Vec<_> = parts.iter().map(|part| (part.id, 0)).collect();
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
