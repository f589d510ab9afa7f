//! The coordinator's claims: which partition gets the free handlers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::delivery::Delivery;
use crate::model::lease_token::LeaseToken;
use crate::node::PartitionId;
use crate::node::consumers::guard::HandlerGuard;
use crate::node::consumers::slots::HandlerPermits;
use crate::node::coordinator::Coordinator;
use crate::node::coordinator::event::{Claimed, Event, Reply};
use crate::node::coordinator::look_ups::release;
use crate::node::runtime::task::Task;
use crate::node::state::claim_state::Wanted;
use crate::node::state::partition::NodePartition;
use crate::node::state::shares::Want;
use crate::protocol::counts::MAX_CLAIM;

/// How long to wait for more handlers to end before a claim: handlers often end together, and a
/// claim for many messages costs little more than a claim for one.
const GATHER: Duration = Duration::from_micros(100);

impl Coordinator {
    /// The partition has work, or may have.
    pub(crate) fn want(&mut self, id: PartitionId, now: Instant) {
        self.want_for(id, Wanted::Woken, now);
    }

    pub(crate) fn want_for(&mut self, id: PartitionId, reason: Wanted, now: Instant) {
        if self.wake.is_some()
            && let Some(partition) = self.partitions.get_mut(&id)
            && partition.is_attending()
        {
            if !partition.consumer.is_needed() {
                // A look-up that fails goes on counting its failures.
                if !self.lost_claims.must_look_up(id) {
                    partition.claim.rest();
                }
                return;
            }
            match partition.claim.want(reason, now) {
                // An earlier timer may have taken the place of that of the pause.
                Some(pause) => partition.timers.claim_at(pause, &mut self.timers, now),
                None => drop(self.wanting.insert(id)),
            }
        }
    }

    /// Claims for the partitions that want to, as far as handlers are free.
    pub(crate) fn dispatch(&mut self, now: Instant) {
        self.look_up_lost(now);
        for claim in self.slots.take_ended_claims() {
            self.leases.ended(claim, &mut self.timers);
        }
        // Twice, because a permit that returned before `arm` does not wake the coordinator.
        for _ in 0..2 {
            self.collect_ended();
            self.accept_refused(now);
            self.end_drained();
            // While no handler is free, the node waits for no wake-up tokens.
            let waits = self.claim_wanted(now)
                || self.shares.free() == 0
                || self.membership.is_draining()
                || self.wake_lists.refused().next().is_some();
            if !waits {
                break;
            }
            self.slots.arm();
        }
        debug_assert!(self.shares.is_consistent(), "a handler is not counted");
        let free = self.shares.free();
        self.membership.health.free_handlers_are(free);
    }

    /// Claims instead of a promote: the claim takes due messages whether they were promoted or not,
    /// and so replaces the promote, the wake-up token and the claim. Only the leader does it: a
    /// standby must first find out whether the leader is alive. A node whose handlers are busy does
    /// not, because it would take messages that idle nodes could handle at once, unless it is alone.
    pub(crate) fn claims_instead(&mut self, id: PartitionId, now: Instant) -> bool {
        self.collect_ended();
        let Some(partition) = self.partitions.get(&id) else {
            return false;
        };
        // Of several partitions one often has a claim in flight: there a node is busy when fewer
        // than half of its handlers are free.
        let is_idle = self.busy.is_empty()
            || partition.timers.rank.is_some() && self.shares.free() * 2 >= self.concurrency;
        if self.wake.is_none()
            || self.lost_claims.must_look_up(id)
            || !partition.timers.is_leader(now)
            || !(is_idle || partition.timers.is_alone())
        {
            return false;
        }
        if !partition.claim.is_idle(now) || !partition.is_attending() || self.room(partition) == 0 {
            return false;
        }
        let want = self.want_of(partition, now);
        self.allot_to(want, now)
            .is_some_and(|permits| self.start_claim(id, permits, true))
    }

    /// Handlers for this partition alone. The others that compete keep their parts.
    pub(crate) fn allot_to(
        &mut self,
        want: Want<PartitionId>,
        now: Instant,
    ) -> Option<HandlerPermits> {
        let mut wants: Vec<_> = self.competitors(now).collect();
        wants.retain(|other| other.id != want.id);
        for other in &mut wants {
            other.soon += std::mem::take(&mut other.handlers);
        }
        wants.push(want);
        let (_, permits) = self.shares.allot(&wants, now).into_iter().next()?;
        Some(permits)
    }

