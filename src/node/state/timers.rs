//! The timers of a node: when to promote, reap, beat, claim and check leases, for each of its
//! partitions, and when to watch a roster. Pure: it reads no clock and does no I/O.

use std::time::{Duration, Instant};

use crate::node::{PartitionId, QueueId};
use crate::wheel::{Key, Wheel};

/// The longest time a due message waits if every hint is lost, unless its queue is parked.
pub(crate) const FALLBACK_INTERVAL: Duration = Duration::from_secs(1);
/// Time between two beats of a node. It leaves 100 ms of the fallback interval for the claim of
/// messages that a beat reports.
pub(crate) const BEAT_INTERVAL: Duration = Duration::from_millis(900);
/// The shortest time between two promotes that moved nothing.
pub(crate) const TICK: Duration = Duration::from_micros(100);
/// How long a beat keeps its node the leader, counted from when the beat was sent. Redis counts the
/// same time from when it received the beat, so the old leader stops before another node can lead.
pub(crate) const LEADER_TTL: Duration = Duration::from_millis(2_500);
/// The delay of a standby after the leader's time to act, to which a part for each live node is
/// added. In a queue of several partitions, the standby of rank n acts n times this delay later.
const STANDBY_MS: u64 = 25;
/// The longest delay of a standby.
const MAX_STANDBY_MS: u64 = 1_000;

/// An action that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Due {
    /// An action for a partition.
    Act(PartitionId, Action),
    /// Watch the roster of this queue.
    Watch(QueueId),
}

/// An action for a partition, by the timer that fired.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    Promote,
    Reap,
    Beat,
    /// Claim without a wake-up token.
    Claim,
    /// Check the leases of the claim with this number.
    CheckLeases(u64),
}

/// The wheel of a node, with the timers of all its partitions. Its ticks are microseconds since
/// `start`.
pub(crate) struct NodeTimers {
    start: Instant,
    /// Boxed, because it is large and is moved into the coordinator's task.
    wheel: Box<Wheel<Due>>,
    /// A number that differs between nodes, so that their delays as standbys differ.
    seed: u64,
}

impl NodeTimers {
    pub(crate) fn new(start: Instant, seed: u64) -> Self {
        Self {
            start,
            wheel: Box::default(),
            seed,
        }
    }

    /// When to call [`pop`](Self::pop) next; at most a little too early.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.wheel
            .next_expiration()
            .map(|tick| self.start + Duration::from_micros(tick))
    }

    /// Takes the earliest action that is due at `now`; call it until it returns `None`. A promote,
    /// reap or beat that it returns counts as in flight until
    /// [`completed`](PartitionTimers::completed) is called. `timers_of` has the timers of a
    /// partition.
    pub(crate) fn pop<'a>(
        &mut self,
        now: Instant,
        timers_of: impl FnOnce(PartitionId) -> Option<&'a mut PartitionTimers>,
    ) -> Option<Due> {
        let elapsed = now.saturating_duration_since(self.start).as_micros();
        let tick = u64::try_from(elapsed).unwrap_or(u64::MAX);
        let due = self.wheel.pop_expired(tick)?.value;
        if let Due::Act(id, action) = due
            && let Some(timers) = timers_of(id)
        {
            timers.fired(action, now);
        }
        Some(due)
    }

    /// Adds a timer that is not one of a partition's fixed timers.
    pub(crate) fn schedule(&mut self, due: Due, at: Instant) -> Option<Key> {
        // The wheel has no capacity limit, so it does not refuse.
        self.wheel.insert(self.tick(at), due).ok()
    }

    pub(crate) fn cancel(&mut self, key: Option<Key>) {
        if let Some(key) = key {
            self.wheel.remove(key);
        }
    }

    /// Converts an instant to a tick, rounded up, so that no timer fires early.
    fn tick(&self, at: Instant) -> u64 {
        let nanoseconds = at.saturating_duration_since(self.start).as_nanos();
        u64::try_from(nanoseconds.div_ceil(1_000)).unwrap_or(u64::MAX)
    }
}

