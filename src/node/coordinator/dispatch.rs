//! The rules of dispatch: which partition gets the free handlers, and when it claims.

use std::time::{Duration, Instant};

use crate::node::PartitionId;
use crate::node::consumers::slots::HandlerPermits;
use crate::node::coordinator::Coordinator;
use crate::node::state::claim_state::Wanted;
use crate::node::state::partition::NodePartition;
use crate::node::state::shares::Want;
use crate::node::state::shares::parts::Part;
use crate::protocol::counts::MAX_CLAIM;

/// How long to wait for more handlers to end before a claim: handlers often end together, and a
/// claim for many messages costs little more than a claim for one.
const GATHER: Duration = Duration::from_micros(100);

impl Coordinator {
    /// Marks the partition as one that has work, or may have some.
    pub(crate) fn want(&mut self, id: PartitionId, now: Instant) {
        self.want_for(id, Wanted::Woken, now);
    }

    pub(crate) fn want_for(&mut self, id: PartitionId, reason: Wanted, now: Instant) {
        if self.wake.is_some()
            && let Some(partition) = self.partitions.get_mut(&id)
            && partition.is_attending()
        {
            if !partition.is_needed() {
                // `rest` forgets failures, but they must keep counting while look-ups fail.
                if !partition.lost.must_look_up() {
                    partition.claim.rest();
                }
                return;
            }
            match partition.claim.want(reason, now) {
                // The timer of the pause may have been replaced by an earlier one, so it is set
                // again.
                Some(pause) => partition.timers.claim_at(pause, &mut self.timers, now),
                None => drop(self.competing.insert(id)),
            }
        }
    }

    /// Sends claims for the partitions that want one, as far as handlers are free.
    pub(crate) fn dispatch(&mut self, now: Instant) {
        self.look_up_lost(now);
        for claim in self.ends.take_claims() {
            self.leases.ended(claim, &mut self.timers);
        }
        // Twice, because a permit that returned before `arm` does not wake the coordinator.
        for _ in 0..2 {
            self.collect_ended();
            self.accept_refused(now);
            self.end_drained(now);
            // While no handler is free, the node waits for no wake-up tokens.
            let waits = self.claim_wanted(now)
                || self.shares.free() == 0
                || self.membership.is_draining()
                || self.wake_lists.refused().next().is_some();
            if !waits {
                break;
            }
            self.ends.arm();
        }
        debug_assert!(self.shares.held() == 0 || !self.competing.is_empty());
        #[cfg(test)]
        self.assert_counted();
        let free = self.shares.free();
        self.membership.health.free_handlers_are(free);
    }

    /// Asserts that there is a permit for every handler that the shares count.
    #[cfg(test)]
    fn assert_counted(&self) {
        let partitions = self
            .competing
            .iter()
            .filter_map(|id| self.partitions.get(id));
        let permits: usize = partitions.map(|partition| partition.slots.held()).sum();
        assert_eq!(permits, self.shares.held(), "a handler is not counted");
    }

    /// Claims instead of a promote: the claim takes due messages whether they were promoted or not,
    /// and so replaces the promote, the wake-up token and the claim. Only the leader does so: a
    /// standby must first find out whether the leader is alive. A leader whose handlers are busy
    /// does so only if it is the only node: otherwise it would take messages that idle nodes could
    /// handle at once.
    pub(crate) fn claims_instead(&mut self, id: PartitionId, now: Instant) -> bool {
        self.collect_ended();
        let Some(partition) = self.partitions.get(&id) else {
            return false;
        };
        // One of several partitions often has a claim in flight. So a node with several partitions
        // counts as busy when fewer than half of its handlers are free.
        let is_idle = self.shares.held() == 0
            || partition.timers.rank.is_some() && self.shares.free() * 2 >= self.concurrency;
        if self.wake.is_none()
            || partition.lost.must_look_up()
            || !partition.timers.is_leader(now)
            || !(is_idle || partition.timers.is_alone())
        {
            return false;
        }
        let may_claim = partition.is_attending() && !partition.is_drained;
        if !partition.claim.is_idle(now) || !may_claim || partition.room() == 0 {
            return false;
        }
        let want = self.want_of(partition, now);
        self.allot_to(want, now)
            .is_some_and(|permits| self.start_claim(id, permits, true))
    }

    /// Allots handlers to this partition only. Other partitions that compete keep their parts.
    pub(crate) fn allot_to(&mut self, want: Want<Part>, now: Instant) -> Option<HandlerPermits> {
        let mut wants = self.competitors(now);
        wants.retain(|other| other.id.id != want.id.id);
        for other in &mut wants {
            other.soon += std::mem::take(&mut other.handlers);
        }
        let partition = self.partitions.get(&want.id.id);
        wants.extend(partition.filter(|it| it.is_open).map(|_| want));
        let (_, permits) = self.allot(&wants, now).into_iter().next()?;
        Some(permits)
    }

