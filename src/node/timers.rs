//! The timers of a node: when to promote, reap, beat and check leases. Pure: it reads no clock and
//! does no I/O.

use std::time::{Duration, Instant};

use crate::wheel::{Key, Wheel};

/// The longest time a due message waits if every hint is lost.
pub(crate) const FALLBACK_INTERVAL: Duration = Duration::from_secs(1);
/// Time between two beats of a node. It leaves 100 ms of the fallback interval for the claim of
/// messages that a beat reports.
pub(crate) const BEAT_INTERVAL: Duration = Duration::from_millis(900);
/// Shortest time between two promotes that moved nothing.
pub(crate) const TICK: Duration = Duration::from_micros(100);
/// How long a beat keeps its node the leader, counted from when the beat was sent. Redis counts as
/// long from when it received the beat, so the old leader stops before another node can lead.
const LEADER_TTL: Duration = Duration::from_millis(2_500);
/// A standby acts this much later than the leader would, plus a part of as much for each live node.
const STANDBY_MS: u64 = 25;
/// The longest delay of a standby.
const MAX_STANDBY_MS: u64 = 1_000;

/// Something to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    Promote,
    Reap,
    Beat,
    /// Check the leases of the claim with this number.
    CheckLeases(u64),
}

/// The timers of one node. Their ticks are microseconds since `start`.
pub(crate) struct NodeTimers {
    start: Instant,
    wheel: Wheel<Action>,
    promote: CallTimer,
    reap: CallTimer,
    beat: CallTimer,
    leader_until: Option<Instant>,
    /// How many nodes were alive at the last beat.
    nodes: u64,
    /// Differs between nodes, so that their delays as standbys differ.
    seed: u64,
}

/// The timer of a call that is made at most once at a time. Of several requested times the earliest
/// counts; firing clears it.
#[derive(Default)]
struct CallTimer {
    armed: Option<Armed>,
    /// When the call in flight was sent.
    in_flight: Option<Instant>,
    /// The earliest time that was requested during the call in flight: its reply may not cover it.
    requested: Option<Instant>,
    /// The end of the back-off.
    not_before: Option<Instant>,
}

#[derive(Clone, Copy)]
struct Armed {
    tick: u64,
    key: Key,
}

impl NodeTimers {
    pub(crate) fn new(start: Instant, seed: u64) -> Self {
        Self {
            start,
            wheel: Wheel::new(),
            promote: CallTimer::default(),
            reap: CallTimer::default(),
            beat: CallTimer::default(),
            leader_until: None,
            nodes: 1,
            seed,
        }
    }

