//! Claims whose reply was lost: their tokens find what they granted.
//!
//! The node reads the lease of the token before it claims again. If the lease holds nothing, the
//! next claim has the same token: should the lost one be executed late, only one of the two grants.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::delivery::Delivery;
use crate::error::{Applied, Error};
use crate::model::lease_token::LeaseToken;
use crate::model::outcomes::Extended;
use crate::node::claim_state::Wanted;
use crate::node::coordinator::Coordinator;
use crate::node::dispatch::release;
use crate::node::event::QueueNumber;
use crate::node::event::{Event, Reply};
use crate::node::granting::deliveries;
use crate::node::pulls::{BoundPulls, Grant};
use crate::node::shares::Want;
use crate::node::slots::HandlerPermits;
use crate::node::tasks::Task;
use crate::partition::Partition;
use crate::protocol::counts::MAX_CLAIM;
use crate::protocol::replies::Header;
#[cfg(feature = "harness")]
use crate::server::harness;
use crate::server::patience::reconnect_delays;
use crate::telemetry::events;
use crate::telemetry::metrics::Count;

/// After this many refusals, about 10 s, the node claims again without a look: the user may lack a
/// right for good.
const MAX_REFUSALS: u32 = 20;

/// A claim by a token that the node drew.
#[derive(Clone, Copy)]
pub(crate) struct OwnClaim {
    pub(crate) token: LeaseToken,
    /// When a claim with this token was sent first: a lease of the token began then or later.
    sent: Instant,
    /// The shortest lease of the claims with this token.
    lease_ms: u64,
}

/// The claims without a reply, by partition.
#[derive(Default)]
pub(crate) struct LostClaims(BTreeMap<QueueNumber, LostClaim>);

struct LostClaim {
    claim: OwnClaim,
    /// Whether its lease was read, and held nothing.
    was_empty: bool,
}

/// The lease of a claim without a reply, as it was read.
pub(crate) struct LostGrant {
    bound: Option<BoundPulls>,
    result: Result<Recovered, Error>,
    /// Whether it was read patiently, for the node stops or leaves the partition.
    is_last: bool,
}

/// What the lease holds.
pub(crate) struct Recovered {
    header: Header,
    /// No lease of these began before.
    sent: Instant,
    leased: Vec<Delivery>,
    /// Their leases may have ended.
    unsure: Vec<Delivery>,
}

impl LostClaims {
    /// A claim granted so many messages, or ended with an error. The token of a lost claim is kept
    /// until a claim with it grants messages: before that, the lost one may still be executed.
    pub(crate) fn ended(
        &mut self,
        number: QueueNumber,
        claim: Option<OwnClaim>,
        result: Result<usize, &Error>,
    ) {
        #[cfg(feature = "harness")]
        if harness::forgets_lost_claims() {
            return;
        }
        let Some(claim) = claim else {
            return;
        };
        match result {
            Ok(1..) => drop(self.0.remove(&number)),
            Err(error) if may_have_granted(error) => {
                let was_empty = false;
                self.0.insert(number, LostClaim { claim, was_empty });
            }
            _ => {}
        }
    }

    /// The next claim of the partition, under this lease. It names `node`, whose handlers get the
    /// messages. A pull may live longer than the node, as a consumer over HTTP does.
    pub(crate) fn next(&self, number: QueueNumber, lease_ms: u64, node: Option<&str>) -> OwnClaim {
        match self.0.get(&number) {
            Some(LostClaim { claim, .. }) => OwnClaim {
                lease_ms: lease_ms.min(claim.lease_ms),
                ..*claim
            },
            None => OwnClaim {
                token: LeaseToken::of_node(node),
                sent: Instant::now(),
                lease_ms,
            },
        }
    }

    /// Whether the lease of a claim is to be read before the next claim.
    pub(crate) fn must_look_up(&self, number: QueueNumber) -> bool {
        self.0.get(&number).is_some_and(|lost| !lost.was_empty)
    }
}

