//! What a node must do when: pure, on the instants it is given, without I/O.

use std::time::{Duration, Instant};

use crate::wheel::{Key, Wheel};

/// The most that a due message waits if every hint is lost.
pub(crate) const FALLBACK_INTERVAL: Duration = Duration::from_secs(1);
/// From one beat of a node to the next: so that what it finds is claimed within the floor.
pub(crate) const BEAT_EVERY: Duration = Duration::from_millis(900);
/// The least time between two promotes that found nothing.
pub(crate) const TICK: Duration = Duration::from_micros(100);
/// A leader that was not renewed for so long is somebody else's.
const LEADER_TTL: Duration = Duration::from_millis(2_500);
/// A node without the leader leaves it this much time, and then a share of up to as much for each live node.
const STAND_IN_MS: u64 = 25;
const MAX_STAND_IN_MS: u64 = 1_000;

/// What is to be done now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    Promote,
    Reap,
    Beat,
    /// Look after the leases of the claim of this number.
    Extend(u64),
}

/// The timers of a node, in microseconds since it started.
pub(crate) struct NodeTimers {
    start: Instant,
    wheel: Wheel<Action>,
    promote: Slot,
    reap: Slot,
    beat: Slot,
    leader_until: Option<Instant>,
    nodes: u64,
    /// What spreads the nodes that stand in for a leader.
    hash: u64,
}

/// A timer that exists once: it takes the earlier of two times, and is empty again when it has fired.
#[derive(Default)]
struct Slot {
    armed: Option<(u64, Key)>,
    /// Since when a call is under way.
    in_flight: Option<Instant>,
    /// The first instant that was asked for meanwhile: the call may have been made before it was known.
    meanwhile: Option<Instant>,
    /// Before this there is no use in trying again.
    not_before: Option<Instant>,
}

impl NodeTimers {
    pub(crate) fn new(start: Instant, hash: u64) -> Self {
        Self {
            start,
            wheel: Wheel::new(),
            promote: Slot::default(),
            reap: Slot::default(),
            beat: Slot::default(),
            leader_until: None,
            nodes: 1,
            hash,
        }
    }

    /// The next instant at which something is to be done (or a little before it).
    pub(crate) fn next(&self) -> Option<Instant> {
        self.wheel
            .next_expiration()
            .map(|tick| self.start + Duration::from_micros(tick))
    }