/// The timers of one partition, and the values that decide when they fire.
pub(crate) struct PartitionTimers {
    id: PartitionId,
    promote: CallTimer,
    reap: CallTimer,
    beat: CallTimer,
    claim: CallTimer,
    leader_until: Option<Instant>,
    /// The number of live nodes that the last beat reported.
    nodes: u64,
    /// The node's rank, if the queue has several partitions. As a standby it acts this many steps
    /// after the leader. Without a rank, the seeds of the nodes spread the delays of standbys.
    pub(crate) rank: Option<usize>,
    /// Whether the node leaves the partition: then no timer is armed any more.
    is_closed: bool,
}

impl PartitionTimers {
    pub(crate) fn new(id: PartitionId, rank: Option<usize>) -> Self {
        Self {
            id,
            promote: CallTimer::default(),
            reap: CallTimer::default(),
            beat: CallTimer::default(),
            claim: CallTimer::default(),
            leader_until: None,
            nodes: 1,
            rank,
            is_closed: false,
        }
    }

    /// Cancels all timers, for good.
    pub(crate) fn close(&mut self, node: &mut NodeTimers) {
        for timer in [&self.promote, &self.reap, &self.beat, &self.claim] {
            node.cancel(timer.armed.map(|armed| armed.key));
        }
        *self = Self {
            is_closed: true,
            ..Self::new(self.id, self.rank)
        };
    }

    fn fired(&mut self, action: Action, now: Instant) {
        if let Some(timer) = self.timer(action) {
            timer.armed = None;
            if action != Action::Claim {
                timer.in_flight = Some(now);
            }
        }
    }

    /// The call finished. Start no other before `backoff` has elapsed.
    pub(crate) fn completed(
        &mut self,
        action: Action,
        node: &mut NodeTimers,
        now: Instant,
        backoff: Duration,
    ) {
        let Some(timer) = self.timer(action) else {
            return;
        };
        timer.in_flight = None;
        timer.not_before = Some(now + backoff);
        if let Some(at) = timer.requested.take() {
            self.arm(action, at, node, now);
        }
    }

    /// Whether [`close`](Self::close) was called. A partition that the node has left must have no
    /// timer on the wheel.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Whether a promote, reap or beat has fired and has not completed.
    pub(crate) fn is_in_flight(&mut self, action: Action) -> bool {
        self.timer(action)
            .is_some_and(|timer| timer.in_flight.is_some())
    }

    /// Requests a promote for a message that is due at `at`: the leader makes it then, a standby a
    /// little later.
    pub(crate) fn promote_at(&mut self, at: Instant, node: &mut NodeTimers, now: Instant) {
        self.arm(Action::Promote, at, node, now);
    }

    /// The head of the scheduled set is due at `at`, or the set is empty. A standby forgets earlier
    /// times, because their messages have been promoted. The leader forgets none.
    pub(crate) fn head_is(&mut self, at: Option<Instant>, node: &mut NodeTimers, now: Instant) {
        if !self.is_leader(now) {
            self.promote.requested = None;
            let armed = self.promote.armed.take();
            node.cancel(armed.map(|armed| armed.key));
        }
        if let Some(at) = at {
            self.promote_at(at, node, now);
        }
    }

    /// Requests a reap at `at`, when the first lease ends.
    pub(crate) fn reap_at(&mut self, at: Instant, node: &mut NodeTimers, now: Instant) {
        self.arm(Action::Reap, at, node, now);
    }

    pub(crate) fn beat_at(&mut self, at: Instant, node: &mut NodeTimers, now: Instant) {
        self.arm(Action::Beat, at, node, now);
    }

    /// Requests a claim at `at`, unless an earlier one is requested.
    pub(crate) fn claim_at(&mut self, at: Instant, node: &mut NodeTimers, now: Instant) {
        self.arm(Action::Claim, at, node, now);
    }