    /// Returns whether a partition waits for a handler to end.
    fn claim_wanted(&mut self, now: Instant) -> bool {
        let mut unmet = false;
        let (mut gathers, mut is_open) = (true, false);
        let mut unneeded = Vec::new();
        self.wanting.retain(|id| {
            let Some(partition) = self.partitions.get_mut(id) else {
                return false;
            };
            if !partition.consumer.is_needed() {
                // The pulls have ended since.
                if partition.claim.rest() == Some(Wanted::Woken) {
                    unneeded.push(*id);
                }
            }
            if !partition.takes_messages() {
                // Paused: the resume wakes the nodes.
                partition.claim.stop();
            }
            partition.claim.is_wanted()
        });
        for id in unneeded {
            // A token may have come for them.
            self.return_token(id);
        }
        for id in &self.wanting {
            let Some(partition) = self.partitions.get(id) else {
                continue;
            };
            let Some(reason) = partition.claim.wanted() else {
                continue;
            };
            let free = self.shares.free_for(*id);
            if self.room(partition) == 0 || free == 0 {
                unmet = true;
                continue;
            }
            is_open = true;
            let enough = partition.max_handlers.min(MAX_CLAIM) / 2;
            gathers &= reason == Wanted::MoreLeft && free < enough && self.shares.running(*id) > 0;
        }
        let mut busy = self.busy.iter().filter_map(|id| self.partitions.get(id));
        let has_deliveries = busy.any(|partition| partition.consumer.waiting() > 0);
        unmet |= has_deliveries;
        if !is_open && !has_deliveries {
            // Otherwise the coordinator would wake up again and again for an instant in the past.
            self.gather_until = None;
            return unmet;
        }
        if gathers && !has_deliveries && self.shares.free() > 0 {
            let until = *self.gather_until.get_or_insert(now + GATHER);
            if now < until {
                return unmet;
            }
        }
        self.gather_until = None;
        let wants: Vec<_> = self.competitors(now).collect();
        let wanted = wants.iter().filter(|want| want.handlers > 0).count();
        let grants = self.shares.allot(&wants, now);
        unmet |= grants.len() < wanted;
        for (id, permits) in grants {
            self.use_permits(id, permits, now);
        }
        unmet
    }

    /// The partitions that compete for handlers. One that cannot claim just now and has a backlog does,
    /// too: its part of the free handlers is kept for its next claim.
    fn competitors(&self, now: Instant) -> impl Iterator<Item = Want<PartitionId>> {
        let others = self.busy.difference(&self.wanting);
        let competing = self.wanting.iter().chain(others);
        let partitions = competing.filter_map(|id| self.partitions.get(id));
        partitions.filter_map(move |partition| {
            let mut want = self.want_of(partition, now);
            if self.room(partition) == 0 {
                want.handlers = 0;
            } else if partition.claim.will_continue(now) {
                want.soon = std::mem::take(&mut want.handlers);
            } else if partition.claim.wanted().is_none() {
                want.handlers = 0;
            }
            want.handlers += partition.consumer.waiting();
            (want.handlers + want.soon > 0).then_some(want)
        })
    }

    /// Uses handlers of a partition for deliveries that wait for one, and the others for a claim.
    fn use_permits(&mut self, id: PartitionId, permits: HandlerPermits, now: Instant) {
        self.busy.insert(id);
        let Some(partition) = self.partitions.get(&id) else {
            return;
        };
        let permits = match partition.consumer.waiting() {
            0 => permits,
            _ => self.start_handlers(id, Vec::new(), permits, now),
        };
        let Some(partition) = self.partitions.get(&id) else {
            return;
        };
        let is_wanted = partition.claim.wanted().is_some();
        if is_wanted && partition.consumer.capacity(permits.count()) > 0 {
            self.start_claim(id, permits, false);
        } else {
            permits.put_back();
            self.shares.collect(id, now);
        }
    }

    /// Starts handlers for deliveries of the partition. Returns the permits of the others.
    pub(crate) fn start_handlers(
        &mut self,
        id: PartitionId,
        deliveries: Vec<(Delivery, HandlerGuard)>,
        permits: HandlerPermits,
        now: Instant,
    ) -> HandlerPermits {
        let Some(partition) = self.partitions.get(&id) else {
            return permits;
        };
        let before = permits.count();
        let (consumer, context) = (&partition.consumer, &partition.context);
        let rest = consumer.start(deliveries, permits, context);
        self.shares.start(id, before - rest.count(), now);
        rest
    }

