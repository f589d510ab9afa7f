//! What one claim granted, until it is settled: whose lease is to be extended, and until when it lasts.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::UnboundedSender;

use crate::delivery::Delivery;
use crate::error::Error;
use crate::model::outcomes::Extended;
use crate::node::Event;
use crate::telemetry::events;

/// The deliveries of one claim, each in its place until it is settled.
pub(crate) struct ClaimLease {
    pub(crate) number: u64,
    /// When the claim was sent: no lease of it began sooner.
    claimed: Instant,
    lease: Duration,
    running: Mutex<Running>,
}

/// The place of a delivery, and its share of what the worker may hold: empty once this is dropped, whatever becomes of the
/// handler's task.
pub(crate) struct HandlerGuard {
    lease: Arc<ClaimLease>,
    place: usize,
    events: UnboundedSender<Event>,
    _held: OwnedSemaphorePermit,
}

impl Drop for HandlerGuard {
    fn drop(&mut self) {
        if self.lease.finish(self.place) {
            // If the coordinator has stopped nobody needs to know.
            let _ = self.events.send(Event::Finished(self.lease.number));
        }
    }
}

struct Running {
    places: Vec<Option<Place>>,
    /// How many are not empty.
    left: usize,
}

struct Place {
    delivery: Delivery,
    /// No later than Redis's deadline: counted from before the call that granted or extended it.
    deadline: Instant,
    extending: bool,
}

impl ClaimLease {
    pub(crate) fn new(
        number: u64,
        deliveries: Vec<Delivery>,
        claimed: Instant,
        lease: Duration,
    ) -> Self {
        let left = deliveries.len();
        let place = |delivery| {
            Some(Place {
                delivery,
                deadline: claimed + lease,
                extending: false,
            })
        };
        let places = deliveries.into_iter().map(place).collect();
        Self {
            number,
            claimed,
            lease,
            running: Mutex::new(Running { places, left }),
        }
    }

    /// When they are to be looked after for the first time.
    pub(crate) fn first_look(&self) -> Instant {
        self.claimed + self.lease / 3
    }

    pub(crate) fn guard(
        self: &Arc<Self>,
        place: usize,
        events: UnboundedSender<Event>,
        held: OwnedSemaphorePermit,
    ) -> HandlerGuard {
        HandlerGuard {
            lease: Arc::clone(self),
            place,
            events,
            _held: held,
        }
    }

    /// The delivery of this place was settled, or given up; whether it was the last one.
    fn finish(&self, place: usize) -> bool {
        let mut running = self.lock();
        let ended = running.places.get_mut(place).and_then(Option::take);
        running.left -= usize::from(ended.is_some());
        let last = ended.is_some() && running.left == 0;
        drop(running);
        last
    }

    /// A third of a lease has passed, or the end of one has come: which are to be extended, and when to look again. One that has
    /// run out is lost; unless a settle is on its way, whose answer says so.
    pub(crate) fn look(&self, now: Instant) -> (Vec<(usize, Delivery)>, Option<Instant>) {
        let (mut extend, mut lost, mut next) = (Vec::new(), Vec::new(), None::<Instant>);
        for (at, place) in self.lock().places.iter_mut().enumerate() {
            let Some(place) = place
                .as_mut()
                .filter(|place| !place.delivery.is_settled() && !place.delivery.is_lost())
            else {
                continue;
            };
            let (over, third) = (now >= place.deadline, now + self.lease / 3);
            if over && !place.delivery.is_settling() {
                lost.push(place.delivery.clone());
                continue;
            }
            let again = if over {
                third
            } else {
                third.min(place.deadline)
            };
            next = Some(next.map_or(again, |next| next.min(again)));
            if !std::mem::replace(&mut place.extending, true) {
                extend.push((at, place.delivery.clone()));
            }
        }
        for delivery in lost {
            delivery.lose("it ran out before it could be extended");
        }
        (extend, next)
    }

    /// Extends the lease of one of them.
    pub(crate) async fn extend(&self, place: usize, delivery: &Delivery) {
        let asked = Instant::now();
        let result = delivery.extend(self.lease).await;
        if !self.extended(place, asked, &result) {
            // It was settled meanwhile.
            return;
        }
        match result {
            Ok(Extended::Until(_)) => {}
            Ok(Extended::Gone | Extended::Lost) => delivery.found_gone(),
            Err(error) => events::extend_failed(delivery.partition().queue_name(), &error),
        }
    }

