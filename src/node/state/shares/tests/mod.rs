//! Tests single rules by example. `model` compares random operations with a naive model, and the
//! simulation of the parts runs handlers on simulated time.

mod model;

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use super::{Ended, Order, ShareError, ShareSettings, Shares, Want};
use crate::node::QueueId;

const A: QueueId = QueueId(1);
const B: QueueId = QueueId(2);
const C: QueueId = QueueId(3);
const STRICT: Order = Order::Strict {
    max_wait: Duration::from_secs(10),
};

fn weight(weight: u32) -> ShareSettings {
    ShareSettings {
        weight,
        reserve: 0,
        max: usize::MAX,
    }
}

fn reserve(reserve: usize) -> ShareSettings {
    ShareSettings {
        reserve,
        ..weight(1)
    }
}

fn want(queue: QueueId, handlers: usize) -> Want<QueueId> {
    waiting(queue, handlers, 0)
}

fn waiting(queue: QueueId, handlers: usize, seconds: u64) -> Want<QueueId> {
    Want {
        id: queue,
        handlers,
        soon: 0,
        waited: Duration::from_secs(seconds),
    }
}

/// The instant this many milliseconds after the start.
fn at(ms: u64) -> Instant {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    *START + Duration::from_millis(ms)
}

/// Allots at the start, when no queue has used anything.
fn allot(shares: &mut Shares, wants: &[Want<QueueId>]) -> Vec<(QueueId, usize)> {
    shares.allot(wants, at(0))
}

fn release(shares: &mut Shares, queue: QueueId, handlers: usize) {
    let ended = Ended {
        unused: handlers,
        ..Ended::default()
    };
    shares.release(queue, ended, at(0));
}

/// Runs these handlers from the first to the second time, and ends them.
fn run(shares: &mut Shares, queue: QueueId, handlers: usize, ms: std::ops::Range<u64>) {
    shares.start(queue, handlers, at(ms.start));
    let ended = Ended {
        ran: handlers,
        ..Ended::default()
    };
    shares.release(queue, ended, at(ms.end));
}

fn shares<const N: usize>(
    concurrency: usize,
    order: Order,
    queues: [(QueueId, ShareSettings); N],
) -> Shares {
    let mut shares = Shares::new(concurrency, order);
    for (queue, settings) in queues {
        shares.add(queue, settings).expect("fits");
    }
    shares
}

#[test]
fn free_handlers_are_divided_by_the_weights() {
    let mut shares = shares(
        10,
        Order::Weighted,
        [(A, weight(6)), (B, weight(3)), (C, weight(1))],
    );
    let given = allot(&mut shares, &[want(C, 10), want(B, 10), want(A, 10)]);
    assert_eq!(given, [(A, 6), (B, 3), (C, 1)]);
    assert_eq!(shares.free(), 0);
}

#[test]
fn a_queue_gets_handlers_that_other_queues_do_not_want() {
    let mut shares = shares(10, Order::Weighted, [(A, weight(9)), (B, weight(1))]);
    assert_eq!(
        allot(&mut shares, &[want(A, 2), want(B, 100)]),
        [(A, 2), (B, 8)]
    );
}

#[test]
fn the_queue_with_the_least_usage_per_weight_comes_next() {
    let mut shares = shares(1, Order::Weighted, [(A, weight(1)), (B, weight(10))]);
    let mut order = Vec::new();
    for ms in (0..1_100).step_by(100) {
        let given = shares.allot(&[want(A, 9), want(B, 9)], at(ms));
        run(&mut shares, given[0].0, 1, ms..ms + 100);
        order.push(given[0].0);
    }
    assert_eq!(order.iter().filter(|queue| **queue == A).count(), 1);
    assert_eq!(order[..2], [A, B], "all are equal at the start");
}

#[test]
fn a_queue_with_a_claim_in_flight_keeps_its_part() {
    let mut shares = shares(4, Order::Weighted, [(A, weight(1)), (B, weight(1))]);
    let in_flight = Want {
        soon: 4,
        ..want(A, 0)
    };
    assert_eq!(allot(&mut shares, &[in_flight, want(B, 4)]), [(B, 2)]);
    assert_eq!((shares.free(), shares.free_for(A)), (2, 2));
    assert_eq!(allot(&mut shares, &[in_flight]), []);
}