    pub(crate) fn want_of(&self, partition: &NodePartition, now: Instant) -> Want<PartitionId> {
        let free = self.shares.free();
        // Handlers that a claim does not need come back only with its reply. So a queue of many asks
        // for half of the free handlers, unless it is known to have a backlog: with less than its
        // share, it would leave the rest to the others.
        let handlers = if self.partitions.len() == 1 {
            free
        } else if partition.claim.has_backlog() {
            free.min(partition.expected)
        } else {
            free.div_ceil(2)
        };
        Want {
            id: partition.id,
            handlers: handlers.clamp(1, MAX_CLAIM),
            soon: 0,
            waited: partition.oldest.waited(now),
        }
    }

    /// How many deliveries of the partition may be claimed.
    pub(crate) fn room(&self, partition: &NodePartition) -> usize {
        match partition.consumer.capacity(partition.max_handlers) {
            0 => 0,
            capacity => partition.slots.room(capacity),
        }
    }

    /// Returns whether a claim was sent: the pulls that it was to be for may have ended.
    fn start_claim(&mut self, id: PartitionId, permits: HandlerPermits, for_promote: bool) -> bool {
        self.busy.insert(id);
        let Some(partition) = self.partitions.get_mut(&id) else {
            return false;
        };
        let capacity = partition.consumer.capacity(partition.max_handlers);
        let room = partition.slots.room(capacity);
        let mut asked = partition.consumer.asks(permits.count()).min(room);
        let (mut lease_ms, mut token) = (partition.lease_ms, None);
        let pulls = partition.consumer.pulls();
        let bound = pulls.and_then(|pulls| pulls.bind(id, asked));
        if let Some(bound) = &bound {
            let request = bound.request();
            (asked, lease_ms, token) = (request.max, request.lease_ms, request.token);
        } else if pulls.is_some() {
            permits.put_back();
            self.shares.collect(id, Instant::now());
            return false;
        }
        partition.claim.sent(Instant::now());
        self.wanting.remove(&id);
        let partition = Arc::clone(&partition.remote);
        let sender = self.sender.clone();
        let node = bound.is_none().then_some(&*self.node);
        let next = || self.lost_claims.next(id, lease_ms, node, Instant::now());
        let own = token.is_none().then(next);
        let token = own.map_or(token, |own| Some(own.token));
        self.tasks.spawn(Task::Call, async move {
            let (sent, token) = (Instant::now(), token.unwrap_or_else(LeaseToken::random));
            let result = partition.claim_with(token, asked, lease_ms).await;
            let claimed = Claimed {
                sent,
                asked,
                permits,
                own,
                bound,
                for_promote,
                result,
            };
            let event = Event::Reply(id, Reply::Claimed(Box::new(claimed)));
            if let Err(unsent) = sender.send(event) {
                // The coordinator has ended: the worker was dropped, or a task panicked. Otherwise
                // the leases would have to run out.
                release(&partition, unsent.0).await;
            }
        });
        true
    }

    /// Counts the handlers that ended.
    pub(crate) fn collect_ended(&mut self) {
        let (shares, now) = (&mut self.shares, Instant::now());
        self.busy.retain(|id| shares.collect(*id, now) > 0);
    }

    /// Claims no more. Messages of a claim that is in flight are still handled.
    pub(crate) fn stop_claiming(&mut self) {
        // The wait dropped here may have taken a token. If the server has not noticed yet that this
        // node waits no more, it may give a returned token to the dropped wait: then the second
        // token, the node's leave or any beat wakes another node.
        let lists = self.token_lists();
        self.wake = None;
        self.gather_until = None;
        self.wanting.clear();
        for partition in self.partitions.values_mut() {
            partition.claim.stop();
            partition.consumer.stop();
        }
        let queues: Vec<_> = self.membership.queues.keys().copied().collect();
        for queue in queues {
            self.leave_roster(queue);
        }
        for id in lists {
            self.return_token(id);
        }
    }

    /// Reports that no claim is in flight any more, once that is so. No further delivery joins a
    /// batch then.
    pub(crate) fn report_claimed(&self) {
        let in_flight = |partition: &NodePartition| partition.claim.is_in_flight();
        let is_reported = self.stop.claimed.is_cancelled();
        if self.wake.is_none()
            && !is_reported
            && self.returning == 0
            && !self.partitions.values().any(in_flight)
        {
            for partition in self.partitions.values() {
                partition.consumer.close();
            }
            self.stop.claimed.cancel();
        }
    }
}

#[cfg(test)]
mod tests;
