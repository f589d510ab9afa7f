//! The coordinator's claims: which queue gets the free handlers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::delivery::Delivery;
use crate::model::lease_token::LeaseToken;
use crate::node::attended_queue::AttendedQueue;
use crate::node::claim_state::Wanted;
use crate::node::coordinator::Coordinator;
use crate::node::event::{Claimed, Event, Reply};
use crate::node::queue_number::QueueNumber;
use crate::node::shares::Want;
use crate::node::slots::MAX_CLAIM;
use crate::node::tasks::Task;
use crate::partition::Partition;
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
                queue.claim.rest();
                queue.held = None;
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
        for number in self.slots.take_ended_claims() {
            self.leases.ended(number, &mut self.timers);
        }
        // Twice, because a permit that returned before `arm` does not wake the coordinator.
        for _ in 0..2 {
            self.collect_ended();
            self.accept_refused(now);
            self.end_drained();
            let waits = self.claim_wanted(now)
                || self.membership.is_draining()
                || self.attention.refused().next().is_some();
            if !waits {
                return;
            }
            self.slots.arm();
        }
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
            || !self.timers.is_leader(number, now)
            || !(is_idle || self.timers.is_alone(number))
        {
            return false;
        }
        if !queue.claim.is_idle(now) || !queue.is_attending() || self.room(queue) == 0 {
            return false;
        }
        let want = self.want_of(queue, now);
        let Some(&(_, handlers)) = self.shares.allot(&[want]).first() else {
            return false;
        };
        self.start_claim(number, handlers, true)
    }

    /// Returns whether a queue waits for a handler to end.
    fn claim_wanted(&mut self, now: Instant) -> bool {
        let mut wants = Vec::new();
        let mut unmet = false;
        let mut gathers = true;
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
                queue.held = None;
            }
            if !queue.takes_messages() {
                // Paused: the resume wakes the nodes.
                queue.claim.stop();
                queue.held = None;
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
            if self.room(queue) == 0 {
                unmet = true;
                continue;
            }
            let free = self.shares.free_for(*number);
            let enough = queue.max_handlers.min(MAX_CLAIM) / 2;
            let is_gathering =
                reason == Wanted::MoreLeft && free < enough && self.shares.running(*number) > 0;
            gathers &= is_gathering;
            wants.push(self.want_of(queue, now));
        }
        if wants.is_empty() {
            // Otherwise the coordinator would wake up again and again for an instant in the past.
            self.gather_until = None;
            return unmet;
        }
        // A queue whose next claim waits for the one in flight competes, too: the handlers of its
        // share are held for that claim.
        let in_flight = self
            .busy
            .iter()
            .filter(|number| !self.wanting.contains(number));
        for queue in in_flight.filter_map(|number| self.queues.get(number)) {
            if queue.claim.will_continue() && self.room(queue) > queue.held_count() {
                wants.push(self.want_of(queue, now));
            }
        }
        if gathers && self.shares.free() > 0 {
            let until = *self.gather_until.get_or_insert(now + GATHER);
            if now < until {
                return unmet;
            }
        }
        self.gather_until = None;
        let grants = self.shares.allot(&wants);
        for want in wants {
            let granted = grants.iter().find(|(number, _)| *number == want.queue);
            let handlers = granted.map_or(0, |(_, handlers)| *handlers);
            let Some(queue) = self.queues.get_mut(&want.queue) else {
                continue;
            };
            if queue.claim.is_in_flight() {
                if handlers > 0 {
                    queue.hold(handlers);
                }
            } else if queue.handling.capacity(handlers + queue.held_count()) > 0 {
                self.start_claim(want.queue, handlers, false);
            } else {
                self.shares.release(want.queue, handlers);
                unmet = true;
            }
        }
        unmet
    }

    fn want_of(&self, queue: &AttendedQueue, now: Instant) -> Want {
        let free = self.shares.free();
        // Handlers that a claim does not need come back only with its reply. So a queue of many asks
        // for half of the free handlers, unless it is known to have a backlog: with less than its
        // share, it would leave the rest to the others.
        let has_backlog =
            queue.claim.will_continue() || queue.claim.wanted() == Some(Wanted::MoreLeft);
        let handlers = if has_backlog || self.queues.len() == 1 {
            free
        } else {
            free.div_ceil(2)
        };
        Want {
            queue: queue.number,
            handlers: handlers.clamp(1, MAX_CLAIM),
            waited: queue.oldest.waited(now),
        }
    }

    /// How many deliveries of the queue may be claimed.
    fn room(&self, queue: &AttendedQueue) -> usize {
        match queue.handling.capacity(queue.max_handlers) {
            0 => 0,
            capacity => queue.slots.room(capacity),
        }
    }

    /// Returns whether a claim was sent: the pulls that it was to be for may have ended.
    fn start_claim(&mut self, number: QueueNumber, handlers: usize, for_promote: bool) -> bool {
        if handlers > 0 {
            self.busy.insert(number);
        }
        let Some(queue) = self.queues.get_mut(&number) else {
            return false;
        };
        queue.hold(handlers);
        let Some(permits) = queue.held.take() else {
            return false;
        };
        let room = queue
            .slots
            .room(queue.handling.capacity(queue.max_handlers));
        let mut asked = queue.handling.asks(permits.count()).min(room);
        let (mut lease_ms, mut token) = (queue.lease_ms, None);
        let pulls = Arc::clone(&queue.handling).pulls();
        let bound = pulls.as_ref().and_then(|pulls| pulls.bind(number, asked));
        if let Some(bound) = &bound {
            let request = bound.request();
            (asked, lease_ms, token) = (request.max, request.lease_ms, request.token);
        } else if pulls.is_some() {
            return false;
        }
        queue.claim.sent();
        self.wanting.remove(&number);
        let partition = Arc::clone(&queue.partition);
        let sender = self.sender.clone();
        self.tasks.spawn(Task::Call, async move {
            let sent = Instant::now();
            let token = token.unwrap_or_else(LeaseToken::random);
            let result = partition.claim_with(token, asked, lease_ms).await;
            let claimed = Claimed {
                sent,
                asked,
                permits,
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
        let (queues, shares) = (&self.queues, &mut self.shares);
        self.busy.retain(|number| {
            if let Some(queue) = queues.get(number) {
                shares.release(*number, queue.slots.take_ended());
            }
            shares.running(*number) > 0
        });
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
            queue.held = None;
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
async fn release(partition: &Arc<Partition>, event: Event) {
    if let Event::Reply(_, Reply::Claimed(claimed)) = event
        && let Ok(claim) = claimed.result
    {
        for granted in claim.granted {
            let delivery = Delivery::new(Arc::clone(partition), granted);
            if let Err(error) = delivery.release().await {
                events::settle_failed(delivery.subject(), &error);
            }
        }
    }
}
