//! What a claim granted: its handlers start, and the queue's state follows.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::delivery::Delivery;
use crate::node::attended_queue::{AttendedQueue, now_ms};
use crate::node::claim_lease::ClaimLease;
use crate::node::claim_state::Wanted;
use crate::node::coordinator::Coordinator;
use crate::node::event::Claimed;
use crate::node::event::QueueNumber;
use crate::node::handler_guard::HandlerGuard;
use crate::node::slots::HandlerPermits;
use crate::node::timers::Action;
use crate::partition::Partition;
use crate::protocol::counts::MAX_CLAIM;
use crate::protocol::results::administer::Moved;
use crate::protocol::results::claim::{Claim, Granted};
use crate::server::patience::reconnect_delays;
use crate::telemetry::events;

/// After a claim that left messages behind, claim once more after this time even without a wake-up
/// token: other nodes may have consumed both tokens, and the leader would not learn the next due
/// time.
const CLAIM_AGAIN: Duration = Duration::from_millis(1);

impl Coordinator {
    /// The answer to a claim.
    pub(crate) fn claimed(&mut self, number: QueueNumber, claimed: Claimed, now: Instant) {
        let Claimed {
            sent,
            asked,
            permits,
            own,
            bound,
            for_promote,
            result,
        } = claimed;
        let granted = result.as_ref().map(|claim| claim.granted.len());
        self.lost_claims.ended(number, own, granted);
        let Some(queue) = self.queues.get_mut(&number) else {
            return;
        };
        let claim = match result {
            Ok(claim) => claim,
            Err(error) if error.is_held() => {
                let bound = bound.and_then(|bound| match own {
                    Some(_) => {
                        bound.granted(Vec::new(), true, &queue.context);
                        None
                    }
                    None => Some(bound),
                });
                return self.refused_token(number, bound, &error, for_promote, now);
            }
            Err(error) => {
                let failures = queue.claim.failed();
                if let Some(bound) = bound {
                    bound.failed(&error);
                }
                events::call_failed(queue.name(), "claim", &error, "it is repeated");
                let pause = now + reconnect_delays().delay(failures, fastrand::f64());
                queue.claim.pause_until(pause);
                self.timers.claim_at(number, pause, now);
                if for_promote {
                    queue.moved(Action::Promote, &Err(error), &mut self.timers, now);
                }
                return;
            }
        };
        let is_left = leaves_messages(&claim);
        let failures = queue.claim.succeeded(is_left);
        if failures > 0 {
            events::recovered(queue.name(), "claim", failures);
        }
        let is_full = claim.granted.len() == asked;
        // It found only messages that had expired, and those behind them may be live.
        let found_expired = asked > 0
            && queue
                .claim
                .granted_nothing(is_left && claim.granted.is_empty());
        // A claim that was limited by this node's fair share is likely to be limited again.
        queue.expected = match is_full {
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
            queue.oldest.taken_until(queue.instant(last_due));
        } else {
            queue.oldest.none_waits(sent);
        }
        queue.left_ready(left);
        if for_promote {
            let count = left + granted.len() as u64;
            let moved = Ok(Moved { header, count });
            queue.moved(Action::Promote, &moved, &mut self.timers, now);
        } else {
            queue.absorb(&header, &mut self.timers, now);
        }
        match bound {
            Some(bound) => self.answer_pulls(number, bound, granted, is_left),
            None if granted.is_empty() => {}
            None => {
                let Some(queue) = self.queues.get(&number) else {
                    return;
                };
                // Redis grants no more than was asked for; `take` guards against a faulty reply.
                let deliveries = deliveries(&queue.partition, granted).take(asked).collect();
                self.start(number, deliveries, permits, sent, now);
            }
        }
        let takes = self.queues.get(&number).map(AttendedQueue::takes_messages);
        self.shares.set_paused(number, takes != Some(true));
        if is_left && (is_full || found_expired) {
            self.want_for(number, Wanted::MoreLeft, now);
        } else if is_left {
            // A claim that was limited by this node's fair share waits for a token instead, so that
            // the other nodes get theirs.
            self.timers.claim_at(number, now + CLAIM_AGAIN, now);
        }
    }

    /// Starts the handlers of a claim.
    pub(crate) fn start(
        &mut self,
        number: QueueNumber,
        deliveries: Vec<Delivery>,
        permits: HandlerPermits,
        sent: Instant,
        now: Instant,
    ) {
        let Some(queue) = self.queues.get(&number) else {
            return;
        };
        let claim = self.leases.next_number();
        let lease = ClaimLease::new(claim, deliveries.clone(), sent, queue.lease);
        let lease = Arc::new(lease);
        self.leases
            .add(number, Arc::clone(&lease), &mut self.timers);
        let guarded = deliveries.into_iter().enumerate().map(|(index, delivery)| {
            let unsettled = queue.slots.unsettled_permit();
            let guard = HandlerGuard::new(Arc::clone(&lease), index, &self.slots, unsettled);
            (delivery, guard)
        });
        let guarded = guarded.collect();
        self.start_handlers(number, guarded, permits, now)
            .put_back();
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

/// What was granted, as deliveries of the partition.
pub(crate) fn deliveries(
    partition: &Arc<Partition>,
    granted: Vec<Granted>,
) -> impl Iterator<Item = Delivery> {
    let granted = granted.into_iter();
    granted.map(|granted| Delivery::new(Arc::clone(partition), granted))
}
