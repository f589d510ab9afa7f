//! The timers of a node: when to promote, reap, beat, claim and check leases, for each of its
//! partitions, and when to watch a roster. Pure: it reads no clock and does no I/O.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::node::{PartitionId, QueueId};
use crate::wheel::{Key, Wheel};

/// The longest time a due message waits if every hint is lost, unless its queue is parked.
pub(crate) const FALLBACK_INTERVAL: Duration = Duration::from_secs(1);
/// Time between two beats of a node. It leaves 100 ms of the fallback interval for the claim of
/// messages that a beat reports.
pub(crate) const BEAT_INTERVAL: Duration = Duration::from_millis(900);
/// Shortest time between two promotes that moved nothing.
pub(crate) const TICK: Duration = Duration::from_micros(100);
/// How long a beat keeps its node the leader, counted from when the beat was sent. Redis counts as
/// long from when it received the beat, so the old leader stops before another node can lead.
pub(crate) const LEADER_TTL: Duration = Duration::from_millis(2_500);
/// A standby acts this much later than the leader would, plus a part of as much for each live node.
/// In a queue of several partitions, the standby of rank n acts n times this much later.
const STANDBY_MS: u64 = 25;
/// The longest delay of a standby.
const MAX_STANDBY_MS: u64 = 1_000;

/// Something to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Due {
    /// For a partition.
    Act(PartitionId, Action),
    /// Watch the roster of this queue.
    Watch(QueueId),
}

/// Something to do for a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    Promote,
    Reap,
    Beat,
    /// Claim, although no wake-up token came.
    Claim,
    /// Check the leases of the claim with this number.
    CheckLeases(u64),
}

/// The timers of one node, all on one wheel. Their ticks are microseconds since `start`.
pub(crate) struct NodeTimers {
    start: Instant,
    /// Boxed, because it is large and is moved into the coordinator's task.
    wheel: Box<Wheel<Due>>,
    partitions: HashMap<PartitionId, PartitionTimers>,
    /// Differs between nodes, so that their delays as standbys differ.
    seed: u64,
}

/// What the timers know of one partition.
struct PartitionTimers {
    promote: CallTimer,
    reap: CallTimer,
    beat: CallTimer,
    claim: CallTimer,
    leader_until: Option<Instant>,
    /// How many nodes were alive at the last beat.
    nodes: u64,
    /// How many nodes come before this one, if the queue has several partitions.
    rank: Option<u32>,
}

impl Default for PartitionTimers {
    fn default() -> Self {
        Self {
            promote: CallTimer::default(),
            reap: CallTimer::default(),
            beat: CallTimer::default(),
            claim: CallTimer::default(),
            leader_until: None,
            nodes: 1,
            rank: None,
        }
    }
}

impl NodeTimers {
    pub(crate) fn new(start: Instant, seed: u64) -> Self {
        Self {
            start,
            wheel: Box::default(),
            partitions: HashMap::new(),
            seed,
        }
    }

    pub(crate) fn add(&mut self, partition: PartitionId) {
        self.partitions
            .insert(partition, PartitionTimers::default());
    }

