//! The coordinator's claims: how it uses the permits of a partition, and how it collects returned
//! permits.

use std::sync::Arc;
use std::time::Instant;

use crate::delivery::Delivery;
use crate::model::lease_token::LeaseToken;
use crate::node::PartitionId;
use crate::node::consumers::guard::HandlerGuard;
use crate::node::consumers::slots::HandlerPermits;
use crate::node::coordinator::Coordinator;
use crate::node::coordinator::event::{Claimed, Event, Reply};
use crate::node::coordinator::look_ups::release;
use crate::node::runtime::task::Task;
use crate::node::state::partition::NodePartition;

impl Coordinator {
    /// Uses permits of a partition: first for deliveries that wait for a handler, the rest for a
    /// claim.
    pub(super) fn use_permits(&mut self, id: PartitionId, permits: HandlerPermits, now: Instant) {
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
            self.collect(id, now);
        }
    }

    /// Starts handlers for waiting deliveries of the partition. Returns the permits that are left.
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
        self.shares
            .start(partition.queue, before - rest.count(), now);
        rest
    }

    /// Sends a claim. Returns whether it was sent: the pulls that it was for may have ended.
    pub(super) fn start_claim(
        &mut self,
        id: PartitionId,
        permits: HandlerPermits,
        for_promote: bool,
    ) -> bool {
        let Some(partition) = self.partitions.get_mut(&id) else {
            return false;
        };
        let capacity = partition.consumer.capacity(partition.context.max_handlers);
        let room = partition.slots.room(capacity);
        let mut asked = partition.consumer.asks(permits.count()).min(room);
        let (mut lease_ms, mut token) = (partition.context.lease_ms, None);
        let pulls = partition.consumer.pulls();
        let bound = pulls.and_then(|pulls| pulls.bind(id, asked));
        if let Some(bound) = &bound {
            let request = bound.request();
            (asked, lease_ms, token) = (request.max, request.lease_ms, request.token);
        } else if pulls.is_some() {
            permits.put_back();
            self.collect(id, Instant::now());
            return false;
        }
        partition.claim.sent(Instant::now());
        let node = bound.is_none().then_some(&*self.node);
        let next = || partition.lost.next(lease_ms, node, Instant::now());
        let own = token.is_none().then(next);
        let partition = Arc::clone(&partition.remote);
        let sender = self.sender.clone();
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
                // The coordinator has ended, because the worker was dropped or a task panicked.
                // Without this release, the messages would wait until their leases expire.
                release(&partition, unsent.0).await;
            }
        });
        true
    }

    /// Collects the returned permits of all partitions.
    pub(crate) fn collect_ended(&mut self) {
        let now = Instant::now();
        for id in self.ends.take_partitions() {
            self.collect(id, now);
        }
    }

    /// Collects the returned permits of a partition: of ended handlers, and those that it did not
    /// need.
    fn collect(&mut self, id: PartitionId, now: Instant) {
        if let Some(partition) = self.partitions.get(&id) {
            let ended = partition.slots.take_ended(now);
            self.shares.release(partition.queue, ended, now);
        }
    }

    /// Stops claiming. Messages of a claim in flight are still handled.
    pub(crate) fn stop_claiming(&mut self) {
        // The dropped wait may have taken a token, which is given back here. The server may hand
        // that token to the same dropped wait if it has not noticed the drop. Then the second
        // token, the node's leave or any beat wakes another node.
        for id in self.token_lists() {
            self.return_token(id);
        }
        self.wake = None;
        self.gather_until = None;
        for partition in self.partitions.values_mut() {
            partition.claim.stop();
            partition.consumer.stop();
        }
        let queues: Vec<_> = self.membership.queues.keys().copied().collect();
        for queue in queues {
            self.leave_roster(queue);
        }
    }

    /// Reports, once it is true, that no claim is in flight any more. From then on no further
    /// delivery joins a batch.
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
