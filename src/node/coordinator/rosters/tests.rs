use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::error::ErrorKind;
use crate::node::coordinator::event::Reply;
use crate::node::coordinator::joining::tests::{coordinator, entry_of};
use crate::node::state::partition::Phase;
use crate::protocol::partition_map::PartitionMap;
use crate::protocol::replies::Header;

const QUEUE: QueueId = QueueId(1);

fn tags(count: u32) -> Vec<Tag> {
    let numbered = (1..count).map(Tag::Numbered);
    std::iter::once(Tag::Home).chain(numbered).collect()
}

fn watched(roster: u64, nodes: usize, help: &[Tag]) -> Watched {
    Watched {
        header: Header {
            sent: Instant::now(),
            now_us: 0,
            incarnation: String::new(),
            seq: 0,
            head_ms: None,
            lease_deadline_ms: None,
            paused: false,
            epoch: Some(7),
        },
        roster,
        nodes: (0..nodes).map(|node| format!("other{node}")).collect(),
        help: help.iter().map(Tag::to_string).collect(),
        drained: false,
    }
}

impl Coordinator {
    fn remapped(&mut self, epoch: u64, tags: Vec<Tag>) {
        let router = Arc::clone(&self.membership.queues[&QUEUE].entry.router);
        let map = PartitionMap::settled(epoch, tags);
        let partitions = router.take_settled(Some(map));
        self.mapped(QUEUE, Ok(partitions), Instant::now());
    }

    /// Feeds in a map with one partition.
    fn mapped_alone(&mut self) {
        let router = Arc::clone(&self.membership.queues[&QUEUE].entry.router);
        let partitions = router.take_settled(None);
        self.mapped(QUEUE, Ok(partitions), Instant::now());
    }

    /// Feeds in the home's answer to a watch, with this roster.
    fn answer_watch(&mut self, watched: Watched) {
        let now = Instant::now();
        self.watched(QUEUE, now, (Tag::Home, Ok(watched)), now);
    }

    fn members(&self) -> BTreeMap<Tag, PartitionId> {
        let attended = self.attended(&self.membership.queues[&QUEUE]);
        attended.map(|it| (it.remote.tag(), it.id)).collect()
    }

    fn tags(&self) -> BTreeSet<Tag> {
        self.members().into_keys().collect()
    }

    /// Feeds in the answers to the leaves of draining partitions.
    fn end_leaves(&mut self) {
        self.end_drained(Instant::now());
        let leaving = self.partitions.values();
        let leaving = leaving.filter(|partition| partition.phase == Phase::Leaving);
        for id in leaving.map(|partition| partition.id).collect::<Vec<_>>() {
            self.handle(Event::Reply(id, Reply::Left));
        }
    }
}

#[tokio::test]
async fn a_single_node_attends_every_partition() {
    let mut node = coordinator();
    node.remapped(7, tags(12));
    assert_eq!(node.tags(), BTreeSet::from([Tag::Home]), "no roster yet");
    node.answer_watch(watched(1, 0, &[]));
    assert_eq!(node.tags().len(), 12);
    assert_eq!(node.partitions.len(), 12);
    assert!(
        node.partitions
            .values()
            .all(|partition| partition.timers.rank == Some(0))
    );
    node.answer_watch(watched(1, 0, &[]));
    assert_eq!(node.partitions.len(), 12);
}

#[tokio::test]
async fn other_nodes_take_partitions_over_and_give_them_back() {
    let mut node = coordinator();
    node.remapped(7, tags(64));
    node.answer_watch(watched(1, 0, &[]));
    node.answer_watch(watched(2, 50, &[]));
    let few = node.tags();
    assert!((4..16).contains(&few.len()), "{few:?}");
    assert_eq!(node.partitions.len(), 64, "the leaves are not answered");
    node.end_leaves();
    assert_eq!(node.partitions.len(), few.len());
    assert_eq!(node.shares.free(), 1);
    node.answer_watch(watched(3, 0, &[]));
    assert_eq!(node.tags().len(), 64);
}

#[tokio::test]
async fn a_draining_partition_can_be_attended_again() {
    let mut node = coordinator();
    node.remapped(7, tags(64));
    node.answer_watch(watched(1, 0, &[]));
    let before = node.members();
    node.answer_watch(watched(2, 50, &[]));
    let draining = node.membership.draining;
    assert!(draining > 0);
    node.answer_watch(watched(3, 0, &[]));
    assert_eq!(node.members(), before, "under their numbers");
    assert_eq!(node.membership.draining, 0);
}

#[tokio::test]
async fn an_unreachable_home_leaves_the_roster_as_it_was() {
    let mut node = coordinator();
    node.remapped(7, tags(12));
    node.answer_watch(watched(1, 0, &[]));
    node.answer_watch(watched(0, 0, &[]));
    let failed = Err(Error::invalid("refused".to_owned()));
    node.watched(QUEUE, Instant::now(), (Tag::Home, failed), Instant::now());
    assert_eq!(node.tags().len(), 12);
}

#[tokio::test]
async fn roster_of_a_deputy_counts_once_all_nodes_could_enter() {
    let mut node = coordinator();
    node.remapped(7, tags(64));
    node.answer_watch(watched(1, 50, &[]));
    let own = node.tags();
    assert!(own.len() < 64);
    let (start, deputy) = (Instant::now(), tags(64)[1]);
    for (seconds, attended) in [(0, own.len()), (2, own.len()), (3, 64)] {
        let now = start + Duration::from_secs(seconds);
        node.watched(QUEUE, now, (deputy, Ok(watched(9, 0, &[]))), now);
        assert_eq!(node.tags().len(), attended, "after {seconds} s");
    }
    node.answer_watch(watched(1, 50, &[]));
    assert_eq!(node.tags(), own, "the home is back");
    // A new node knows no earlier roster.
    let mut new = coordinator();
    new.remapped(7, tags(64));
    new.watched(QUEUE, start, (deputy, Ok(watched(9, 0, &[]))), start);
    assert_eq!(new.tags().len(), 64);
}

