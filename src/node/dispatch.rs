//! The coordinator's claims: which queue gets the free handlers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::delivery::Delivery;
use crate::model::lease_token::LeaseToken;
use crate::node::attended_queue::AttendedQueue;
use crate::node::claim_state::Wanted;
use crate::node::coordinator::Coordinator;
use crate::node::event::QueueNumber;
use crate::node::event::{Claimed, Event, Reply};
use crate::node::granting::deliveries;
use crate::node::handler_guard::HandlerGuard;
use crate::node::lost_claims::{Recovered, may_have_granted};
use crate::node::shares::Want;
use crate::node::slots::HandlerPermits;
use crate::node::tasks::Task;
use crate::partition::Partition;
use crate::protocol::counts::MAX_CLAIM;
use crate::telemetry::events;

/// How long to wait for more handlers to end before a claim: handlers often end together, and a
/// claim for many messages costs little more than a claim for one.
const GATHER: Duration = Duration::from_micros(100);

impl Coordinator {
    /// The queue has work, or may have.
    pub(crate) fn want(&mut self, number: QueueNumber, now: Instant) {
        self.want_for(number, Wanted::Woken, now);
    }

    pub(crate) fn want_for(&mut self, number: QueueNumber, reason: Wanted, now: Instant) {
        if self.wake.is_some()
            && let Some(queue) = self.queues.get_mut(&number)
            && queue.is_attending()
        {
            if !queue.handling.is_needed() {
                // A look-up that fails goes on counting its failures.
                if !self.lost_claims.must_look_up(number) {
                    queue.claim.rest();
                }
                return;
            }
            match queue.claim.want(reason, now) {
                // An earlier timer may have taken the place of that of the pause.
                Some(pause) => self.timers.claim_at(number, pause, now),
                None => drop(self.wanting.insert(number)),
            }
        }
    }

