//! How a queue's handlers are split between its partitions; `simulation` runs handlers on simulated
//! time.

mod simulation;

use std::time::Duration;

use super::*;
use crate::node::consumers::slots::Ended;
use crate::node::state::shares::{Order, ShareSettings};

const QUEUE: QueueId = QueueId(1);
const OTHER: QueueId = QueueId(9);

fn shares(concurrency: usize) -> Shares {
    let mut shares = Shares::new(concurrency, Order::Weighted);
    let settings = ShareSettings {
        weight: 1,
        reserve: 0,
        max: usize::MAX,
    };
    for queue in [QUEUE, OTHER] {
        shares.add(queue, settings).expect("valid settings");
    }
    shares
}

/// What a partition asks for: number 9 is the only one of the other queue.
fn want(partition: u32, handlers: usize, waited_ms: u64) -> Want<Part> {
    Want {
        id: Part {
            id: PartitionId(partition),
            queue: if partition == 9 { OTHER } else { QUEUE },
            served: 0,
        },
        handlers,
        soon: 0,
        waited: Duration::from_millis(waited_ms),
    }
}

fn unused(handlers: usize) -> Ended {
    Ended {
        unused: handlers,
        ..Ended::default()
    }
}

#[test]
fn a_queue_of_three_partitions_weighs_as_much_as_one() {
    let mut shares = shares(8);
    let wants: Vec<_> = [1, 2, 3, 9].map(|partition| want(partition, 8, 0)).into();
    let grants = shares.allot_parts(&wants, Instant::now());
    let of = |partition| {
        let mut grants = grants.iter();
        let found = grants.find(|(id, _)| *id == PartitionId(partition));
        found.map_or(0, |(_, handlers)| *handlers)
    };
    assert_eq!(of(1) + of(2) + of(3), 4);
    assert_eq!(of(9), 4);
    assert_eq!(shares.free(), 0);
    for queue in [QUEUE, OTHER] {
        shares.release(queue, unused(4), Instant::now());
    }
    assert_eq!(shares.free(), 8);
}

#[test]
fn partitions_take_turns_the_longest_waiting_first() {
    let mut shares = shares(10);
    let mut wants = [want(1, 10, 1), want(2, 10, 7), want(3, 10, 3)];
    let mut order = Vec::new();
    for _ in 0..6 {
        let grants = shares.allot_parts(&wants, Instant::now());
        shares.release(QUEUE, unused(10), Instant::now());
        for want in &mut wants {
            if want.id.id == grants[0].0 {
                want.id.served = shares.allots();
            }
        }
        order.extend(grants);
    }
    let turns = [2, 3, 1].map(|number| (PartitionId(number), 10));
    assert_eq!(order, [turns, turns].concat());
}

#[test]
fn many_handlers_are_split_evenly() {
    let wants = [want(1, 150, 3), want(2, 150, 2), want(3, 20, 1)];
    let grants = shares(300).allot_parts(&wants, Instant::now());
    let expected = [(1, 150), (2, 130), (3, 20)].map(|(id, n)| (PartitionId(id), n));
    assert_eq!(grants, expected);
}
