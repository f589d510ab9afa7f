//! Handles the answer to a claim: starts the handlers, and updates the state of the partition.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::delivery::Delivery;
use crate::node::PartitionId;
use crate::node::consumers::guard::HandlerGuard;
use crate::node::consumers::lease::ClaimLease;
use crate::node::consumers::slots::HandlerPermits;
use crate::node::coordinator::Coordinator;
use crate::node::coordinator::event::Claimed;
use crate::node::coordinator::recovered::deliveries;
use crate::node::state::claim_state::Wanted;
use crate::node::state::partition::now_ms;
use crate::node::state::timers::Action;
use crate::protocol::counts::MAX_CLAIM;
use crate::protocol::results::administer::Moved;
use crate::protocol::results::claim::Claim;
use crate::server::patience::reconnect_delays;
use crate::telemetry::events;

/// After a claim that left messages behind, claim once more after this time even without a wake-up
/// token: other nodes may have consumed both tokens, and the leader would not learn the next due
/// time.
const CLAIM_AGAIN: Duration = Duration::from_millis(1);

impl Coordinator {
    /// Handles the answer to a claim.
    pub(crate) fn claimed(&mut self, id: PartitionId, claimed: Claimed, now: Instant) {
        let Claimed {
            sent,
            asked,
            permits,
            own,
            bound,
            for_promote,
            result,
        } = claimed;
        let Some(partition) = self.partitions.get_mut(&id) else {
            return;
        };
        let granted = result.as_ref().map(|claim| claim.granted.len());
        partition.lost.ended(own, granted);
        self.has_lost_claims |= partition.lost.must_look_up();
        let claim = match result {
            Ok(claim) => claim,
            Err(error) if error.is_held() => {
                let bound = bound.and_then(|bound| match own {
                    Some(_) => {
                        bound.granted(Vec::new(), true, &partition.context);
                        None
                    }
                    None => Some(bound),
                });
                return self.refused_token(id, bound, &error, for_promote, now);
            }
            Err(error) => {
                let failures = partition.claim.failed();
                if let Some(bound) = bound {
                    bound.failed(&error);
                }
                events::call_failed(partition.name(), "claim", &error, "it is repeated");
                let pause = now + reconnect_delays().delay(failures, fastrand::f64());
                partition.claim.pause_until(pause);
                partition.timers.claim_at(pause, &mut self.timers, now);
                if for_promote {
                    partition.moved(Action::Promote, &Err(error), &mut self.timers, now);
                }
                return;
            }
        };
        let is_left = leaves_messages(&claim);
        let failures = partition.claim.succeeded(is_left);
        if failures > 0 {
            events::recovered(partition.name(), "claim", failures);
        }
        let is_full = claim.granted.len() == asked;
        // The claim found only expired messages. Messages behind these may be live.
        let found_expired = asked > 0
            && partition
                .claim
                .granted_nothing(is_left && claim.granted.is_empty());
        // If this node's fair share limited the claim, it will probably limit the next one too.
        partition.expected = match is_full {
            true => MAX_CLAIM,
            false => 2 * claim.granted.len() + 1,
        };
        let Claim {
            header,
            left,
            granted,
        } = claim;
        let last_due = granted.iter().map(|granted| granted.due_ms).max();
        if is_left {
            partition.oldest.taken_until(partition.instant(last_due));
        } else {
            partition.oldest.none_waits(sent);
        }
        partition.left_ready(left);
        if for_promote {
            let count = left + granted.len() as u64;
            let moved = Ok(Moved { header, count });
            partition.moved(Action::Promote, &moved, &mut self.timers, now);
        } else {
            partition.absorb(&header, &mut self.timers, now);
        }
        match bound {
            Some(bound) => self.answer_pulls(id, bound, granted, is_left),
            None if granted.is_empty() => {}
            None => {
                let Some(partition) = self.partitions.get(&id) else {
                    return;
                };
                // Redis grants no more than the claim asked for; `take` guards against a faulty
                // reply.
                let deliveries = deliveries(&partition.remote, granted).take(asked).collect();
                self.start(id, deliveries, permits, sent, now);
            }
        }
        self.open(id);
        if is_left && (is_full || found_expired) {
            self.want_for(id, Wanted::MoreLeft, now);
        } else if is_left {
            // If this node's fair share limited the claim, the node waits for a token, so that the
            // other nodes get their shares.
            if let Some(partition) = self.partitions.get_mut(&id) {
                let at = now + CLAIM_AGAIN;
                partition.timers.claim_at(at, &mut self.timers, now);
            }
        }
    }

    /// Starts the handlers of a granted claim.
    pub(crate) fn start(
        &mut self,
        id: PartitionId,
        deliveries: Vec<Delivery>,
        permits: HandlerPermits,
        sent: Instant,
        now: Instant,
    ) {
        let Some(partition) = self.partitions.get(&id) else {
            return;
        };
        let claim = self.leases.next_number();
        let lease = ClaimLease::new(claim, deliveries.clone(), sent, partition.context.lease);
        let lease = Arc::new(lease);
        self.leases.add(id, Arc::clone(&lease), &mut self.timers);
        let guarded = deliveries.into_iter().enumerate().map(|(index, delivery)| {
            (delivery, HandlerGuard::new(&lease, index, &partition.slots))
        });
        let guarded = guarded.collect();
        self.start_handlers(id, guarded, permits, now).put_back();
    }
}

/// Whether the queue has more messages to claim.
fn leaves_messages(claim: &Claim) -> bool {
    let header = &claim.header;
    let is_due = header
        .head_ms
        .is_some_and(|head_ms| head_ms <= now_ms(header));
    !header.paused && (claim.left > 0 || is_due)
}
