//! The leases of one claim: which deliveries to extend, and when each lease ends.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::delivery::Delivery;
use crate::error::Error;
use crate::model::outcomes::ExtendOutcome;
use crate::server::patience::reconnect_delays;
use crate::telemetry::events;

/// The unsettled deliveries of one claim, and their leases.
pub(crate) struct ClaimLease {
    /// The number of the claim in this node.
    pub(crate) number: u64,
    /// When the claim was sent. Each of its leases began at this instant or later.
    claimed: Instant,
    lease: Duration,
    unsettled: Mutex<Unsettled>,
}

struct Unsettled {
    /// The deliveries by their index in the claim; `None` once one is settled or given up.
    deliveries: Vec<Option<Leased>>,
    /// How many of `deliveries` are not `None`.
    count: usize,
}

struct Leased {
    delivery: Delivery,
    /// The end of the lease, at or before Redis's own deadline: it counts from before the call that
    /// granted or extended the lease.
    deadline: Instant,
    /// Whether an extension is in flight.
    extending: bool,
}

/// The result of [`ClaimLease::check`].
pub(crate) struct LeaseCheck {
    pub(crate) extend: Vec<ToExtend>,
    /// When to check the leases again; `None` if no delivery is left.
    pub(crate) next: Option<Instant>,
}

/// A delivery whose lease is to be extended now.
pub(crate) struct ToExtend {
    /// The index of the delivery in its claim.
    pub(crate) index: usize,
    pub(crate) delivery: Delivery,
}

impl ClaimLease {
    pub(crate) fn new(
        number: u64,
        deliveries: Vec<Delivery>,
        claimed: Instant,
        lease: Duration,
    ) -> Self {
        let count = deliveries.len();
        let leased = |delivery| {
            Some(Leased {
                delivery,
                deadline: claimed + lease,
                extending: false,
            })
        };
        let deliveries = deliveries.into_iter().map(leased).collect();
        Self {
            number,
            claimed,
            lease,
            unsettled: Mutex::new(Unsettled { deliveries, count }),
        }
    }

    /// When to check the leases for the first time: after a third of the lease.
    pub(crate) fn first_check(&self) -> Instant {
        self.claimed + self.lease / 3
    }

    /// Called when the delivery with this index is settled or given up. Returns whether it was the
    /// last one of the claim.
    pub(crate) fn finish(&self, index: usize) -> bool {
        let mut unsettled = self.lock();
        let ended = unsettled.deliveries.get_mut(index).and_then(Option::take);
        unsettled.count -= usize::from(ended.is_some());
        let is_last = ended.is_some() && unsettled.count == 0;
        drop(unsettled);
        is_last
    }

    /// Selects the leases to extend: those without an extension in flight. Each is checked every
    /// third of a lease, and at its deadline. A delivery past its deadline is lost, unless its
    /// settlement is in flight: the reply to that decides.
    pub(crate) fn check(&self, now: Instant) -> LeaseCheck {
        let mut extend = Vec::new();
        let mut lost = Vec::new();
        let mut next = None::<Instant>;
        let after_third = now + self.lease / 3;
        for (index, leased) in self.lock().deliveries.iter_mut().enumerate() {
            let Some(leased) = leased.as_mut().filter(|leased| leased.is_open()) else {
                continue;
            };
            let is_over = now >= leased.deadline;
            if is_over && !leased.delivery.is_settling() {
                lost.push(leased.delivery.clone());
                continue;
            }
            let check_at = if is_over {
                after_third
            } else {
                after_third.min(leased.deadline)
            };
            next = Some(next.map_or(check_at, |next| next.min(check_at)));
            if !std::mem::replace(&mut leased.extending, true) {
                extend.push(ToExtend {
                    index,
                    delivery: leased.delivery.clone(),
                });
            }
        }
        // Done after the lock is released, because it wakes handlers that wait for the loss.
        for delivery in lost {
            delivery.lose("it ran out before it could be extended");
        }
        LeaseCheck { extend, next }
    }

