//! Handlers on simulated time: every handler that ends frees its place for the next `allot`.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use super::super::{Order, ShareSettings, Shares, Want};
use super::{reserve, weight};
use crate::node::queue_number::QueueNumber;

/// Times are milliseconds.
struct Load {
    settings: ShareSettings,
    handler_time: u64,
    /// Time from one message to the next. 0: always more messages than handlers.
    interval: u64,
}

#[derive(Default)]
struct Outcome {
    /// The sum of the handlers' times since `warm_up`.
    busy: u64,
    longest_wait: u64,
}

const WARM_UP: u64 = 20_000;

fn simulate(concurrency: usize, order: Order, loads: &[Load], until: u64) -> Vec<Outcome> {
    let mut shares = Shares::new(concurrency, order);
    for (number, load) in (0..).zip(loads) {
        shares
            .add(QueueNumber(number), load.settings)
            .expect("fits");
    }
    let mut due: Vec<VecDeque<u64>> = loads.iter().map(|_| VecDeque::new()).collect();
    let mut outcomes: Vec<Outcome> = loads.iter().map(|_| Outcome::default()).collect();
    let mut ends = BinaryHeap::new();
    for now in 0..until {
        for (queue, load) in due.iter_mut().zip(loads) {
            if load.interval > 0 && now % load.interval == 0 {
                queue.push_back(now);
            }
        }
        while let Some(&Reverse((end, number))) = ends.peek()
            && end <= now
        {
            ends.pop();
            shares.release(QueueNumber(number), 1);
            give(&mut shares, loads, &mut due, &mut ends, now, &mut outcomes);
        }
        give(&mut shares, loads, &mut due, &mut ends, now, &mut outcomes);
        if now >= WARM_UP {
            for (number, outcome) in (0..).zip(&mut outcomes) {
                outcome.busy += shares.running(QueueNumber(number)) as u64;
            }
        }
    }
    outcomes
}

fn give(
    shares: &mut Shares,
    loads: &[Load],
    due: &mut [VecDeque<u64>],
    ends: &mut BinaryHeap<Reverse<(u64, u32)>>,
    now: u64,
    outcomes: &mut [Outcome],
) {
    let wants: Vec<_> = ((0..).zip(loads).zip(due.iter()))
        .map(|((number, load), due)| Want {
            queue: QueueNumber(number),
            handlers: if load.interval == 0 { 1_000 } else { due.len() },
            waited: Duration::from_millis(due.front().map_or(0, |due| now - due)),
        })
        .filter(|want| want.handlers > 0)
        .collect();
    for (queue, handlers) in shares.allot(&wants) {
        let index = queue.0 as usize;
        for _ in 0..handlers {
            if let Some(due) = due[index].pop_front() {
                let wait = &mut outcomes[index].longest_wait;
                *wait = (*wait).max(now - due);
            }
            ends.push(Reverse((now + loads[index].handler_time, queue.0)));
        }
    }
}

fn saturated(settings: ShareSettings, handler_time: u64) -> Load {
    Load {
        settings,
        handler_time,
        interval: 0,
    }
}

#[test]
fn shares_count_running_handlers_not_starts() {
    // Handlers are whole: 16 of them divide at best into 10:5:1.
    for concurrency in [10, 20, 64] {
        let loads = [
            saturated(weight(6), 10),
            saturated(weight(3), 100),
            saturated(weight(1), 1_000),
        ];
        let outcomes = simulate(concurrency, Order::Weighted, &loads, 60_000);
        let total: u64 = outcomes.iter().map(|outcome| outcome.busy).sum();
        for (outcome, expected) in outcomes.iter().zip([60.0, 30.0, 10.0]) {
            let percent = 100.0 * outcome.busy as f64 / total as f64;
            let difference = (percent - expected).abs();
            assert!(
                difference <= 3.0,
                "{concurrency}: {percent} % for {expected} %"
            );
        }
    }
}

#[test]
fn strict_order_starts_a_low_message_by_max_wait() {
    let order = Order::Strict {
        max_wait: Duration::from_secs(10),
    };
    for concurrency in [1, 4, 64] {
        let low = Load {
            settings: weight(1),
            handler_time: 300,
            interval: 2_000,
        };
        let loads = [saturated(weight(1), 700), low];
        let outcomes = simulate(concurrency, order, &loads, 100_000);
        let waited = outcomes[1].longest_wait;
        assert!(waited <= 10_000 + 700, "{concurrency}: {waited} ms");
        // Until it is overdue, rank decides.
        assert!(waited >= 10_000, "{concurrency}: {waited} ms");
    }
}

#[test]
fn a_reserve_is_free_within_one_handler_time() {
    for order in [
        Order::Weighted,
        Order::Strict {
            max_wait: Duration::from_secs(10),
        },
    ] {
        let rare = Load {
            settings: reserve(1),
            handler_time: 50,
            interval: 1_300,
        };
        let loads = [saturated(weight(1_000), 1_000), rare];
        let outcomes = simulate(8, order, &loads, 100_000);
        assert_eq!(outcomes[1].longest_wait, 0);
    }
}