    /// Handles the reply to a beat that was sent at `sent`. A leader stays leader for `ttl` after
    /// `sent`.
    pub(crate) fn set_leader(&mut self, is_leader: bool, nodes: u64, sent: Instant, ttl: Duration) {
        if !self.is_closed {
            self.leader_until = is_leader.then(|| sent + ttl);
            self.nodes = nodes.max(1);
        }
    }

    pub(crate) fn is_leader(&self, now: Instant) -> bool {
        self.leader_until.is_some_and(|until| now < until)
    }

    /// Whether no other node was alive at the last beat.
    pub(crate) fn is_alone(&self) -> bool {
        self.nodes == 1
    }

    fn arm(&mut self, action: Action, at: Instant, node: &mut NodeTimers, now: Instant) {
        let delay = match action {
            Action::Beat | Action::Claim => Duration::ZERO,
            _ => self.standby_delay(at, node, now),
        };
        let id = self.id;
        let Some(timer) = self.timer(action) else {
            return;
        };
        let Some(at) = timer.request(at, now, delay) else {
            return;
        };
        let tick = node.tick(at);
        if timer.armed.is_some_and(|old| old.tick <= tick) {
            return;
        }
        node.cancel(timer.armed.map(|old| old.key));
        let key = node.wheel.insert(tick, Due::Act(id, action)).ok();
        timer.armed = key.map(|key| Armed { tick, key });
    }

    /// The timer of this action; `None` after [`close`](Self::close) and for actions without one.
    fn timer(&mut self, action: Action) -> Option<&mut CallTimer> {
        if self.is_closed {
            return None;
        }
        match action {
            Action::Promote => Some(&mut self.promote),
            Action::Reap => Some(&mut self.reap),
            Action::Beat => Some(&mut self.beat),
            Action::Claim => Some(&mut self.claim),
            Action::CheckLeases(_) => None,
        }
    }

    /// By how much this node acts after `at`, in case the leader has not. The delay differs between
    /// nodes and between times, so that standbys do not all act at once.
    fn standby_delay(&self, at: Instant, node: &NodeTimers, now: Instant) -> Duration {
        if self.is_leader(now) {
            return Duration::ZERO;
        }
        if let Some(rank) = self.rank {
            // A node of rank 0 becomes the leader with its next beat. Until then it is a standby
            // like rank 1.
            let steps = u64::try_from(rank.max(1)).unwrap_or(u64::MAX);
            let delay = STANDBY_MS.saturating_mul(steps);
            return Duration::from_millis(delay.min(MAX_STANDBY_MS));
        }
        let spread = (STANDBY_MS * self.nodes).min(MAX_STANDBY_MS - STANDBY_MS);
        // Fibonacci hashing: neighbouring instants give unrelated delays.
        let mixed = (node.seed ^ node.tick(at)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        Duration::from_millis(STANDBY_MS + mixed % spread)
    }
}

/// The timer of one kind of call. Of several requested times the earliest counts, and firing clears
/// the request.
#[derive(Default)]
pub(crate) struct CallTimer {
    pub(crate) armed: Option<Armed>,
    /// When the call in flight was sent.
    pub(crate) in_flight: Option<Instant>,
    /// The earliest time requested during the call in flight, whose reply may not cover that time.
    pub(crate) requested: Option<Instant>,
    /// The end of the back-off.
    pub(crate) not_before: Option<Instant>,
}

/// A timer on the wheel: its key and its time.
#[derive(Clone, Copy)]
pub(crate) struct Armed {
    pub(crate) tick: u64,
    pub(crate) key: Key,
}

impl CallTimer {
    /// When to fire for a request of `at`, given the back-off and a standby's `delay`. `None` while
    /// a call is in flight: the request is kept until that ends.
    pub(crate) fn request(
        &mut self,
        at: Instant,
        now: Instant,
        delay: Duration,
    ) -> Option<Instant> {
        if let Some(sent) = self.in_flight {
            // The call in flight covers everything that was due when it was sent, so only later
            // times are kept.
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

#[cfg(test)]
mod tests;