    /// When to call [`pop`](Self::pop) next; at most a little too early.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.wheel
            .next_expiration()
            .map(|tick| self.start + Duration::from_micros(tick))
    }

    /// The earliest action that is due at `now`. Call it until it returns `None`. A promote, reap
    /// or beat is in flight until [`completed`](Self::completed) is called.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<Action> {
        let elapsed = now.saturating_duration_since(self.start).as_micros();
        let tick = u64::try_from(elapsed).unwrap_or(u64::MAX);
        let action = self.wheel.pop_expired(tick)?.value;
        if let Some(timer) = self.timer(action) {
            timer.armed = None;
            timer.in_flight = Some(now);
        }
        Some(action)
    }

    /// The call finished. Start no other before `backoff` has elapsed.
    pub(crate) fn completed(&mut self, action: Action, now: Instant, backoff: Duration) {
        let Some(timer) = self.timer(action) else {
            return;
        };
        timer.in_flight = None;
        timer.not_before = Some(now + backoff);
        if let Some(at) = timer.requested.take() {
            self.arm(action, at, now);
        }
    }

    /// Whether a promote, reap or beat was returned by `pop` and has not completed.
    pub(crate) fn is_in_flight(&mut self, action: Action) -> bool {
        self.timer(action)
            .is_some_and(|timer| timer.in_flight.is_some())
    }

    /// A message is due at `at`: the leader promotes then, a standby a little later.
    pub(crate) fn promote_at(&mut self, at: Instant, now: Instant) {
        self.arm(Action::Promote, at, now);
    }

    /// The head of the scheduled set is due at `at`, or the set is empty. A standby forgets earlier
    /// times, because their messages have been promoted. The leader forgets none.
    pub(crate) fn head_is(&mut self, at: Option<Instant>, now: Instant) {
        if !self.is_leader(now) {
            let armed = self.promote.armed.take();
            self.cancel(armed.map(|armed| armed.key));
            self.promote.requested = None;
        }
        if let Some(at) = at {
            self.promote_at(at, now);
        }
    }

    /// The first lease ends at `at`.
    pub(crate) fn reap_at(&mut self, at: Instant, now: Instant) {
        self.arm(Action::Reap, at, now);
    }

    pub(crate) fn beat_at(&mut self, at: Instant, now: Instant) {
        self.arm(Action::Beat, at, now);
    }

    /// The reply to a beat that was sent at `sent`.
    pub(crate) fn set_leader(&mut self, is_leader: bool, nodes: u64, sent: Instant) {
        self.leader_until = is_leader.then(|| sent + LEADER_TTL);
        self.nodes = nodes.max(1);
    }

    pub(crate) fn is_leader(&self, now: Instant) -> bool {
        self.leader_until.is_some_and(|until| now < until)
    }

    /// Whether no other node was alive at the last beat.
    pub(crate) fn is_alone(&self) -> bool {
        self.nodes == 1
    }

    /// Adds a timer of an action that may have several.
    pub(crate) fn schedule(&mut self, action: Action, at: Instant) -> Option<Key> {
        // The wheel has no capacity limit, so it does not refuse.
        self.wheel.insert(self.tick(at), action).ok()
    }

    pub(crate) fn cancel(&mut self, key: Option<Key>) {
        if let Some(key) = key {
            self.wheel.remove(key);
        }
    }

    fn arm(&mut self, action: Action, at: Instant, now: Instant) {
        let delay = match action {
            Action::Beat => Duration::ZERO,
            _ => self.standby_delay(at, now),
        };
        let Some(timer) = self.timer(action) else {
            return;
        };
        if let Some(sent) = timer.in_flight {
            // The call in flight covers everything that was due when it was sent.
            if at > sent {
                timer.requested = Some(timer.requested.map_or(at, |other| other.min(at)));
            }
            return;
        }
        // The back-off applies to overdue work only; a future timer is delayed by at most one tick.
        let not_before = timer
            .not_before
            .filter(|&end| at <= now || end <= now + TICK);
        let at = not_before.map_or(at + delay, |not_before| not_before.max(at + delay));
        let old = timer.armed;
        let tick = self.tick(at);
        if old.is_some_and(|old| old.tick <= tick) {
            return;
        }
        self.cancel(old.map(|old| old.key));
        let key = self.wheel.insert(tick, action).ok();
        if let Some(timer) = self.timer(action) {
            timer.armed = key.map(|key| Armed { tick, key });
        }
    }

    fn timer(&mut self, action: Action) -> Option<&mut CallTimer> {
        match action {
            Action::Promote => Some(&mut self.promote),
            Action::Reap => Some(&mut self.reap),
            Action::Beat => Some(&mut self.beat),
            Action::CheckLeases(_) => None,
        }
    }

    /// How long after `at` this node acts, in case the leader has not. It differs between nodes and
    /// between times, so that the standbys do not act all at once.
    fn standby_delay(&self, at: Instant, now: Instant) -> Duration {
        if self.is_leader(now) {
            return Duration::ZERO;
        }
        let spread = (STANDBY_MS * self.nodes).min(MAX_STANDBY_MS - STANDBY_MS);
        // Fibonacci hashing: neighbouring instants give unrelated delays.
        let mixed = (self.seed ^ self.tick(at)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        Duration::from_millis(STANDBY_MS + mixed % spread)
    }

    /// Rounded up, so that no timer fires early.
    fn tick(&self, at: Instant) -> u64 {
        let nanoseconds = at.saturating_duration_since(self.start).as_nanos();
        u64::try_from(nanoseconds.div_ceil(1_000)).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests;
