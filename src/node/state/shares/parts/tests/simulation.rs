//! Simulates handlers: each handler that ends is given out again, and claims take time. Sums up for
//! how long the handlers of each queue ran.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use super::*;

/// A queue of the simulation. Times are in microseconds.
#[derive(Clone, Copy)]
struct Load {
    weight: u32,
    handler_time: u64,
    /// The time from a claim to its reply.
    claim_time: u64,
    /// Whether a claim grants only a random part of what it asks for, as with several nodes. Then
    /// the next claim follows after 1 ms. Otherwise a claim grants everything.
    is_limited: bool,
    partitions: u32,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Reply(u32, usize),
    Again(u32),
    End(u32),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Idle,
    InFlight,
    Limited,
}

/// The result for one queue, or for all together.
#[derive(Clone, Copy, Default)]
struct Outcome {
    /// The sum of the times of the handlers.
    busy: u64,
    started: u64,
    /// The longest time from the start of a handler to the next start.
    longest_wait: u64,
    last_start: u64,
}

struct Simulation<'a> {
    loads: &'a [Load],
    shares: Shares,
    start: Instant,
    now: u64,
    /// The states of the partitions, by partition.
    states: Vec<State>,
    /// The queue of each partition, by partition.
    queues: Vec<usize>,
    /// When each partition last got a handler.
    served: Vec<u64>,
    running: Vec<u64>,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    outcomes: Vec<Outcome>,
    random: fastrand::Rng,
}

impl<'a> Simulation<'a> {
    fn new(concurrency: usize, loads: &'a [Load]) -> Self {
        let mut shares = Shares::new(concurrency, Order::Weighted);
        let mut queues = Vec::new();
        for (index, load) in loads.iter().enumerate() {
            let settings = ShareSettings {
                weight: load.weight,
                reserve: 0,
                max: usize::MAX,
            };
            let queue = QueueId(index as u32);
            shares.add(queue, settings).expect("valid settings");
            queues.extend((0..load.partitions).map(|_| index));
        }
        Self {
            loads,
            shares,
            start: Instant::now(),
            now: 0,
            states: vec![State::Idle; queues.len()],
            served: vec![0; queues.len()],
            queues,
            running: vec![0; loads.len()],
            events: BinaryHeap::new(),
            outcomes: vec![Outcome::default(); loads.len()],
            random: fastrand::Rng::with_seed(7),
        }
    }

    fn at(&self) -> Instant {
        self.start + Duration::from_micros(self.now)
    }

    fn load(&self, partition: u32) -> Load {
        self.loads[self.queues[partition as usize]]
    }

    fn queue(&self, partition: u32) -> QueueId {
        QueueId(self.queues[partition as usize] as u32)
    }

    fn add(&mut self, after: u64, event: Event) {
        // Among events at the same time, the one that was added first comes first.
        let number = self.random.u64(..) >> 32;
        self.events.push(Reverse((self.now + after, number, event)));
    }

    /// Runs until this time. Every queue always has messages.
    fn run_until(&mut self, end: u64) {
        loop {
            self.dispatch();
            let at = self.events.peek().map_or(end, |Reverse((at, ..))| *at);
            for (outcome, running) in self.outcomes.iter_mut().zip(&self.running) {
                outcome.busy += running * (at.min(end) - self.now);
            }
            self.now = at.min(end);
            if at >= end {
                return;
            }
            if let Some(Reverse((.., event))) = self.events.pop() {
                self.handle(&event);
            }
        }
    }

    fn dispatch(&mut self) {
        let free = self.shares.free().min(256);
        if free == 0 {
            return;
        }
        let wants = (0..).zip(&self.states).map(|(number, state)| Want {
            id: Part {
                id: PartitionId(number),
                queue: self.queue(number),
                served: self.served[number as usize],
            },
            handlers: if *state == State::Idle { free } else { 0 },
            soon: if *state == State::Idle { 0 } else { free },
            waited: Duration::ZERO,
        });
        let wants: Vec<_> = wants.collect();
        for (PartitionId(partition), handlers) in self.shares.allot_parts(&wants, self.at()) {
            self.served[partition as usize] = self.shares.allots();
            self.states[partition as usize] = State::InFlight;
            let claim_time = self.load(partition).claim_time;
            self.add(claim_time, Event::Reply(partition, handlers));
        }
    }