    /// Cancels the timers of a partition, besides those of its claims.
    pub(crate) fn remove(&mut self, partition: PartitionId) {
        if let Some(timers) = self.partitions.remove(&partition) {
            for timer in [timers.promote, timers.reap, timers.beat, timers.claim] {
                self.cancel(timer.armed.map(|armed| armed.key));
            }
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
    pub(crate) fn pop(&mut self, now: Instant) -> Option<Due> {
        let elapsed = now.saturating_duration_since(self.start).as_micros();
        let tick = u64::try_from(elapsed).unwrap_or(u64::MAX);
        let due = self.wheel.pop_expired(tick)?.value;
        if let Due::Act(partition, action) = due
            && let Some(timer) = self.timer(partition, action)
        {
            timer.armed = None;
            if action != Action::Claim {
                timer.in_flight = Some(now);
            }
        }
        Some(due)
    }

    /// The call finished. Start no other before `backoff` has elapsed.
    pub(crate) fn completed(
        &mut self,
        partition: PartitionId,
        action: Action,
        now: Instant,
        backoff: Duration,
    ) {
        let Some(timer) = self.timer(partition, action) else {
            return;
        };
        timer.in_flight = None;
        timer.not_before = Some(now + backoff);
        if let Some(at) = timer.requested.take() {
            self.arm(partition, action, at, now);
        }
    }

    /// Whether a promote, reap or beat was returned by `pop` and has not completed.
    pub(crate) fn is_in_flight(&mut self, partition: PartitionId, action: Action) -> bool {
        self.timer(partition, action)
            .is_some_and(|timer| timer.in_flight.is_some())
    }

    /// A message is due at `at`: the leader promotes then, a standby a little later.
    pub(crate) fn promote_at(&mut self, partition: PartitionId, at: Instant, now: Instant) {
        self.arm(partition, Action::Promote, at, now);
    }

    /// The head of the scheduled set is due at `at`, or the set is empty. A standby forgets earlier
    /// times, because their messages have been promoted. The leader forgets none.
    pub(crate) fn head_is(&mut self, partition: PartitionId, at: Option<Instant>, now: Instant) {
        if !self.is_leader(partition, now)
            && let Some(promote) = self.timer(partition, Action::Promote)
        {
            promote.requested = None;
            let armed = promote.armed.take();
            self.cancel(armed.map(|armed| armed.key));
        }
        if let Some(at) = at {
            self.promote_at(partition, at, now);
        }
    }

    /// The first lease ends at `at`.
    pub(crate) fn reap_at(&mut self, partition: PartitionId, at: Instant, now: Instant) {
        self.arm(partition, Action::Reap, at, now);
    }

    pub(crate) fn beat_at(&mut self, partition: PartitionId, at: Instant, now: Instant) {
        self.arm(partition, Action::Beat, at, now);
    }

    /// Claim at `at`, or earlier if an earlier time was set.
    pub(crate) fn claim_at(&mut self, partition: PartitionId, at: Instant, now: Instant) {
        self.arm(partition, Action::Claim, at, now);
    }

    /// The reply to a beat that was sent at `sent`. A leader stays it for `ttl` after that.
    pub(crate) fn set_leader(
        &mut self,
        partition: PartitionId,
        is_leader: bool,
        nodes: u64,
        sent: Instant,
        ttl: Duration,
    ) {
        if let Some(timers) = self.partitions.get_mut(&partition) {
            timers.leader_until = is_leader.then(|| sent + ttl);
            timers.nodes = nodes.max(1);
        }
    }

    /// How many nodes come before this one in the partition: as a standby it acts this many steps after
    /// the leader. Without a rank, the delays of standbys are spread by the node's seed.
    pub(crate) fn set_rank(&mut self, partition: PartitionId, rank: Option<usize>) {
        if let Some(timers) = self.partitions.get_mut(&partition) {
            timers.rank = rank.map(|rank| u32::try_from(rank).unwrap_or(u32::MAX));
        }
    }

    pub(crate) fn is_leader(&self, partition: PartitionId, now: Instant) -> bool {
        let timers = self.partitions.get(&partition);
        timers.is_some_and(|timers| timers.leader_until.is_some_and(|until| now < until))
    }

    /// Whether no other node was alive at the last beat.
    pub(crate) fn is_alone(&self, partition: PartitionId) -> bool {
        self.partitions
            .get(&partition)
            .is_some_and(|timers| timers.nodes == 1)
    }

    /// Adds a timer that is not one of those of each partition.
    pub(crate) fn schedule(&mut self, due: Due, at: Instant) -> Option<Key> {
        // The wheel has no capacity limit, so it does not refuse.
        self.wheel.insert(self.tick(at), due).ok()
    }

    pub(crate) fn cancel(&mut self, key: Option<Key>) {
        if let Some(key) = key {
            self.wheel.remove(key);
        }
    }

    fn arm(&mut self, partition: PartitionId, action: Action, at: Instant, now: Instant) {
        let delay = match action {
            Action::Beat | Action::Claim => Duration::ZERO,
            _ => self.standby_delay(partition, at, now),
        };
        let Some(timer) = self.timer(partition, action) else {
            return;
        };
        let Some(at) = timer.request(at, now, delay) else {
            return;
        };
        let old = timer.armed;
        let tick = self.tick(at);
        if old.is_some_and(|old| old.tick <= tick) {
            return;
        }
        self.cancel(old.map(|old| old.key));
        let key = self.wheel.insert(tick, Due::Act(partition, action)).ok();
        if let Some(timer) = self.timer(partition, action) {
            timer.armed = key.map(|key| Armed { tick, key });
        }
    }

    fn timer(&mut self, partition: PartitionId, action: Action) -> Option<&mut CallTimer> {
        let timers = self.partitions.get_mut(&partition)?;
        match action {
            Action::Promote => Some(&mut timers.promote),
            Action::Reap => Some(&mut timers.reap),
            Action::Beat => Some(&mut timers.beat),
            Action::Claim => Some(&mut timers.claim),
            Action::CheckLeases(_) => None,
        }
    }

    /// How long after `at` this node acts, in case the leader has not. It differs between nodes and
    /// between times, so that the standbys do not act all at once.
    fn standby_delay(&self, partition: PartitionId, at: Instant, now: Instant) -> Duration {
        if self.is_leader(partition, now) {
            return Duration::ZERO;
        }
        let timers = self.partitions.get(&partition);
        if let Some(rank) = timers.and_then(|timers| timers.rank) {
            // Rank 0 takes the lead with its next beat. Until then it is a standby like rank 1.
            let steps = u64::from(rank.max(1));
            return Duration::from_millis((STANDBY_MS * steps).min(MAX_STANDBY_MS));
        }
        let nodes = timers.map_or(1, |timers| timers.nodes);
        let spread = (STANDBY_MS * nodes).min(MAX_STANDBY_MS - STANDBY_MS);
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

#[cfg(test)]
mod tests;
