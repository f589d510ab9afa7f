//! Decides which wake-up lists the blocking pop of a node covers. Pure.

use std::collections::BTreeMap;

use crate::node::PartitionId;

/// The most wake-up lists that a blocking pop covers: its cost grows with each.
pub(crate) const MAX_LISTS: usize = 64;

/// The wake-up lists that the node wants its blocking pop to cover.
#[derive(Default)]
pub(crate) struct WakeLists {
    partitions: BTreeMap<PartitionId, Member>,
    /// Whether [`lists`](Self::lists) changed since the last [`take_changed`](Self::take_changed).
    changed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Member {
    /// Whether the queue keeps its place in the pop while nothing happens in it.
    is_fixed: bool,
    /// Whether a token came that no handler of this node could use, so that another node should get
    /// the next one.
    is_refused: bool,
}

impl WakeLists {
    /// Adds a queue that the user named. Returns whether it keeps a place in the pop; if not, it
    /// may be parked.
    pub(crate) fn add_named(&mut self, partition: PartitionId) -> bool {
        let fixed = |member: &&Member| member.is_fixed;
        if self.partitions.values().filter(fixed).count() >= MAX_LISTS {
            return false;
        }
        if self.partitions.len() >= MAX_LISTS {
            // The last queue without a fixed place makes room.
            let guest = self
                .partitions
                .iter()
                .rev()
                .find(|(_, member)| !member.is_fixed);
            if let Some(guest) = guest.map(|(partition, _)| *partition) {
                self.partitions.remove(&guest);
            }
        }
        self.insert(partition, true);
        true
    }

    /// Called when something happens in the queue: the pop covers its list if there is room.
    pub(crate) fn activate(&mut self, partition: PartitionId) {
        if self.partitions.len() < MAX_LISTS && !self.partitions.contains_key(&partition) {
            self.insert(partition, false);
        }
    }

    /// Called when nothing happens in the queue: its list makes room for another.
    pub(crate) fn deactivate(&mut self, partition: PartitionId) {
        if self
            .partitions
            .get(&partition)
            .is_some_and(|member| !member.is_fixed)
        {
            self.remove(partition);
        }
    }

    pub(crate) fn remove(&mut self, partition: PartitionId) {
        self.changed |= self.partitions.remove(&partition).is_some();
    }

    /// Called when no handler of this node could use a token of this queue: the next pop leaves the
    /// list to other nodes.
    pub(crate) fn refuse(&mut self, partition: PartitionId) {
        if let Some(member) = self.partitions.get_mut(&partition) {
            self.changed |= !std::mem::replace(&mut member.is_refused, true);
        }
    }

    /// The queues whose lists were refused.
    pub(crate) fn refused(&self) -> impl Iterator<Item = PartitionId> {
        let refused = self
            .partitions
            .iter()
            .filter(|(_, member)| member.is_refused);
        refused.map(|(partition, _)| *partition)
    }

    /// Called when this node has a handler for the queue again.
    pub(crate) fn accept(&mut self, partition: PartitionId) {
        if let Some(member) = self.partitions.get_mut(&partition) {
            self.changed |= std::mem::replace(&mut member.is_refused, false);
        }
    }

    /// The queues whose lists the next pop covers: at most [`MAX_LISTS`].
    pub(crate) fn lists(&self) -> impl Iterator<Item = PartitionId> {
        let covered = self
            .partitions
            .iter()
            .filter(|(_, member)| !member.is_refused);
        covered.map(|(partition, _)| *partition)
    }

    /// Whether the lists changed since the last call.
    pub(crate) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    fn insert(&mut self, partition: PartitionId, is_fixed: bool) {
        let member = Member {
            is_fixed,
            is_refused: false,
        };
        self.partitions.insert(partition, member);
        self.changed = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(lists: &WakeLists) -> Vec<u32> {
        lists.lists().map(|partition| partition.0).collect()
    }

    #[test]
    fn named_queues_take_the_places_of_merely_active_ones() {
        let mut lists = WakeLists::default();
        for number in 0..70 {
            lists.activate(PartitionId(number));
        }
        assert_eq!(lists.lists().count(), MAX_LISTS);
        assert!(lists.add_named(PartitionId(100)));
        assert_eq!(lists.lists().count(), MAX_LISTS);
        assert!(!numbers(&lists).contains(&63), "the last one made room");
        for number in 101..164 {
            assert!(lists.add_named(PartitionId(number)));
        }
        assert!(!lists.add_named(PartitionId(200)), "all places are taken");
        assert_eq!(lists.lists().count(), MAX_LISTS);
    }

    #[test]
    fn a_refused_list_is_left_out_until_it_is_accepted() {
        let mut lists = WakeLists::default();
        lists.add_named(PartitionId(1));
        lists.add_named(PartitionId(2));
        assert!(lists.take_changed() && !lists.take_changed());
        lists.refuse(PartitionId(1));
        assert_eq!(numbers(&lists), [2]);
        assert!(lists.refused().eq([PartitionId(1)]));
        lists.accept(PartitionId(1));
        assert_eq!(numbers(&lists), [1, 2]);
        assert!(lists.take_changed());
    }

    #[test]
    fn quiet_queues_make_room_unless_their_place_is_fixed() {
        let mut lists = WakeLists::default();
        lists.add_named(PartitionId(1));
        lists.activate(PartitionId(2));
        lists.deactivate(PartitionId(1));
        lists.deactivate(PartitionId(2));
        assert_eq!(numbers(&lists), [1]);
    }
}