    fn handle(&mut self, event: &Event) {
        let at = self.at();
        match *event {
            Event::Reply(partition, asked) => {
                let id = self.queue(partition);
                let load = self.load(partition);
                let granted = match load.is_limited {
                    true => self.random.usize(1..=asked),
                    false => asked,
                };
                self.shares.start(id, granted, at);
                let unused = asked - granted;
                let ended = Ended {
                    unused,
                    ..Ended::default()
                };
                self.shares.release(id, ended, at);
                self.states[partition as usize] = State::Idle;
                if unused > 0 {
                    self.states[partition as usize] = State::Limited;
                    self.add(1_000, Event::Again(partition));
                }
                for _ in 0..granted {
                    self.add(load.handler_time, Event::End(partition));
                }
                let queue = self.queues[partition as usize];
                self.running[queue] += granted as u64;
                let outcome = &mut self.outcomes[queue];
                outcome.started += granted as u64;
                outcome.longest_wait = outcome.longest_wait.max(self.now - outcome.last_start);
                outcome.last_start = self.now;
            }
            Event::Again(partition) => self.states[partition as usize] = State::Idle,
            Event::End(partition) => {
                self.running[self.queues[partition as usize]] -= 1;
                let ended = Ended {
                    ran: 1,
                    ..Ended::default()
                };
                self.shares.release(self.queue(partition), ended, at);
            }
        }
    }
}

fn load(weight: u32, handler_ms: u64) -> Load {
    Load {
        weight,
        handler_time: handler_ms * 1_000,
        claim_time: 0,
        is_limited: false,
        partitions: 1,
    }
}

/// Asserts that the queues' shares of handler time follow their weights, within 3 % of all handler
/// time, over a window of several of the longest handlers. A node with few handlers needs a longer
/// window, because a handler cannot be divided.
fn assert_fair(concurrency: usize, loads: &[Load], what: &str) {
    let longest = loads.iter().map(|load| load.handler_time).max();
    let weights: u32 = loads.iter().map(|load| load.weight).sum();
    let least = loads.iter().map(|load| load.weight).min();
    let (longest, least) = (longest.expect("a queue"), least.expect("a queue"));
    let turns = u64::from(weights.div_ceil(least)).div_ceil(concurrency as u64);
    let window = longest * turns * if concurrency < 10 { 10 } else { 4 };
    let mut simulation = Simulation::new(concurrency, loads);
    simulation.run_until(longest);
    simulation.outcomes = vec![Outcome::default(); loads.len()];
    simulation.run_until(longest + window);
    let busy = |outcome: &Outcome| outcome.busy as f64;
    let all: f64 = simulation.outcomes.iter().map(busy).sum();
    for (load, outcome) in loads.iter().zip(&simulation.outcomes) {
        let percent = 100.0 * busy(outcome) / all;
        let fair = 100.0 * f64::from(load.weight) / f64::from(weights);
        assert!(
            (percent - fair).abs() <= 3.0,
            "{what}, {concurrency} handlers: {percent} % for {fair} %"
        );
    }
}

#[test]
fn handler_time_follows_the_weights() {
    let fifty: Vec<_> = (0..50)
        .map(|index| load(1, [10, 100, 1_000][index % 3]))
        .collect();
    let sets = [
        vec![load(6, 10), load(3, 100), load(1, 1_000)],
        vec![load(1, 10), load(3, 100), load(6, 1_000)],
        vec![load(1, 10), load(1, 1_000)],
        vec![load(10, 10), load(1, 1_000)],
        vec![load(1, 10), load(10, 1_000)],
        vec![load(1, 10), load(1, 10), load(1, 100), load(1, 100)],
        fifty,
    ];
    for (concurrency, claim_time) in [(1, 0), (1, 12_000), (4, 0), (4, 12_000), (64, 12_000)] {
        for set in &sets {
            let with_claims = |load: &Load| Load {
                claim_time,
                ..*load
            };
            let set: Vec<_> = set.iter().map(with_claims).collect();
            let what = format!("{} queues, claims of {claim_time} us", set.len());
            assert_fair(concurrency, &set, &what);
        }
    }
}

#[test]
fn partitions_and_other_nodes_do_not_change_the_shares() {
    for concurrency in [1, 10, 64] {
        for (is_limited, partitions) in [(true, 1), (false, 8), (true, 3)] {
            let set = [load(6, 10), load(3, 100), load(1, 1_000)].map(|load| Load {
                claim_time: 1_000,
                is_limited,
                // A queue with many partitions gets as much as one with a single partition.
                partitions: if load.weight == 3 { 1 } else { partitions },
                ..load
            });
            let what = format!("limited: {is_limited}, {partitions} partitions");
            assert_fair(concurrency, &set, &what);
        }
    }
}