    /// Extends one lease. A call that fails is repeated until the lease ends.
    pub(crate) async fn extend(&self, ToExtend { index, delivery }: ToExtend) {
        let mut failures = 0;
        loop {
            let sent = Instant::now();
            let result = delivery.extend(self.lease).await;
            let Some(deadline) = self.extended(index, sent, &result) else {
                return;
            };
            let error = match result {
                Ok(ExtendOutcome::Until(_)) => return,
                Ok(ExtendOutcome::Gone | ExtendOutcome::Lost) => return delivery.found_gone(),
                Err(error) => error,
            };
            events::extend_failed(delivery.partition().queue_name(), &error);
            failures += 1;
            let pause = reconnect_delays().delay(failures, fastrand::f64());
            if Instant::now() + pause >= deadline || !self.extends_again(index) {
                return;
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Records the reply to an extension. Returns when the lease ends; `None` if the delivery is
    /// settled.
    fn extended(
        &self,
        index: usize,
        sent: Instant,
        result: &Result<ExtendOutcome, Error>,
    ) -> Option<Instant> {
        let mut unsettled = self.lock();
        let leased = unsettled.deliveries.get_mut(index)?.as_mut()?;
        leased.extending = false;
        if matches!(result, Ok(ExtendOutcome::Until(_))) {
            leased.deadline = leased.deadline.max(sent + self.lease);
        }
        Some(leased.deadline)
    }

    /// Whether a failed extension must be repeated. It must not if [`check`](Self::check) has begun
    /// another one.
    fn extends_again(&self, index: usize) -> bool {
        let mut unsettled = self.lock();
        let leased = unsettled.deliveries.get_mut(index).and_then(Option::as_mut);
        leased
            .filter(|leased| leased.is_open())
            .is_some_and(|leased| !std::mem::replace(&mut leased.extending, true))
    }

    fn lock(&self) -> MutexGuard<'_, Unsettled> {
        self.unsettled
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Leased {
    fn is_open(&self) -> bool {
        !self.delivery.is_settled() && !self.delivery.is_lost()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);
    const LEASE: Duration = Duration::from_secs(30);

    fn claim(count: usize, claimed: Instant) -> (ClaimLease, Vec<Delivery>) {
        let deliveries: Vec<_> = (0..).take(count).map(Delivery::unconnected).collect();
        let lease = ClaimLease::new(1, deliveries.clone(), claimed, LEASE);
        (lease, deliveries)
    }

    /// Checks the leases `after_s` seconds after the claim. Returns the indexes to extend, and in
    /// how many seconds after the claim to check again.
    fn check(lease: &ClaimLease, claimed: Instant, after_s: u32) -> (Vec<usize>, Option<u64>) {
        let LeaseCheck { extend, next } = lease.check(claimed + after_s * S);
        let indices = extend.into_iter().map(|one| one.index).collect();
        (indices, next.map(|next| (next - claimed).as_secs()))
    }

    #[test]
    fn finish_counts_each_delivery_once_and_reports_the_last() {
        let (lease, _) = claim(3, Instant::now());
        assert!(!lease.finish(1));
        assert!(!lease.finish(1));
        assert!(!lease.finish(0));
        assert!(!lease.finish(9), "there is no such index");
        assert!(lease.finish(2));
        assert!(!lease.finish(2));
    }

    #[test]
    fn unsettled_leases_are_extended_one_call_at_a_time() {
        let claimed = Instant::now();
        let (lease, _) = claim(3, claimed);
        assert_eq!(lease.first_check(), claimed + 10 * S);
        lease.finish(1);
        assert_eq!(check(&lease, claimed, 10), (vec![0, 2], Some(20)));
        assert_eq!(
            check(&lease, claimed, 20),
            (vec![], Some(30)),
            "both extensions are in flight"
        );
        assert!(
            lease
                .extended(0, claimed + 10 * S, &Ok(ExtendOutcome::Until(1)))
                .is_some()
        );
        assert_eq!(
            check(&lease, claimed, 25),
            (vec![0], Some(30)),
            "the other lease ends at 30 s"
        );
    }

    #[test]
    fn only_expired_leases_are_lost() {
        let claimed = Instant::now();
        let (lease, deliveries) = claim(2, claimed);
        assert_eq!(check(&lease, claimed, 10).0, [0, 1]);
        assert!(
            lease
                .extended(0, claimed + 10 * S, &Ok(ExtendOutcome::Until(1)))
                .is_some()
        );
        assert_eq!(check(&lease, claimed, 29).1, Some(30));
        assert_eq!(
            check(&lease, claimed, 30),
            (vec![], Some(40)),
            "the extension of the first is in flight since 29 s"
        );
        assert_eq!(
            deliveries.iter().map(Delivery::is_lost).collect::<Vec<_>>(),
            [false, true]
        );
        assert_eq!(check(&lease, claimed, 40), (vec![], None));
        assert!(
            deliveries[0].is_lost(),
            "an extension without a reply extends nothing"
        );
    }

    #[test]
    fn lease_is_extended_while_its_settlement_is_in_flight() {
        let claimed = Instant::now();
        let (lease, deliveries) = claim(1, claimed);
        let settling = deliveries[0].settling();
        assert_eq!(check(&lease, claimed, 10), (vec![0], Some(20)));
        assert_eq!(check(&lease, claimed, 29).1, Some(30));
        assert_eq!(
            check(&lease, claimed, 30),
            (vec![], Some(40)),
            "the deadline has passed, but the settlement's reply decides"
        );
        assert!(
            lease
                .extended(0, claimed + 35 * S, &Ok(ExtendOutcome::Until(1)))
                .is_some()
        );
        assert_eq!(check(&lease, claimed, 40), (vec![0], Some(50)));
        drop(settling);
        assert_eq!(check(&lease, claimed, 65), (vec![], None));
        assert!(deliveries[0].is_lost());
    }

    #[test]
    fn settlement_in_flight_keeps_a_missing_lease_from_being_lost() {
        let (_, deliveries) = claim(1, Instant::now());
        let first = deliveries[0].settling();
        let second = deliveries[0].settling();
        deliveries[0].found_gone();
        drop(first);
        deliveries[0].found_gone();
        assert!(!deliveries[0].is_lost());
        // The settlement was given up without a reply, so no other call reports the loss.
        drop(second);
        deliveries[0].found_gone();
        assert!(deliveries[0].is_lost());
    }

    #[test]
    fn extension_reply_after_the_settlement_is_ignored() {
        let (lease, _) = claim(1, Instant::now());
        lease.finish(0);
        assert!(
            lease
                .extended(0, Instant::now(), &Ok(ExtendOutcome::Lost))
                .is_none()
        );
        assert_eq!(lease.check(Instant::now()).next, None);
    }
}
