//! What one claim granted, while handlers work on it: whose lease is to be extended, and until when it lasts.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::delivery::Delivery;
use crate::error::Error;
use crate::events;
use crate::outcome::Extended;

/// The deliveries of one claim, each in its place until its handler has ended.
pub(super) struct Leased {
    pub(super) number: u64,
    /// When the claim was sent: no lease of it began sooner.
    claimed: Instant,
    lease: Duration,
    running: Mutex<Running>,
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

impl Leased {
    pub(super) fn new(number: u64, deliveries: Vec<Delivery>, claimed: Instant, lease: Duration) -> Self {
        let left = deliveries.len();
        let place = |delivery| Some(Place { delivery, deadline: claimed + lease, extending: false });
        let places = deliveries.into_iter().map(place).collect();
        Self { number, claimed, lease, running: Mutex::new(Running { places, left }) }
    }

    /// When they are to be looked after for the first time.
    pub(super) fn first_look(&self) -> Instant {
        self.claimed + self.lease / 3
    }

    /// The handler of this place has ended; whether it was the last one.
    pub(super) fn finish(&self, place: usize) -> bool {
        let mut running = self.lock();
        let ended = running.places.get_mut(place).and_then(Option::take);
        running.left -= usize::from(ended.is_some());
        let last = ended.is_some() && running.left == 0;
        drop(running);
        last
    }

    /// A third of a lease has passed, or the end of one has come: which are to be extended, and when to look again. One that has
    /// run out is lost.
    pub(super) fn look(&self, now: Instant) -> (Vec<(usize, Delivery)>, Option<Instant>) {
        let (mut extend, mut lost, mut next) = (Vec::new(), Vec::new(), None::<Instant>);
        for (number, place) in self.lock().places.iter_mut().enumerate() {
            let Some(place) = place.as_mut().filter(|place| !place.delivery.is_settled() && !place.delivery.is_lost())
            else {
                continue;
            };
            if now >= place.deadline {
                lost.push(place.delivery.clone());
                continue;
            }
            let at = (now + self.lease / 3).min(place.deadline);
            next = Some(next.map_or(at, |next| next.min(at)));
            if !std::mem::replace(&mut place.extending, true) {
                extend.push((number, place.delivery.clone()));
            }
        }
        for delivery in lost {
            delivery.lose("it ran out before it could be extended");
        }
        (extend, next)
    }

    /// Extends the lease of one of them.
    pub(super) async fn extend(&self, place: usize, delivery: &Delivery) {
        let asked = Instant::now();
        let result = delivery.extend(self.lease).await;
        if !self.extended(place, asked, &result) {
            // Its handler has ended meanwhile, and may have settled it already.
            return;
        }
        match result {
            Ok(Extended::Gone | Extended::Lost) if !delivery.is_settled() => {
                delivery.lose("an extension found it gone")
            }
            Ok(_) => {}
            Err(error) => events::extend_failed(delivery.queue().name(), &error),
        }
    }

    /// Whether its handler still runs.
    fn extended(&self, place: usize, asked: Instant, result: &Result<Extended, Error>) -> bool {
        let mut running = self.lock();
        let Some(Some(place)) = running.places.get_mut(place) else { return false };
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