/// If the whole wait for claims were free of charge, nearly all handlers would wait for claims.
#[test]
fn claims_longer_than_handlers_are_partly_charged() {
    let loads = [1, 1_000].map(|handler_ms| Load {
        claim_time: 12_000,
        ..load(1, handler_ms)
    });
    let mut simulation = Simulation::new(64, &loads);
    simulation.run_until(20_000_000);
    let running = |outcome: &Outcome| outcome.busy as f64 / 20_000_000.0;
    let [short, long] = [0, 1].map(|queue| running(&simulation.outcomes[queue]));
    println!("{short:.1} handlers of 1 ms run, {long:.1} of 1 s");
    assert!(short + long >= 10.0 && short >= 1.5, "{short} and {long}");
}

#[test]
fn a_thousand_queues_take_turns_for_ten_handlers() {
    let queues = vec![load(1, 10); 1_000];
    let mut simulation = Simulation::new(10, &queues);
    // One turn of all queues takes 1 s.
    simulation.run_until(2_000_000);
    for outcome in &simulation.outcomes {
        assert_eq!(outcome.started, 2);
        assert!(
            outcome.longest_wait <= 1_000_000,
            "{} us",
            outcome.longest_wait
        );
    }
}

/// A queue waits for at most one of the longest handlers, and then for its turn. Meanwhile the
/// others may run as much as their weights allow, and one more handler each.
#[test]
fn no_queue_waits_longer_than_weights_allow() {
    for seed in 0..25 {
        let mut random = fastrand::Rng::with_seed(seed);
        let concurrency = random.usize(1..20);
        let count = random.usize(2..10);
        let queue = |_| load(random.u32(1..=10), [10, 50, 200, 1_000][random.usize(0..4)]);
        let queues: Vec<_> = (0..count).map(queue).collect();
        let weights: u32 = queues.iter().map(|queue| queue.weight).sum();
        let longest = queues.iter().map(|queue| queue.handler_time).max();
        let mut simulation = Simulation::new(concurrency, &queues);
        simulation.run_until(20_000_000);
        for (queue, outcome) in queues.iter().zip(&simulation.outcomes) {
            let turns = f64::from(weights) / f64::from(queue.weight) + count as f64;
            let bound = longest.expect("a queue") as f64 * (1.0 + turns / concurrency as f64);
            let waited = outcome
                .longest_wait
                .max(simulation.now - outcome.last_start);
            assert!(
                waited as f64 <= bound,
                "seed {seed}: {waited} of {bound} us"
            );
        }
    }
}

#[test]
fn strict_order_and_reserves_hold_on_simulated_time() {
    // A message of a queue with a reserve starts at once. One of a low queue starts after
    // `max_wait` and one handler.
    let strict = Order::Strict {
        max_wait: Duration::from_secs(10),
    };
    for (order, reserve, bound) in [(Order::Weighted, 1, 0), (strict, 1, 0), (strict, 0, 10_700)] {
        let mut shares = Shares::new(4, order);
        let bulk = ShareSettings {
            weight: 1_000,
            reserve: 0,
            max: usize::MAX,
        };
        let low = ShareSettings { reserve, ..bulk };
        shares.add(QUEUE, bulk).expect("valid settings");
        shares.add(OTHER, low).expect("valid settings");
        let want = |id, handlers, waited_ms| Want {
            id,
            handlers,
            soon: 0,
            waited: Duration::from_millis(waited_ms),
        };
        let start = Instant::now();
        let (mut ends, mut due) = (Vec::new(), None);
        let mut longest = 0;
        for ms in 0..60_000_u64 {
            let now = start + Duration::from_millis(ms);
            if ms % 1_300 == 0 && due.is_none() {
                due = Some(ms);
            }
            ends.retain(|(end, queue)| {
                let ended = Ended {
                    ran: 1,
                    ..Ended::default()
                };
                if *end <= ms {
                    shares.release(*queue, ended, now);
                }
                *end > ms
            });
            let waited = due.map_or(0, |due| ms - due);
            let low = want(OTHER, usize::from(due.is_some()), waited);
            for (queue, handlers) in shares.allot(&[want(QUEUE, 4, 0), low], now) {
                shares.start(queue, handlers, now);
                let took = if queue == QUEUE { 700 } else { 50 };
                ends.extend((0..handlers).map(|_| (ms + took, queue)));
                if queue == OTHER {
                    longest = longest.max(waited);
                    due = None;
                }
            }
        }
        assert!(longest <= bound, "{order:?}: {longest} ms");
        assert!(longest * 2 >= bound, "the rank decides before that");
    }
}