    /// Whether it is not settled yet.
    fn extended(&self, place: usize, asked: Instant, result: &Result<Extended, Error>) -> bool {
        let mut running = self.lock();
        let Some(Some(place)) = running.places.get_mut(place) else {
            return false;
        };
        place.extending = false;
        if matches!(result, Ok(Extended::Until(_))) {
            place.deadline = place.deadline.max(asked + self.lease);
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::Semaphore;

    use super::*;

    const S: Duration = Duration::from_secs(1);
    const LEASE: Duration = Duration::from_secs(30);

    fn lease(count: usize, claimed: Instant) -> (ClaimLease, Vec<Delivery>) {
        let deliveries: Vec<_> = (0..).take(count).map(Delivery::unconnected).collect();
        (
            ClaimLease::new(1, deliveries.clone(), claimed, LEASE),
            deliveries,
        )
    }

    /// Which are to be extended, and in how many seconds to look again.
    fn look(lease: &ClaimLease, claimed: Instant, after_s: u32) -> (Vec<usize>, Option<u64>) {
        let (extend, next) = lease.look(claimed + after_s * S);
        let places = extend.into_iter().map(|(place, _)| place).collect();
        (places, next.map(|next| (next - claimed).as_secs()))
    }

    #[test]
    fn each_place_ends_once_and_the_last_one_is_told() {
        let (lease, _) = lease(3, Instant::now());
        assert!(!lease.finish(1));
        assert!(!lease.finish(1));
        assert!(!lease.finish(0));
        assert!(!lease.finish(9), "there is no such place");
        assert!(lease.finish(2));
        assert!(!lease.finish(2));
    }

    #[test]
    fn what_still_runs_is_extended_one_call_at_a_time() {
        let claimed = Instant::now();
        let (lease, _) = lease(3, claimed);
        assert_eq!(lease.first_look(), claimed + 10 * S);
        lease.finish(1);
        assert_eq!(look(&lease, claimed, 10), (vec![0, 2], Some(20)));
        assert_eq!(
            look(&lease, claimed, 20),
            (vec![], Some(30)),
            "both are under way"
        );
        assert!(lease.extended(0, claimed + 10 * S, &Ok(Extended::Until(1))));
        assert_eq!(
            look(&lease, claimed, 25),
            (vec![0], Some(30)),
            "the other one's lease ends sooner"
        );
    }

    #[test]
    fn what_has_run_out_is_lost_and_the_others_are_not() {
        let claimed = Instant::now();
        let (lease, deliveries) = lease(2, claimed);
        assert_eq!(look(&lease, claimed, 10).0, [0, 1]);
        assert!(lease.extended(0, claimed + 10 * S, &Ok(Extended::Until(1))));
        assert_eq!(look(&lease, claimed, 29).1, Some(30));
        assert_eq!(
            look(&lease, claimed, 30),
            (vec![], Some(40)),
            "and the first is asked for since 29"
        );
        assert_eq!(
            deliveries.iter().map(Delivery::is_lost).collect::<Vec<_>>(),
            [false, true]
        );
        assert_eq!(look(&lease, claimed, 40), (vec![], None));
        assert!(
            deliveries[0].is_lost(),
            "a call that is not answered extends nothing"
        );
    }

    #[test]
    fn a_place_is_left_whatever_becomes_of_the_task_and_the_last_one_tells() {
        let (lease, _) = lease(2, Instant::now());
        let (lease, (sender, mut events)) =
            (Arc::new(lease), tokio::sync::mpsc::unbounded_channel());
        let held = Arc::new(Semaphore::new(2));
        let permit = || Arc::clone(&held).try_acquire_owned().expect("a permit");
        let [first, second] = [0, 1].map(|place| lease.guard(place, sender.clone(), permit()));
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
            let _occupied = first;
            panic!("in the middle of the task");
        }));
        assert!(panicked.is_err());
        assert!(events.try_recv().is_err(), "one still runs");
        assert_eq!(held.available_permits(), 1);
        drop(second);
        assert!(matches!(events.try_recv(), Ok(Event::Finished(1))));
        assert!(events.try_recv().is_err());
    }

    #[test]
    fn a_lease_is_extended_while_its_settle_waits() {
        let claimed = Instant::now();
        let (lease, deliveries) = lease(1, claimed);
        let settling = deliveries[0].settling();
        assert_eq!(look(&lease, claimed, 10), (vec![0], Some(20)));
        assert_eq!(look(&lease, claimed, 29).1, Some(30));
        assert_eq!(
            look(&lease, claimed, 30),
            (vec![], Some(40)),
            "it ran out, and the answer tells what that means"
        );
        assert!(lease.extended(0, claimed + 35 * S, &Ok(Extended::Until(1))));
        assert_eq!(look(&lease, claimed, 40), (vec![0], Some(50)));
        drop(settling);
        assert_eq!(look(&lease, claimed, 65), (vec![], None));
        assert!(deliveries[0].is_lost());
    }

    #[test]
    fn what_a_settle_is_on_its_way_for_is_not_lost_because_an_extension_finds_it_gone() {
        let (_, deliveries) = lease(1, Instant::now());
        let (first, second) = (deliveries[0].settling(), deliveries[0].settling());
        deliveries[0].found_gone();
        drop(first);
        deliveries[0].found_gone();
        assert!(!deliveries[0].is_lost());
        // It was given up without an answer: now nobody else tells.
        drop(second);
        deliveries[0].found_gone();
        assert!(deliveries[0].is_lost());
    }

    #[test]
    fn an_answer_that_comes_after_the_end_is_nobodys() {
        let (lease, _) = lease(1, Instant::now());
        lease.finish(0);
        assert!(!lease.extended(0, Instant::now(), &Ok(Extended::Lost)));
        assert_eq!(lease.look(Instant::now()).1, None);
    }
}