#[tokio::test]
async fn free_handlers_help_a_busy_partition() {
    let mut node = coordinator();
    node.remapped(7, tags(12));
    node.answer_watch(watched(2, 7, &[]));
    let own = node.tags();
    let foreign = *tags(12).iter().find(|tag| !own.contains(tag)).expect("one");
    let mut helped = own.clone();
    helped.insert(foreign);
    node.answer_watch(watched(2, 7, &[foreign]));
    assert_eq!(node.tags(), helped, "one of eight nodes");
    // A node without a free handler does not help.
    let mut busy = coordinator();
    busy.remapped(7, tags(12));
    busy.answer_watch(watched(2, 7, &[]));
    let id = *busy.members().values().next().expect("a partition");
    let want = busy.partitions[&id].want(1, Instant::now());
    let taken = busy.allot(&[want], Instant::now());
    assert_eq!(taken.len(), 1);
    busy.answer_watch(watched(2, 7, &[foreign]));
    assert_eq!(busy.tags(), own);
}

#[tokio::test]
async fn a_new_map_replaces_the_attended_partitions() {
    let mut node = coordinator();
    node.remapped(7, tags(4));
    node.answer_watch(watched(1, 0, &[]));
    node.remapped(8, vec![Tag::Home, Tag::Numbered(2), Tag::Numbered(99)]);
    let expected = [Tag::Home, Tag::Numbered(2), Tag::Numbered(99)];
    assert_eq!(node.tags(), BTreeSet::from(expected));
    let router = Arc::clone(&node.membership.queues[&QUEUE].entry.router);
    let one = router.take_settled(None);
    node.mapped(QUEUE, Ok(one), Instant::now());
    assert_eq!(node.tags(), BTreeSet::from([Tag::Home]));
    let home = &node.partitions[&node.members()[&Tag::Home]];
    assert_eq!(home.timers.rank, None);
}

#[tokio::test]
async fn a_removed_queue_is_gone_with_its_last_partition() {
    let mut node = coordinator();
    node.remapped(7, tags(3));
    node.answer_watch(watched(1, 0, &[]));
    let (reply, mut removed) = tokio::sync::oneshot::channel();
    node.remove("unconnected", Some(reply), Instant::now());
    node.end_drained(Instant::now());
    let mut ids: Vec<_> = node.partitions.keys().copied().collect();
    let last = ids.pop().expect("three partitions");
    for id in ids {
        node.handle(Event::Reply(id, Reply::Left));
    }
    assert!(removed.try_recv().is_err(), "one partition is left");
    node.handle(Event::Reply(last, Reply::Left));
    assert!(matches!(removed.try_recv(), Ok(Ok(()))));
    assert!(node.membership.queues.is_empty());
}

#[tokio::test]
async fn node_that_stops_gives_its_ranks_to_others() {
    let mut node = coordinator();
    node.remapped(7, tags(12));
    node.answer_watch(watched(1, 2, &[]));
    let held = node.tags();
    let watches = |node: &Coordinator| {
        node.membership.queues[&QUEUE]
            .watch
            .as_ref()
            .map(|it| it.timer.is_some())
    };
    assert_eq!(watches(&node), Some(true));
    node.stop_claiming();
    assert_eq!(node.tags(), held, "its handlers have not ended");
    assert!(
        node.partitions
            .values()
            .all(|partition| partition.timers.rank == Some(LAST_RANK))
    );
    assert_eq!(watches(&node), Some(false));
    // The answer to a watch that was in flight.
    node.answer_watch(watched(2, 0, &[]));
    assert_eq!(watches(&node), Some(false));
    assert!(
        node.partitions
            .values()
            .all(|partition| partition.timers.rank == Some(LAST_RANK))
    );
}

#[tokio::test]
async fn home_is_attended_after_its_leave_if_the_map_is_gone() {
    let mut node = coordinator();
    node.remapped(7, tags(12));
    node.answer_watch(watched(1, 40, &[]));
    let home = node.members().get(&Tag::Home).copied();
    if let Some(home) = home {
        node.leave(home, Instant::now());
    }
    node.mapped_alone();
    node.end_leaves();
    assert_eq!(node.tags(), BTreeSet::from([Tag::Home]));
}

#[tokio::test]
async fn a_stopping_node_joins_no_partition_and_no_queue() {
    let mut node = coordinator();
    node.remapped(7, tags(4));
    node.answer_watch(watched(1, 0, &[]));
    node.stop_claiming();
    let last = |node: &Coordinator| {
        let mut partitions = node.partitions.values();
        partitions.all(|partition| partition.timers.rank == Some(LAST_RANK))
    };
    // The map changes, and a partition is left.
    node.remapped(8, vec![Tag::Home, Tag::Numbered(2), Tag::Numbered(99)]);
    let kept = BTreeSet::from([Tag::Home, Tag::Numbered(2)]);
    assert_eq!((node.tags(), last(&node)), (kept.clone(), true));
    node.end_leaves();
    assert_eq!((node.tags(), last(&node)), (kept, true));
    node.mapped_alone();
    node.end_leaves();
    assert_eq!(
        (node.tags(), last(&node)),
        (BTreeSet::from([Tag::Home]), true)
    );
    // It also joins no queue that the user adds.
    let servers = Arc::clone(&node.membership.servers);
    let refused = node.attend(entry_of("another", &servers), None, Instant::now());
    assert!(refused.is_err_and(|error| error.kind() == ErrorKind::Unavailable));
}