impl OwnClaim {
    /// What the lease of this token holds. The messages are extended if much of the lease is over.
    /// With `patiently`, the call is repeated for 10 s.
    pub(crate) async fn read(
        &self,
        partition: &Arc<Partition>,
        patiently: bool,
    ) -> Result<Recovered, Error> {
        let claim = if patiently {
            partition.held(self.token).await?.0
        } else {
            partition.held_once(self.token).await?
        };
        let count = claim.granted.len() as u64;
        partition.meters().add_many(Count::Claimed, count);
        let mut recovered = Recovered {
            header: claim.header,
            sent: self.sent,
            leased: deliveries(partition, claim.granted).collect(),
            unsure: Vec::new(),
        };
        let lease = Duration::from_millis(self.lease_ms);
        if self.sent.elapsed() > lease / 3 {
            recovered.extend(lease).await;
        }
        Ok(recovered)
    }
}

impl Recovered {
    async fn extend(&mut self, lease: Duration) {
        self.sent = Instant::now();
        let mut extensions = JoinSet::new();
        for delivery in std::mem::take(&mut self.leased) {
            extensions.spawn(async move {
                let result = delivery.extend(lease).await;
                (delivery, result)
            });
        }
        // The extensions neither panic nor are cancelled.
        while let Some(Ok((delivery, result))) = extensions.join_next().await {
            match result {
                Ok(Extended::Until(_)) => self.leased.push(delivery),
                Ok(Extended::Gone | Extended::Lost) => {}
                Err(_) => self.unsure.push(delivery),
            }
        }
    }

    pub(crate) fn all(mut self) -> Vec<Delivery> {
        self.leased.append(&mut self.unsure);
        self.leased
    }
}

impl LostGrant {
    /// The same with another answer.
    #[cfg(test)]
    pub(crate) fn with(self, answer: Result<(Header, Vec<Delivery>), Error>) -> Self {
        let result = answer.map(|(header, leased)| Recovered {
            header,
            sent: Instant::now(),
            leased,
            unsure: Vec::new(),
        });
        Self { result, ..self }
    }

    /// The messages, for nobody is left who could handle them.
    pub(crate) fn all(self) -> Vec<Delivery> {
        self.result.map(Recovered::all).unwrap_or_default()
    }
}

impl Coordinator {
    /// Reads the leases of claims without a reply.
    pub(crate) fn look_up_lost(&mut self, now: Instant) {
        let lost: Vec<_> = self.lost_claims.0.keys().copied().collect();
        for number in lost {
            let Some(queue) = self.queues.get(&number) else {
                self.lost_claims.0.remove(&number);
                continue;
            };
            if queue.claim.is_in_flight() || !self.lost_claims.must_look_up(number) {
                continue;
            }
            match queue.claim.paused_until(now) {
                Some(end) if self.wake.is_some() => self.timers.claim_at(number, end, now),
                _ => self.look_up(number),
            }
        }
    }

    fn look_up(&mut self, number: QueueNumber) {
        let lost = self.lost_claims.0.get(&number);
        let (Some(queue), Some(lost)) = (self.queues.get_mut(&number), lost) else {
            return;
        };
        queue.claim.sent(Instant::now());
        self.wanting.remove(&number);
        // Pulls that wait get the messages, or learn that the server is away.
        let pulls = Arc::clone(&queue.handling).pulls();
        let bound = pulls.and_then(|pulls| pulls.bind(number, MAX_CLAIM));
        let (claim, partition) = (lost.claim, Arc::clone(&queue.partition));
        let is_last = self.wake.is_none() || !queue.is_attending();
        let sender = self.sender.clone();
        self.tasks.spawn(Task::Call, async move {
            let result = claim.read(&partition, is_last).await;
            let grant = LostGrant {
                bound,
                result,
                is_last,
            };
            let reply = Reply::LookedUp(Box::new(grant));
            if let Err(unsent) = sender.send(Event::Reply(number, reply)) {
                release(&partition, unsent.0).await;
            }
        });
    }

