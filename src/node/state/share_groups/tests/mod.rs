//! How a queue's handlers are split between its partitions; `simulation` runs handlers on simulated
//! time.

mod simulation;

use std::time::Duration;

use super::*;

const GROUP: QueueId = QueueId(1);
const OTHER: QueueId = QueueId(9);

fn groups(concurrency: usize) -> ShareGroups {
    let mut groups = ShareGroups::new(concurrency, Order::Weighted);
    let settings = ShareSettings {
        weight: 1,
        reserve: 0,
        max: usize::MAX,
    };
    for group in [GROUP, OTHER] {
        groups.add_group(group, settings).expect("valid settings");
    }
    for partition in 1..=3 {
        add(&mut groups, PartitionId(partition), GROUP);
    }
    add(&mut groups, PartitionId(OTHER.0), OTHER);
    groups
}

fn add(groups: &mut ShareGroups, partition: PartitionId, group: QueueId) {
    groups.add(partition, group, PartitionSlots::new(&Arc::default()));
}

/// The handlers that the partitions get, and their permits.
fn allot(
    groups: &mut ShareGroups,
    wants: &[Want<PartitionId>],
) -> (Vec<(PartitionId, usize)>, Vec<HandlerPermits>) {
    let grants = groups.allot(wants, Instant::now());
    let counts = grants
        .iter()
        .map(|(number, permits)| (*number, permits.count()));
    let counts = counts.collect();
    assert!(groups.is_consistent());
    (
        counts,
        grants.into_iter().map(|(_, permits)| permits).collect(),
    )
}

fn want(queue: u32, handlers: usize, waited_ms: u64) -> Want<PartitionId> {
    Want {
        id: PartitionId(queue),
        handlers,
        soon: 0,
        waited: Duration::from_millis(waited_ms),
    }
}

#[test]
fn a_queue_of_three_partitions_weighs_as_much_as_one() {
    let mut groups = groups(8);
    let wants: Vec<_> = [1, 2, 3, 9].map(|queue| want(queue, 8, 0)).into();
    let (grants, permits) = allot(&mut groups, &wants);
    let of = |queue| {
        let found = grants
            .iter()
            .find(|(number, _)| *number == PartitionId(queue));
        found.map_or(0, |(_, handlers)| *handlers)
    };
    assert_eq!(of(1) + of(2) + of(3), 4);
    assert_eq!(of(9), 4);
    assert_eq!(groups.free(), 0);
    drop(permits);
    for (number, handlers) in grants {
        assert_eq!(groups.running(number), handlers, "until they are collected");
        assert_eq!(groups.collect(number, Instant::now()), 0);
    }
    assert_eq!(groups.free(), 8);
    assert!(groups.is_consistent());
}

#[test]
fn partitions_take_turns_the_longest_waiting_first() {
    let mut groups = groups(10);
    let wants = [want(1, 10, 1), want(2, 10, 7), want(3, 10, 3)];
    let mut order = Vec::new();
    for _ in 0..6 {
        let (grants, permits) = allot(&mut groups, &wants);
        drop(permits);
        groups.collect(grants[0].0, Instant::now());
        order.extend(grants);
    }
    let turns = [2, 3, 1].map(|number| (PartitionId(number), 10));
    assert_eq!(order, [turns, turns].concat());
}

#[test]
fn many_handlers_are_split_evenly() {
    let mut groups = groups(300);
    let (grants, _permits) = allot(
        &mut groups,
        &[want(1, 150, 3), want(2, 150, 2), want(3, 20, 1)],
    );
    let expected = [(1, 150), (2, 130), (3, 20)].map(|(queue, n)| (PartitionId(queue), n));
    assert_eq!(grants, expected);
}

#[test]
fn a_paused_partition_gets_nothing_its_queue_goes_on() {
    let mut groups = groups(10);
    groups.set_paused(PartitionId(1), true);
    assert_eq!(groups.free_for(PartitionId(1)), 0);
    assert_eq!(groups.free_for(PartitionId(2)), 10);
    let (grants, _permits) = allot(&mut groups, &[want(1, 10, 9), want(2, 10, 1)]);
    assert_eq!(grants, [(PartitionId(2), 10)]);
}

#[test]
fn a_partition_that_leaves_frees_its_handlers() {
    let mut groups = groups(10);
    let _permits = groups.allot(&[want(2, 6, 0)], Instant::now());
    groups.remove(PartitionId(2), Instant::now());
    assert_eq!((groups.free(), groups.running(PartitionId(2))), (10, 0));
    assert_eq!(groups.free_for(PartitionId(3)), 10);
}