#[test]
fn an_idle_queue_collects_no_credit() {
    let mut shares = shares(
        1,
        Order::Weighted,
        [(A, weight(1)), (B, weight(1)), (C, weight(1))],
    );
    for ms in (0..1_000).step_by(100) {
        let given = shares.allot(&[want(A, 9), want(B, 9)], at(ms));
        run(&mut shares, given[0].0, 1, ms..ms + 100);
    }
    let mut order = Vec::new();
    for ms in (1_000..1_600).step_by(100) {
        let given = shares.allot(&[want(A, 9), want(B, 9), want(C, 9)], at(ms));
        run(&mut shares, given[0].0, 1, ms..ms + 100);
        order.push(given[0].0);
    }
    assert_eq!(order.iter().filter(|queue| **queue == C).count(), 2);
}

#[test]
fn usage_while_handlers_were_free_is_not_charged_later() {
    let mut shares = shares(8, Order::Weighted, [(A, weight(1)), (B, weight(1))]);
    assert_eq!(allot(&mut shares, &[want(A, 4)]), [(A, 4)]);
    run(&mut shares, A, 4, 0..3_600_000);
    let given = shares.allot(&[want(A, 8), want(B, 8)], at(3_600_000));
    assert_eq!(given, [(A, 4), (B, 4)]);
}

#[test]
fn a_reserve_stays_free_for_its_queue() {
    let mut shares = shares(4, Order::Weighted, [(A, reserve(2)), (B, weight(100))]);
    assert_eq!(shares.free_for(B), 2);
    assert_eq!(allot(&mut shares, &[want(B, 9)]), [(B, 2)]);
    assert_eq!((shares.free(), shares.free_for(B)), (2, 0));
    assert_eq!(allot(&mut shares, &[want(B, 9), want(A, 9)]), [(A, 2)]);
}

#[test]
fn no_queue_exceeds_its_max() {
    let settings = ShareSettings {
        max: 3,
        ..weight(9)
    };
    let mut shares = shares(10, Order::Weighted, [(A, settings), (B, weight(1))]);
    assert_eq!(allot(&mut shares, &[want(A, 9)]), [(A, 3)]);
    assert_eq!(allot(&mut shares, &[want(A, 9), want(B, 2)]), [(B, 2)]);
    assert_eq!(shares.free_for(A), 0);
}

#[test]
fn a_paused_queue_takes_nothing_and_frees_its_reserve() {
    let mut shares = shares(4, Order::Weighted, [(A, reserve(3)), (B, weight(1))]);
    shares.set_paused(A, true);
    assert_eq!(shares.free_for(A), 0);
    assert_eq!(allot(&mut shares, &[want(A, 4), want(B, 4)]), [(B, 4)]);
    // Its reserve is in use by others when it resumes, so it gets the next handlers that end.
    shares.set_paused(A, false);
    release(&mut shares, B, 1);
    assert_eq!(allot(&mut shares, &[want(B, 4), want(A, 4)]), [(A, 1)]);
    release(&mut shares, B, 3);
    assert_eq!(
        allot(&mut shares, &[want(B, 4), want(A, 4)]),
        [(B, 1), (A, 2)]
    );
}

#[test]
fn handlers_of_a_removed_queue_count_until_released() {
    let mut shares = shares(4, Order::Weighted, [(A, reserve(3)), (B, weight(1))]);
    allot(&mut shares, &[want(A, 2)]);
    shares.remove(A);
    assert_eq!((shares.running(A), shares.free_for(A)), (2, 0));
    assert_eq!(allot(&mut shares, &[want(A, 4), want(B, 4)]), [(B, 2)]);
    assert_eq!(shares.add(A, weight(1)), Err(ShareError::AddedTwice));
    release(&mut shares, A, 2);
    assert_eq!((shares.running(A), shares.free()), (0, 2));
    assert_eq!(shares.add(C, reserve(4)), Ok(()));
}