    /// Allots free handlers to the partitions of `wants`.
    pub(crate) fn allot(
        &mut self,
        wants: &[Want<Part>],
        now: Instant,
    ) -> Vec<(PartitionId, HandlerPermits)> {
        let grants = self.shares.allot_parts(wants, now).into_iter();
        let permits = grants.filter_map(|(id, handlers)| {
            let partition = self.partitions.get_mut(&id)?;
            self.competing.insert(id);
            Some((id, partition.permits(handlers, self.shares.allots())))
        });
        permits.collect()
    }

    /// How many handlers the partition would get now if no other partition wanted any.
    pub(crate) fn free_for(&self, id: PartitionId) -> usize {
        let partition = self.partitions.get(&id).filter(|it| it.is_open);
        partition.map_or(0, |it| self.shares.free_for(it.queue))
    }

    /// Claims for the partitions that want to. Returns whether a partition waits for a handler to
    /// end.
    fn claim_wanted(&mut self, now: Instant) -> bool {
        if self.shares.free() == 0 {
            // This path has a constant cost, however many partitions want to claim.
            self.gather_until = None;
            return true;
        }
        self.rest_unneeded();
        let (mut unmet, mut is_open, mut gathers, mut has_deliveries) = (false, false, true, false);
        for partition in self
            .competing
            .iter()
            .filter_map(|id| self.partitions.get(id))
        {
            has_deliveries |= partition.consumer.waiting() > 0 && partition.is_busy();
            let Some(reason) = partition.claim.wanted() else {
                continue;
            };
            let free = self.free_for(partition.id);
            if free == 0 || partition.room() == 0 {
                unmet = true;
                continue;
            }
            is_open = true;
            let enough = partition.context.max_handlers.min(MAX_CLAIM) / 2;
            gathers = gathers && reason == Wanted::MoreLeft && free < enough && partition.is_busy();
        }
        unmet |= has_deliveries;
        if !is_open && !has_deliveries {
            // Cleared, because an instant in the past would wake the coordinator again and again.
            self.gather_until = None;
            return unmet;
        }
        if gathers && !has_deliveries {
            let until = *self.gather_until.get_or_insert(now + GATHER);
            if now < until {
                return unmet;
            }
        }
        self.gather_until = None;
        let wants = self.competitors(now);
        let wanted = wants.iter().filter(|want| want.handlers > 0).count();
        let grants = self.allot(&wants, now);
        unmet |= grants.len() < wanted;
        for (id, permits) in grants {
            self.use_permits(id, permits, now);
        }
        unmet
    }

    /// Forgets wanted claims that are no longer needed, and partitions that no longer compete.
    fn rest_unneeded(&mut self) {
        let mut unneeded = Vec::new();
        self.competing.retain(|id| {
            let Some(partition) = self.partitions.get_mut(id) else {
                return false;
            };
            if partition.claim.is_wanted() && !partition.is_needed() {
                // The pulls that wanted the claim have ended, or the node was drained.
                if partition.claim.rest() == Some(Wanted::Woken) {
                    unneeded.push(*id);
                }
            }
            if partition.claim.is_wanted() && !partition.takes_messages() {
                // The queue is paused. Its resume will wake the nodes.
                partition.claim.stop();
            }
            partition.claim.is_wanted() || partition.is_busy()
        });
        for id in unneeded {
            // A wake-up token may have come for that claim.
            self.return_token(id);
        }
    }

    /// What the partitions that compete for handlers ask for. A partition with a backlog competes
    /// even while it cannot claim: its part of the free handlers is kept for its next claim.
    fn competitors(&self, now: Instant) -> Vec<Want<Part>> {
        let competing = self
            .competing
            .iter()
            .filter_map(|id| self.partitions.get(id));
        let open = competing.filter(|partition| partition.is_open);
        let wants = open.filter_map(|partition| {
            let mut want = self.want_of(partition, now);
            if partition.room() == 0 {
                want.handlers = 0;
            } else if partition.claim.will_continue(now) {
                want.soon = std::mem::take(&mut want.handlers);
            } else if partition.claim.wanted().is_none() {
                want.handlers = 0;
            }
            want.handlers += partition.consumer.waiting();
            (want.handlers + want.soon > 0).then_some(want)
        });
        wants.collect()
    }

    /// The want of a partition that can claim now.
    pub(crate) fn want_of(&self, partition: &NodePartition, now: Instant) -> Want<Part> {
        let free = self.shares.free();
        // Handlers that a claim does not need come back only with its reply. So with several
        // queues, a queue asks for half of the free handlers only. With a known backlog it asks for
        // all of them: otherwise it would get less than its share.
        let handlers = if self.partitions.len() == 1 {
            free
        } else if partition.claim.has_backlog() {
            free.min(partition.expected)
        } else {
            free.div_ceil(2)
        };
        partition.want(handlers.clamp(1, MAX_CLAIM), now)
    }
}

#[cfg(test)]
mod tests;