    /// The lease of a claim without a reply was read, or could not be.
    pub(crate) fn looked_up(&mut self, number: QueueNumber, grant: LostGrant, now: Instant) {
        let LostGrant {
            bound,
            result,
            is_last,
        } = grant;
        let Some(queue) = self.queues.get_mut(&number) else {
            return;
        };
        let recovered = match result {
            Ok(recovered) => recovered,
            Err(error) => {
                let failures = queue.claim.failed();
                let pause = now + reconnect_delays().delay(failures, fastrand::f64());
                queue.claim.pause_until(pause);
                if let Some(bound) = bound {
                    bound.failed(&error);
                }
                let is_refused = !error.is_retryable() && failures > MAX_REFUSALS;
                if is_last || is_refused {
                    self.lost_claims.0.remove(&number);
                }
                let then =
                    "the messages of a lost claim wait for it, or for the end of their lease";
                events::call_failed(queue.name(), "held", &error, then);
                return;
            }
        };
        let failures = queue.claim.succeeded(true);
        if failures > 0 {
            events::recovered(queue.name(), "claim", failures);
        }
        queue.absorb(&recovered.header, &mut self.timers, now);
        let lost = self.lost_claims.0.get_mut(&number);
        let lease_ms = lost.as_ref().map_or(0, |lost| lost.claim.lease_ms);
        match lost.filter(|_| recovered.leased.is_empty() && recovered.unsure.is_empty()) {
            Some(lost) => lost.was_empty = true,
            // The token must not be used again.
            None => drop(self.lost_claims.0.remove(&number)),
        }
        self.hand_out(number, bound, lease_ms, recovered, now);
        self.want_for(number, Wanted::Woken, now);
    }

    /// Starts handlers for these messages, or gives them to pulls, as far as that is possible. The
    /// others are released: another node may handle them.
    fn hand_out(
        &mut self,
        number: QueueNumber,
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
            None => self.permits_for(number, leased.len(), now),
            Some(_) => None,
        };
        let Some(queue) = self.queues.get(&number) else {
            return;
        };
        let count = match (&bound, &permits) {
            (Some(bound), _) if bound.request().takes_lease(lease_ms) => leased.len(),
            (None, Some(permits)) => queue.handling.asks(permits.count()).min(leased.len()),
            _ => 0,
        };
        unsure.extend(leased.split_off(count));
        if !unsure.is_empty() {
            drop(Grant::new(unsure, &queue.context));
        }
        if let Some(bound) = bound {
            bound.granted(leased, true, &queue.context);
        } else if let Some(permits) = permits {
            self.start(number, leased, permits, sent, now);
        }
    }

    /// Handlers for messages that are leased already, at most this many; `None` if there are none.
    fn permits_for(
        &mut self,
        number: QueueNumber,
        count: usize,
        now: Instant,
    ) -> Option<HandlerPermits> {
        self.collect_ended();
        let queue = self.queues.get(&number);
        let queue = queue.filter(|queue| self.wake.is_some() && queue.takes_messages())?;
        let want = Want {
            handlers: count.min(self.room(queue)),
            ..self.want_of(queue, now)
        };
        let permits = self.allot_to(want, now)?;
        self.busy.insert(number);
        Some(permits)
    }
}

/// Whether a claim that ended with this error may have granted messages, or has.
pub(crate) fn may_have_granted(error: &Error) -> bool {
    error.is_held() || error.was_applied() != Applied::No
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn lost_token_is_used_until_a_claim_with_it_grants() {
        let number = QueueNumber(1);
        let error = |applied| Error::new(ErrorKind::Unavailable, applied, "away");
        let (unknown, refused) = (error(Applied::Unknown), error(Applied::No));
        let mut lost = LostClaims::default();
        let first = lost.next(number, 30, None);
        lost.ended(number, Some(first), Err(&unknown));
        let found_nothing = |lost: &mut LostClaims| {
            assert!(lost.must_look_up(number));
            lost.0.get_mut(&number).expect("it was lost").was_empty = true;
        };
        found_nothing(&mut lost);
        for (lease_ms, result) in [
            (30, Err(&unknown)),
            (30, Err(&refused)),
            (30, Ok(0)),
            (40, Err(&unknown)),
            (20, Err(&unknown)),
        ] {
            let claim = lost.next(number, lease_ms, None);
            assert_eq!(claim.token, first.token, "{lease_ms} ms, {result:?}");
            lost.ended(number, Some(claim), result);
            if result.is_err_and(may_have_granted) {
                found_nothing(&mut lost);
            }
        }
        // A claim with a token of its caller tells nothing of it.
        lost.ended(number, None, Ok(1));
        let last = lost.next(number, 40, None);
        assert_eq!((last.token, last.lease_ms), (first.token, 20));
        lost.ended(number, Some(last), Ok(1));
        assert_ne!(lost.next(number, 40, None).token, first.token);
    }
}
