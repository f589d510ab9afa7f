//! How a node attends each of its queues: which wake-up lists its blocking pop covers, and which
//! queues are parked. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::node::event::QueueNumber;
use crate::node::timers::LEADER_TTL;
use crate::partition::{Presence, Standing};

/// How many wake-up lists a blocking pop covers at most: its cost grows with each.
pub(crate) const MAX_LISTS: usize = 64;

/// The park time in beats for a queue whose list is not covered: scripts publish every earlier head
/// for this long.
const BY_NOTICE: Duration = Duration::from_secs(2);

/// A queue is parked only if no message is due within this time.
pub(crate) const PARK_AHEAD: Duration = Duration::from_secs(2);

/// The wake-up lists that the node wants its blocking pop to cover.
#[derive(Default)]
pub(crate) struct Attention {
    queues: BTreeMap<QueueNumber, Member>,
    /// Whether [`lists`](Self::lists) changed since the last [`take_changed`](Self::take_changed).
    changed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Member {
    /// Whether the queue keeps its place while nothing happens in it.
    is_fixed: bool,
    /// A token came that no handler of this node could use: another node is to get the next one.
    is_refused: bool,
}

impl Attention {
    /// Whether a queue that is added by name keeps a place in the pop; if not, it may be parked.
    pub(crate) fn add_named(&mut self, queue: QueueNumber) -> bool {
        let fixed = |member: &&Member| member.is_fixed;
        if self.queues.values().filter(fixed).count() >= MAX_LISTS {
            return false;
        }
        if self.queues.len() >= MAX_LISTS {
            // The last queue that has no place of its own makes room.
            let guest = self
                .queues
                .iter()
                .rev()
                .find(|(_, member)| !member.is_fixed);
            if let Some(guest) = guest.map(|(queue, _)| *queue) {
                self.queues.remove(&guest);
            }
        }
        self.insert(queue, true);
        true
    }

    /// Something happens in the queue: the pop covers it if there is room.
    pub(crate) fn activate(&mut self, queue: QueueNumber) {
        if self.queues.len() < MAX_LISTS && !self.queues.contains_key(&queue) {
            self.insert(queue, false);
        }
    }

    /// Nothing happens in the queue: it makes room for another.
    pub(crate) fn deactivate(&mut self, queue: QueueNumber) {
        if self
            .queues
            .get(&queue)
            .is_some_and(|member| !member.is_fixed)
        {
            self.remove(queue);
        }
    }

    pub(crate) fn remove(&mut self, queue: QueueNumber) {
        self.changed |= self.queues.remove(&queue).is_some();
    }

    /// No handler of this node could use a token of this queue: the next pop leaves its list to
    /// other nodes.
    pub(crate) fn refuse(&mut self, queue: QueueNumber) {
        if let Some(member) = self.queues.get_mut(&queue) {
            self.changed |= !std::mem::replace(&mut member.is_refused, true);
        }
    }

    /// The queues that were refused.
    pub(crate) fn refused(&self) -> impl Iterator<Item = QueueNumber> {
        let refused = self.queues.iter().filter(|(_, member)| member.is_refused);
        refused.map(|(queue, _)| *queue)
    }

    /// This node has a handler for the queue again.
    pub(crate) fn accept(&mut self, queue: QueueNumber) {
        if let Some(member) = self.queues.get_mut(&queue) {
            self.changed |= std::mem::replace(&mut member.is_refused, false);
        }
    }

    /// The queues whose lists the next pop covers: at most [`MAX_LISTS`].
    pub(crate) fn lists(&self) -> impl Iterator<Item = QueueNumber> {
        let covered = self.queues.iter().filter(|(_, member)| !member.is_refused);
        covered.map(|(queue, _)| *queue)
    }

    /// Whether the lists changed since the last call.
    pub(crate) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    fn insert(&mut self, queue: QueueNumber, is_fixed: bool) {
        let member = Member {
            is_fixed,
            is_refused: false,
        };
        self.queues.insert(queue, member);
        self.changed = true;
    }
}

/// What the beats of a node say of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attended {
    /// The pop covers its wake-up list.
    Listening,
    /// Something happens in it, and the pop does not cover its list: notices report new work.
    ByNotice,
    /// Nothing happens in it: the node is silent for this long.
    Parked(Duration),
}

impl Attended {
    pub(crate) fn presence(self, standing: Standing) -> Presence {
        let park = match self {
            Self::Listening => None,
            Self::ByNotice => Some(BY_NOTICE),
            Self::Parked(silence) => Some(silence),
        };
        Presence::Alive(standing, park)
    }

    /// The time between the beat that says so and the next: `usual`, unless the queue is parked.
    /// `part` (0 to 1) spreads the beats of parked queues.
    pub(crate) fn beat_interval(self, usual: Duration, part: f64) -> Duration {
        match self {
            Self::Listening | Self::ByNotice => usual,
            Self::Parked(silence) => silence.mul_f64(0.9 + 0.07 * part),
        }
    }

    /// How long the beat keeps a leader the leader.
    pub(crate) fn leader_ttl(self) -> Duration {
        match self {
            Self::Listening | Self::ByNotice => LEADER_TTL,
            Self::Parked(silence) => silence.max(LEADER_TTL),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::timers::BEAT_INTERVAL;

    fn numbers(attention: &Attention) -> Vec<u32> {
        attention.lists().map(|queue| queue.0).collect()
    }

    #[test]
    fn named_queues_take_the_place_of_active_ones() {
        let mut attention = Attention::default();
        for number in 0..70 {
            attention.activate(QueueNumber(number));
        }
        assert_eq!(attention.lists().count(), MAX_LISTS);
        assert!(attention.add_named(QueueNumber(100)));
        assert_eq!(attention.lists().count(), MAX_LISTS);
        assert!(!numbers(&attention).contains(&63), "the last one made room");
        for number in 101..164 {
            assert!(attention.add_named(QueueNumber(number)));
        }
        assert!(
            !attention.add_named(QueueNumber(200)),
            "all places are taken"
        );
        assert_eq!(attention.lists().count(), MAX_LISTS);
    }

    #[test]
    fn a_refused_list_is_left_out_until_it_is_accepted() {
        let mut attention = Attention::default();
        attention.add_named(QueueNumber(1));
        attention.add_named(QueueNumber(2));
        assert!(attention.take_changed() && !attention.take_changed());
        attention.refuse(QueueNumber(1));
        assert_eq!(numbers(&attention), [2]);
        assert!(attention.refused().eq([QueueNumber(1)]));
        attention.accept(QueueNumber(1));
        assert_eq!(numbers(&attention), [1, 2]);
        assert!(attention.take_changed());
    }

    #[test]
    fn quiet_queues_make_room_unless_their_place_is_fixed() {
        let mut attention = Attention::default();
        attention.add_named(QueueNumber(1));
        attention.activate(QueueNumber(2));
        attention.deactivate(QueueNumber(1));
        attention.deactivate(QueueNumber(2));
        assert_eq!(numbers(&attention), [1]);
    }

    #[test]
    fn a_parked_queue_beats_before_its_silence_ends() {
        let silence = Duration::from_secs(10);
        let parked = Attended::Parked(silence);
        assert!(parked.beat_interval(BEAT_INTERVAL, 1.0) < silence);
        assert!(parked.beat_interval(BEAT_INTERVAL, 0.0) >= silence / 2);
        assert_eq!(parked.leader_ttl(), silence);
        let by_notice = Attended::ByNotice.beat_interval(BEAT_INTERVAL, 1.0);
        assert_eq!(by_notice, BEAT_INTERVAL);
    }
}
