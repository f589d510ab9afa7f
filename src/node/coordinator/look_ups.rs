//! The coordinator's look-ups: reads the leases of claims whose reply was lost. `state::lost_claim`
//! has the rules.

use std::sync::Arc;
use std::time::Instant;

use crate::node::PartitionId;
use crate::node::consumers::pulls::Grant;
use crate::node::consumers::pulls::bound::BoundPulls;
use crate::node::consumers::slots::HandlerPermits;
use crate::node::coordinator::Coordinator;
use crate::node::coordinator::event::{Event, Reply};
use crate::node::coordinator::recovered::{LostGrant, Recovered, deliveries, read_lease};
use crate::node::runtime::task::Task;
use crate::node::state::claim_state::Wanted;
use crate::node::state::lost_claim::may_have_granted;
use crate::partition::Partition;
use crate::protocol::counts::MAX_CLAIM;
use crate::server::patience::reconnect_delays;
use crate::telemetry::events;

/// After this many refused look-ups, about 10 s, the node claims again without one: the user may
/// lack the right for good.
const MAX_REFUSALS: u32 = 20;

impl Coordinator {
    /// Reads the leases of claims without a reply.
    pub(crate) fn look_up_lost(&mut self, now: Instant) {
        if !self.has_lost_claims {
            return;
        }
        let lost = self.partitions.values();
        let lost = lost.filter(|partition| partition.lost.must_look_up());
        let mut lost: Vec<_> = lost.map(|partition| partition.id).collect();
        lost.sort_unstable();
        self.has_lost_claims = !lost.is_empty();
        for id in lost {
            let Some(partition) = self.partitions.get_mut(&id) else {
                continue;
            };
            if partition.claim.is_in_flight() {
                continue;
            }
            match partition.claim.paused_until(now) {
                Some(end) if self.wake.is_some() => {
                    partition.timers.claim_at(end, &mut self.timers, now);
                }
                _ => self.look_up(id),
            }
        }
    }

    fn look_up(&mut self, id: PartitionId) {
        let Some(partition) = self.partitions.get_mut(&id) else {
            return;
        };
        let Some(claim) = partition.lost.claim() else {
            return;
        };
        partition.claim.sent(Instant::now());
        // Waiting pulls get the recovered messages, or learn that the server is away.
        let pulls = partition.consumer.pulls();
        let bound = pulls.and_then(|pulls| pulls.bind(id, MAX_CLAIM));
        let is_last = self.wake.is_none() || !partition.is_attending();
        let partition = Arc::clone(&partition.remote);
        let sender = self.sender.clone();
        self.tasks.spawn(Task::Call, async move {
            let result = read_lease(claim, &partition, is_last).await;
            let grant = LostGrant {
                bound,
                result,
                is_last,
            };
            let reply = Reply::LookedUp(Box::new(grant));
            if let Err(unsent) = sender.send(Event::Reply(id, reply)) {
                release(&partition, unsent.0).await;
            }
        });
    }

    /// Handles the answer to a look-up.
    pub(crate) fn looked_up(&mut self, id: PartitionId, grant: LostGrant, now: Instant) {
        let LostGrant {
            bound,
            result,
            is_last,
        } = grant;
        let Some(partition) = self.partitions.get_mut(&id) else {
            return;
        };
        let recovered = match result {
            Ok(recovered) => recovered,
            Err(error) => {
                let failures = partition.claim.failed();
                let pause = now + reconnect_delays().delay(failures, fastrand::f64());
                partition.claim.pause_until(pause);
                if let Some(bound) = bound {
                    bound.failed(&error);
                }
                let is_refused = !error.is_retryable() && failures > MAX_REFUSALS;
                if is_last || is_refused {
                    partition.lost.forget();
                }
                let then =
                    "the messages of a lost claim wait for it, or for the end of their lease";
                events::call_failed(partition.name(), "held", &error, then);
                return;
            }
        };
        let failures = partition.claim.succeeded(true);
        if failures > 0 {
            events::recovered(partition.name(), "claim", failures);
        }
        partition.absorb(&recovered.header, &mut self.timers, now);
        let lost = partition.lost.claim();
        let lease_ms = lost.map_or(0, |claim| claim.lease_ms);
        if recovered.leased.is_empty() && recovered.unsure.is_empty() {
            partition.lost.was_empty();
        } else {
            partition.lost.forget();
        }
        self.hand_out(id, bound, lease_ms, recovered, now);
        self.want_for(id, Wanted::Woken, now);
    }

    /// Gives these messages to handlers, or to pulls. What they cannot take is released, because
    /// another node may handle it.
    fn hand_out(
        &mut self,
        id: PartitionId,
        bound: Option<BoundPulls>,
        lease_ms: u64,
        recovered: Recovered,
        now: Instant,
    ) {
        let Recovered {
            sent,
            mut leased,
            mut unsure,
            ..
        } = recovered;
        let permits = match &bound {
            None => self.permits_for(id, leased.len(), now),
            Some(_) => None,
        };
        let Some(partition) = self.partitions.get(&id) else {
            return;
        };
        let count = match (&bound, &permits) {
            (Some(bound), _) if bound.request().takes_lease(lease_ms) => leased.len(),
            (None, Some(permits)) => partition.consumer.asks(permits.count()).min(leased.len()),
            _ => 0,
        };
        unsure.extend(leased.split_off(count));
        if !unsure.is_empty() {
            drop(Grant::new(unsure, &partition.context));
        }
        if let Some(bound) = bound {
            bound.granted(leased, true, &partition.context);
        } else if let Some(permits) = permits {
            self.start(id, leased, permits, sent, now);
        }
    }

    /// Permits for messages that are leased already, at most `most`; `None` if no handler is free.
    fn permits_for(
        &mut self,
        id: PartitionId,
        count: usize,
        now: Instant,
    ) -> Option<HandlerPermits> {
        self.collect_ended();
        let partition = self.partitions.get(&id);
        let partition =
            partition.filter(|partition| self.wake.is_some() && partition.takes_messages())?;
        let want = partition.want(count.min(partition.room()), now);
        self.allot_to(want, now)
    }
}

/// Releases the messages of a claim whose reply came after the coordinator's end.
pub(crate) async fn release(partition: &Arc<Partition>, event: Event) {
    let deliveries = match event {
        Event::Reply(_, Reply::LookedUp(grant)) => grant.all(),
        Event::Reply(_, Reply::Claimed(claimed)) => match (claimed.result, claimed.own) {
            (Ok(claim), _) => deliveries(partition, claim.granted).collect(),
            (Err(error), Some(claim)) if may_have_granted(&error) => {
                let read = read_lease(claim, partition, true).await;
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