    /// Claims for the queues that want to, as far as handlers are free.
    pub(crate) fn dispatch(&mut self, now: Instant) {
        self.look_up_lost(now);
        for number in self.slots.take_ended_claims() {
            self.leases.ended(number, &mut self.timers);
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
                || self.attention.refused().next().is_some();
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
    pub(crate) fn claims_instead(&mut self, number: QueueNumber, now: Instant) -> bool {
        self.collect_ended();
        let Some(queue) = self.queues.get(&number) else {
            return false;
        };
        // Of several partitions one often has a claim in flight: there a node is busy when fewer
        // than half of its handlers are free.
        let is_idle = self.busy.is_empty()
            || queue.rank.is_some() && self.shares.free() * 2 >= self.concurrency;
        if self.wake.is_none()
            || self.lost_claims.must_look_up(number)
            || !self.timers.is_leader(number, now)
            || !(is_idle || self.timers.is_alone(number))
        {
            return false;
        }
        if !queue.claim.is_idle(now) || !queue.is_attending() || self.room(queue) == 0 {
            return false;
        }
        let want = self.want_of(queue, now);
        self.allot_to(want, now)
            .is_some_and(|permits| self.start_claim(number, permits, true))
    }

    /// Handlers for this queue alone. The others that compete keep their parts.
    pub(crate) fn allot_to(&mut self, want: Want, now: Instant) -> Option<HandlerPermits> {
        let mut wants: Vec<_> = self.competitors(now).collect();
        wants.retain(|other| other.queue != want.queue);
        for other in &mut wants {
            other.soon += std::mem::take(&mut other.handlers);
        }
        wants.push(want);
        let (_, permits) = self.shares.allot(&wants, now).into_iter().next()?;
        Some(permits)
    }

    /// Returns whether a queue waits for a handler to end.
    fn claim_wanted(&mut self, now: Instant) -> bool {
        let mut unmet = false;
        let (mut gathers, mut is_open) = (true, false);
        let mut unneeded = Vec::new();
        self.wanting.retain(|number| {
            let Some(queue) = self.queues.get_mut(number) else {
                return false;
            };
            if !queue.handling.is_needed() {
                // The pulls have ended since.
                if queue.claim.rest() == Some(Wanted::Woken) {
                    unneeded.push(*number);
                }
            }
            if !queue.takes_messages() {
                // Paused: the resume wakes the nodes.
                queue.claim.stop();
            }
            queue.claim.is_wanted()
        });
        for number in unneeded {
            // A token may have come for them.
            self.return_token(number);
        }
        for number in &self.wanting {
            let Some(queue) = self.queues.get(number) else {
                continue;
            };
            let Some(reason) = queue.claim.wanted() else {
                continue;
            };
            let free = self.shares.free_for(*number);
            if self.room(queue) == 0 || free == 0 {
                unmet = true;
                continue;
            }
            is_open = true;
            let enough = queue.max_handlers.min(MAX_CLAIM) / 2;
            gathers &=
                reason == Wanted::MoreLeft && free < enough && self.shares.running(*number) > 0;
        }
        let mut busy = self
            .busy
            .iter()
            .filter_map(|number| self.queues.get(number));
        let has_deliveries = busy.any(|queue| queue.handling.waiting() > 0);
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
        for (number, permits) in grants {
            self.use_permits(number, permits, now);
        }
        unmet
    }

    /// The queues that compete for handlers. One that cannot claim just now and has a backlog does,
    /// too: its part of the free handlers is kept for its next claim.
    fn competitors(&self, now: Instant) -> impl Iterator<Item = Want> {
        let others = self.busy.difference(&self.wanting);
        let competing = self.wanting.iter().chain(others);
        let queues = competing.filter_map(|number| self.queues.get(number));
        queues.filter_map(move |queue| {
            let mut want = self.want_of(queue, now);
            if self.room(queue) == 0 {
                want.handlers = 0;
            } else if queue.claim.will_continue(now) {
                want.soon = std::mem::take(&mut want.handlers);
            } else if queue.claim.wanted().is_none() {
                want.handlers = 0;
            }
            want.handlers += queue.handling.waiting();
            (want.handlers + want.soon > 0).then_some(want)
        })
    }

    /// Uses handlers of a queue for deliveries that wait for one, and the others for a claim.
    fn use_permits(&mut self, number: QueueNumber, permits: HandlerPermits, now: Instant) {
        self.busy.insert(number);
        let Some(queue) = self.queues.get(&number) else {
            return;
        };
        let permits = match queue.handling.waiting() {
            0 => permits,
            _ => self.start_handlers(number, Vec::new(), permits, now),
        };
        let Some(queue) = self.queues.get(&number) else {
            return;
        };
        let is_wanted = queue.claim.wanted().is_some();
        if is_wanted && queue.handling.capacity(permits.count()) > 0 {
            self.start_claim(number, permits, false);
        } else {
            permits.put_back();
            self.shares.collect(number, now);
        }
    }

    /// Starts handlers for deliveries of the queue. Returns the permits of the others.
    pub(crate) fn start_handlers(
        &mut self,
        number: QueueNumber,
        deliveries: Vec<(Delivery, HandlerGuard)>,
        permits: HandlerPermits,
        now: Instant,
    ) -> HandlerPermits {
        let Some(queue) = self.queues.get(&number) else {
            return permits;
        };
        let before = permits.count();
        let handling = Arc::clone(&queue.handling);
        let rest = handling.start(deliveries, permits, &queue.context);
        self.shares.start(number, before - rest.count(), now);
        rest
    }

    pub(crate) fn want_of(&self, queue: &AttendedQueue, now: Instant) -> Want {
        let free = self.shares.free();
        // Handlers that a claim does not need come back only with its reply. So a queue of many asks
        // for half of the free handlers, unless it is known to have a backlog: with less than its
        // share, it would leave the rest to the others.
        let handlers = if self.queues.len() == 1 {
            free
        } else if queue.claim.has_backlog() {
            free.min(queue.expected)
        } else {
            free.div_ceil(2)
        };
        Want {
            queue: queue.number,
            handlers: handlers.clamp(1, MAX_CLAIM),
            soon: 0,
            waited: queue.oldest.waited(now),
        }
    }

    /// How many deliveries of the queue may be claimed.
    pub(crate) fn room(&self, queue: &AttendedQueue) -> usize {
        match queue.handling.capacity(queue.max_handlers) {
            0 => 0,
            capacity => queue.slots.room(capacity),
        }
    }

    /// Returns whether a claim was sent: the pulls that it was to be for may have ended.
    fn start_claim(
        &mut self,
        number: QueueNumber,
        permits: HandlerPermits,
        for_promote: bool,
    ) -> bool {
        self.busy.insert(number);
        let Some(queue) = self.queues.get_mut(&number) else {
            return false;
        };
        let capacity = queue.handling.capacity(queue.max_handlers);
        let room = queue.slots.room(capacity);
        let mut asked = queue.handling.asks(permits.count()).min(room);
        let (mut lease_ms, mut token) = (queue.lease_ms, None);
        let pulls = Arc::clone(&queue.handling).pulls();
        let bound = pulls.as_ref().and_then(|pulls| pulls.bind(number, asked));
        if let Some(bound) = &bound {
            let request = bound.request();
            (asked, lease_ms, token) = (request.max, request.lease_ms, request.token);
        } else if pulls.is_some() {
            permits.put_back();
            self.shares.collect(number, Instant::now());
            return false;
        }
        queue.claim.sent(Instant::now());
        self.wanting.remove(&number);
        let partition = Arc::clone(&queue.partition);
        let sender = self.sender.clone();
        let node = bound.is_none().then_some(&*self.node);
        let next = || self.lost_claims.next(number, lease_ms, node);
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
            let event = Event::Reply(number, Reply::Claimed(Box::new(claimed)));
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
        self.busy.retain(|number| shares.collect(*number, now) > 0);
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
        for queue in self.queues.values_mut() {
            queue.claim.stop();
            queue.handling.stop();
        }
        let groups: Vec<_> = self.membership.queues.keys().copied().collect();
        for group in groups {
            self.leave_roster(group);
        }
        for number in lists {
            self.return_token(number);
        }
    }

    /// Reports that no claim is in flight any more, once that is so. No further delivery joins a
    /// batch then.
    pub(crate) fn report_claimed(&self) {
        let in_flight = |queue: &AttendedQueue| queue.claim.is_in_flight();
        let is_reported = self.stop.claimed.is_cancelled();
        if self.wake.is_none()
            && !is_reported
            && self.returning == 0
            && !self.queues.values().any(in_flight)
        {
            for queue in self.queues.values() {
                queue.handling.close();
            }
            self.stop.claimed.cancel();
        }
    }
}

/// Releases the messages of a claim whose reply came after the end of the coordinator.
pub(crate) async fn release(partition: &Arc<Partition>, event: Event) {
    let deliveries = match event {
        Event::Reply(_, Reply::LookedUp(grant)) => grant.all(),
        Event::Reply(_, Reply::Claimed(claimed)) => match (claimed.result, claimed.own) {
            (Ok(claim), _) => deliveries(partition, claim.granted).collect(),
            (Err(error), Some(claim)) if may_have_granted(&error) => {
                let read = claim.read(partition, true).await;
                read.map(Recovered::all).unwrap_or_default()
            }
            _ => return,
        },
        _ => return,
    };
    for delivery in deliveries {
        if let Err(error) = delivery.release().await {
            events::settle_failed(delivery.subject(), &error);
        }
    }
}

#[cfg(test)]
mod tests;
