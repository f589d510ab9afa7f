//! The pure parts of a node for simulations: its timers and its attendance, on virtual time.
//!
//! Behind the feature `harness`, which is outside of semantic versioning.

use std::time::{Duration, Instant};

use crate::node::attendance::{self, Attendance};
use crate::node::queue_number::QueueNumber;
use crate::node::timers::{self, NodeTimers};
use crate::protocol::partition_map::Tag;

/// What a node does next for a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Promote what is due.
    Promote,
    /// Beat.
    Beat,
    /// Claim, although no wake-up token came.
    Claim,
}

/// The time for which a leader stays one after its beat.
pub const LEADER_TTL: Duration = timers::LEADER_TTL;
/// The shortest time between two promotes that moved nothing.
pub const TICK: Duration = timers::TICK;

/// The time between two beats of a node of this rank; `None` in a queue of one partition.
pub fn beat_interval(rank: Option<usize>, is_leader: bool) -> Duration {
    attendance::beat_interval(rank, is_leader)
}

/// The time between two watches of a roster of `nodes`. `part` (0 to 1) spreads them.
pub fn watch_interval(nodes: usize, part: f64) -> Duration {
    attendance::watch_interval(nodes, part)
}

/// The timers of one node. Times are since the start of the simulation; partitions have numbers.
pub struct Timers {
    start: Instant,
    timers: NodeTimers,
}

impl Timers {
    /// The timers of a node whose standby delays follow `seed`, in a queue of one partition.
    pub fn new(seed: u64) -> Self {
        let start = Instant::now();
        Self {
            start,
            timers: NodeTimers::new(start, seed),
        }
    }

    /// The node attends this partition. In a queue of one partition it has no rank.
    pub fn add(&mut self, partition: u32, rank: Option<usize>) {
        self.timers.add(QueueNumber(partition));
        self.set_rank(partition, rank);
    }

    /// The node has this rank now.
    pub fn set_rank(&mut self, partition: u32, rank: Option<usize>) {
        self.timers.set_rank(QueueNumber(partition), rank);
    }

    /// The node leaves this partition.
    pub fn remove(&mut self, partition: u32) {
        self.timers.remove(QueueNumber(partition));
    }

    /// When to call [`pop`](Self::pop) next.
    pub fn next(&self) -> Option<Duration> {
        self.timers.next().map(|at| at.duration_since(self.start))
    }

    /// The next action that is due. A promote or beat is in flight until
    /// [`completed`](Self::completed).
    pub fn pop(&mut self, now: Duration) -> Option<(u32, Action)> {
        loop {
            let (QueueNumber(partition), action) = self.timers.pop(self.start + now)?;
            let action = match action {
                timers::Action::Promote => Action::Promote,
                timers::Action::Beat => Action::Beat,
                timers::Action::Claim => Action::Claim,
                timers::Action::Reap | timers::Action::CheckLeases(_) | timers::Action::Watch => {
                    continue;
                }
            };
            return Some((partition, action));
        }
    }

    /// The call finished. Start no other before `backoff` has elapsed.
    pub fn completed(&mut self, partition: u32, action: Action, now: Duration, backoff: Duration) {
        let now = self.start + now;
        self.timers
            .completed(QueueNumber(partition), of(action), now, backoff);
    }

    /// A message is due at `at`.
    pub fn promote_at(&mut self, partition: u32, at: Duration, now: Duration) {
        let (at, now) = (self.start + at, self.start + now);
        self.timers.promote_at(QueueNumber(partition), at, now);
    }

    /// The first scheduled message is due at `at`, if there is one.
    pub fn head_is(&mut self, partition: u32, at: Option<Duration>, now: Duration) {
        let at = at.map(|at| self.start + at);
        self.timers
            .head_is(QueueNumber(partition), at, self.start + now);
    }

    /// Beat at `at`, or at the earlier time that was set.
    pub fn beat_at(&mut self, partition: u32, at: Duration, now: Duration) {
        let (at, now) = (self.start + at, self.start + now);
        self.timers.beat_at(QueueNumber(partition), at, now);
    }

    /// Claim at `at`, or at the earlier time that was set.
    pub fn claim_at(&mut self, partition: u32, at: Duration, now: Duration) {
        let (at, now) = (self.start + at, self.start + now);
        self.timers.claim_at(QueueNumber(partition), at, now);
    }

    /// The reply to a beat that was sent at `sent`.
    pub fn set_leader(&mut self, partition: u32, is_leader: bool, nodes: u64, sent: Duration) {
        let sent = self.start + sent;
        self.timers
            .set_leader(QueueNumber(partition), is_leader, nodes, sent, LEADER_TTL);
    }

    /// Whether the node is the leader of the partition.
    pub fn is_leader(&self, partition: u32, now: Duration) -> bool {
        self.timers
            .is_leader(QueueNumber(partition), self.start + now)
    }

    /// Whether no other node was alive in the partition at the last beat.
    pub fn is_alone(&self, partition: u32) -> bool {
        self.timers.is_alone(QueueNumber(partition))
    }
}

fn of(action: Action) -> timers::Action {
    match action {
        Action::Promote => timers::Action::Promote,
        Action::Beat => timers::Action::Beat,
        Action::Claim => timers::Action::Claim,
    }
}

/// The live nodes.
pub struct Roster(attendance::Roster);

impl Roster {
    /// The roster of the nodes of these names.
    pub fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        Self(attendance::Roster::of(names))
    }

    /// How many nodes it has.
    pub fn nodes(&self) -> usize {
        self.0.nodes()
    }
}

/// The partitions that one node attends.
pub struct Attended(Attendance);

impl Attended {
    /// As one node of this name attends a queue of `partitions`. Their numbers are their tags; 0 is
    /// the home.
    pub fn new(partitions: u32, node: &str) -> Self {
        let tags: Vec<_> = (0..partitions)
            .map(|number| match number {
                0 => Tag::Home,
                _ => Tag::Numbered(number),
            })
            .collect();
        Self(Attendance::new("simulated", &tags, node))
    }

    /// The nodes are now these and the own one. Returns whether the node may attend others now, or
    /// at other ranks.
    pub fn update(&mut self, roster: &Roster) -> bool {
        self.0.update(&roster.0)
    }

    /// The partitions that the node attends, by number, with its rank in each.
    pub fn attended(&self) -> impl Iterator<Item = (u32, usize)> {
        self.0.attended().map(|(tag, rank)| match tag {
            Tag::Home => (0, rank),
            Tag::Numbered(number) => (number, rank),
        })
    }
}