    /// What is to be done at `now`, earliest first; call it until it returns nothing. A promote, reap or beat that it names
    /// is in flight until [`completed`](NodeTimers::completed) is called.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<Action> {
        let tick = u64::try_from(now.saturating_duration_since(self.start).as_micros())
            .unwrap_or(u64::MAX);
        let action = self.wheel.pop_expired(tick)?.value;
        if let Some(slot) = self.slot(action) {
            slot.armed = None;
            slot.in_flight = Some(now);
        }
        Some(action)
    }

    /// A promote, reap or beat was answered, and the next one makes no sense before `pause` is over.
    pub(crate) fn completed(&mut self, action: Action, now: Instant, pause: Duration) {
        let Some(slot) = self.slot(action) else {
            return;
        };
        slot.in_flight = None;
        slot.not_before = Some(now + pause);
        if let Some(at) = slot.meanwhile.take() {
            self.arm(action, at, now);
        }
    }

    /// Whether a promote, reap or beat was named and has not completed yet.
    pub(crate) fn is_in_flight(&mut self, action: Action) -> bool {
        self.slot(action)
            .is_some_and(|slot| slot.in_flight.is_some())
    }

    /// The head of the queue is due at this instant: the leader promotes then, the others a little later.
    pub(crate) fn head_at(&mut self, at: Instant, now: Instant) {
        self.arm(Action::Promote, at, now);
    }

    /// The head of the queue is due at this instant, or there is none, and nothing else is: whoever would stand in for the leader
    /// at another time need not. The leader itself forgets no time.
    pub(crate) fn head_is(&mut self, at: Option<Instant>, now: Instant) {
        if !self.leads(now) {
            let armed = self.promote.armed.take();
            self.unschedule(armed.map(|(_, key)| key));
            self.promote.meanwhile = None;
        }
        if let Some(at) = at {
            self.head_at(at, now);
        }
    }

    /// The first lease ends at this instant.
    pub(crate) fn lease_ends_at(&mut self, at: Instant, now: Instant) {
        self.arm(Action::Reap, at, now);
    }

    /// A beat is due at this instant.
    pub(crate) fn beat_at(&mut self, at: Instant, now: Instant) {
        self.arm(Action::Beat, at, now);
    }

    /// A beat that was sent at `sent` said who leads and how many nodes live.
    pub(crate) fn set_leader(&mut self, leader: bool, nodes: u64, sent: Instant) {
        self.leader_until = leader.then(|| sent + LEADER_TTL);
        self.nodes = nodes.max(1);
    }

    /// Whether this node has the leader.
    pub(crate) fn leads(&self, now: Instant) -> bool {
        self.leader_until.is_some_and(|until| now < until)
    }

    /// Whether no other node lived at the last beat.
    pub(crate) fn is_alone(&self) -> bool {
        self.nodes == 1
    }

    /// Another timer, which may exist many times.
    pub(crate) fn schedule(&mut self, action: Action, at: Instant) -> Option<Key> {
        // The wheel is unbounded: there is no refusal.
        self.wheel.insert(self.tick(at), action).ok()
    }

    pub(crate) fn unschedule(&mut self, key: Option<Key>) {
        if let Some(key) = key {
            self.wheel.remove(key);
        }
    }

    fn arm(&mut self, action: Action, at: Instant, now: Instant) {
        let stand_in = if action == Action::Beat {
            Duration::ZERO
        } else {
            self.stand_in(at, now)
        };
        let Some(slot) = self.slot(action) else {
            return;
        };
        if let Some(sent) = slot.in_flight {
            // What was due when the call was sent is its business; its reply may know nothing of what is due later.
            if at > sent {
                slot.meanwhile = Some(slot.meanwhile.map_or(at, |other| other.min(at)));
            }
            return;
        }
        // What was stuck is due by now; what is due later does not wait for it, but for a tick.
        let not_before = slot
            .not_before
            .filter(|&end| at <= now || end <= now + TICK);
        let at = not_before.map_or(at + stand_in, |not_before| not_before.max(at + stand_in));
        let old = slot.armed;
        let tick = self.tick(at);
        if old.is_some_and(|(armed, _)| armed <= tick) {
            return;
        }
        self.unschedule(old.map(|(_, key)| key));
        let armed = self.wheel.insert(tick, action).ok().map(|key| (tick, key));
        if let Some(slot) = self.slot(action) {
            slot.armed = armed;
        }
    }

    fn slot(&mut self, action: Action) -> Option<&mut Slot> {
        match action {
            Action::Promote => Some(&mut self.promote),
            Action::Reap => Some(&mut self.reap),
            Action::Beat => Some(&mut self.beat),
            Action::Extend(_) => None,
        }
    }

    /// How long after `at` this node acts, if nobody else has.
    fn stand_in(&self, at: Instant, now: Instant) -> Duration {
        if self.leads(now) {
            return Duration::ZERO;
        }
        let spread = (STAND_IN_MS * self.nodes).min(MAX_STAND_IN_MS - STAND_IN_MS);
        // Fibonacci hashing: neighbouring instants give unrelated shares.
        let mixed = (self.hash ^ self.tick(at)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        Duration::from_millis(STAND_IN_MS + mixed % spread)
    }

    fn tick(&self, at: Instant) -> u64 {
        let nanoseconds = at.saturating_duration_since(self.start).as_nanos();
        u64::try_from(nanoseconds.div_ceil(1_000)).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests;