#[test]
fn strict_order_serves_the_first_queue_first() {
    let mut shares = shares(4, STRICT, [(A, weight(1)), (B, weight(100))]);
    assert_eq!(
        allot(&mut shares, &[want(B, 4), want(A, 3)]),
        [(A, 3), (B, 1)]
    );
}

#[test]
fn strict_order_gives_each_overdue_queue_one_handler() {
    let mut shares = shares(5, STRICT, [(A, weight(1)), (B, weight(1)), (C, weight(1))]);
    let given = allot(
        &mut shares,
        &[want(A, 9), waiting(B, 9, 10), waiting(C, 9, 11)],
    );
    assert_eq!(given, [(C, 1), (B, 1), (A, 3)]);
}

#[test]
fn overdue_queue_with_a_claim_in_flight_keeps_one_handler() {
    let mut shares = shares(4, STRICT, [(A, weight(1)), (B, weight(1))]);
    let in_flight = Want {
        soon: 9,
        ..waiting(B, 0, 60)
    };
    assert_eq!(allot(&mut shares, &[want(A, 9), in_flight]), [(A, 3)]);
}

#[test]
fn a_long_overdue_backlog_does_not_reverse_strict_order() {
    let mut shares = shares(1, STRICT, [(A, weight(1)), (B, weight(1))]);
    let mut order = Vec::new();
    for _ in 0..6 {
        let given = allot(&mut shares, &[want(A, 9), waiting(B, 9, 60)]);
        order.push(given[0].0);
        release(&mut shares, given[0].0, 1);
    }
    assert_eq!(order, [B, A, B, A, B, A]);
}

#[test]
fn strict_order_with_no_max_wait_takes_turns_at_once() {
    let order = Order::Strict {
        max_wait: Duration::ZERO,
    };
    let mut shares = shares(5, order, [(A, weight(1)), (B, weight(1))]);
    let given = allot(&mut shares, &[waiting(A, 9, 1), waiting(B, 9, 2)]);
    assert_eq!(given, [(B, 1), (A, 4)]);
}

#[test]
fn an_overdue_queue_leaves_reserves_of_others_free() {
    let mut shares = shares(2, STRICT, [(A, reserve(1)), (B, weight(1))]);
    assert_eq!(
        allot(&mut shares, &[waiting(B, 9, 60), want(A, 1)]),
        [(B, 1), (A, 1)]
    );
    release(&mut shares, A, 1);
    assert_eq!(allot(&mut shares, &[waiting(B, 9, 60)]), []);
}

#[test]
fn adding_a_refused_queue_changes_nothing() {
    let mut shares = shares(4, Order::Weighted, [(A, reserve(2))]);
    let narrow = ShareSettings {
        max: 1,
        ..reserve(2)
    };
    let refused = [
        (B, weight(0), ShareError::ZeroWeight),
        (
            B,
            ShareSettings {
                max: 0,
                ..weight(1)
            },
            ShareError::ZeroMax,
        ),
        (
            B,
            narrow,
            ShareError::ReserveAboveMax { reserve: 2, max: 1 },
        ),
        (
            B,
            reserve(3),
            ShareError::ReservesAboveConcurrency {
                reserves: 5,
                concurrency: 4,
            },
        ),
        (A, weight(1), ShareError::AddedTwice),
    ];
    for (queue, settings, error) in refused {
        assert_eq!(shares.add(queue, settings), Err(error));
    }
    assert_eq!(shares.add(B, reserve(2)), Ok(()));
    assert_eq!((shares.free_for(A), shares.free_for(B)), (2, 2));
}

#[test]
fn unknown_queues_get_no_handlers_and_change_nothing() {
    let mut shares = shares(2, Order::Weighted, [(A, weight(1))]);
    assert_eq!(allot(&mut shares, &[want(C, 1)]), []);
    release(&mut shares, C, 1);
    shares.remove(C);
    shares.set_paused(C, true);
    assert_eq!((shares.running(C), shares.free_for(C)), (0, 0));
    assert_eq!(shares.free_for(A), 2);
}
