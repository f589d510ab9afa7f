//! The timer of a call of which at most one is in flight.

use std::time::{Duration, Instant};

use crate::node::timers::TICK;
use crate::wheel::Key;

/// Of several requested times the earliest counts; firing clears it.
#[derive(Default)]
pub(crate) struct CallTimer {
    pub(crate) armed: Option<Armed>,
    /// When the call in flight was sent.
    pub(crate) in_flight: Option<Instant>,
    /// The earliest time that was requested during the call in flight: its reply may not cover it.
    pub(crate) requested: Option<Instant>,
    /// The end of the back-off.
    pub(crate) not_before: Option<Instant>,
}

/// Where the timer is on the wheel.
#[derive(Clone, Copy)]
pub(crate) struct Armed {
    pub(crate) tick: u64,
    pub(crate) key: Key,
}

impl CallTimer {
    /// When to fire for a request of `at`, with the back-off and a standby's `delay`. `None` while
    /// a call is in flight: then the request is kept.
    pub(crate) fn request(
        &mut self,
        at: Instant,
        now: Instant,
        delay: Duration,
    ) -> Option<Instant> {
        if let Some(sent) = self.in_flight {
            // The call in flight covers everything that was due when it was sent.
            if at > sent {
                self.requested = Some(self.requested.map_or(at, |other| other.min(at)));
            }
            return None;
        }
        // The back-off applies to overdue work only; a future timer is delayed by at most one tick.
        let not_before = self
            .not_before
            .filter(|&end| at <= now || end <= now + TICK);
        Some(not_before.map_or(at + delay, |not_before| not_before.max(at + delay)))
    }
}
