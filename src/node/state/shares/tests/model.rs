//! Random operations, compared with a model that walks over all queues for every handler. For
//! weighted order, the model knows which queues may get a handler, but not which one comes next by
//! its virtual time.

use std::time::Duration;

use super::super::{Ended, Order, ShareSettings, Shares, Want};
use super::at;
use crate::node::QueueId;

struct Queue {
    number: u32,
    settings: ShareSettings,
    running: usize,
    paused: bool,
    removed: bool,
    /// Whether the queue had a turn as an overdue queue and no handler has gone by rank since.
    had_turn: bool,
}

impl Queue {
    fn reserved(&self) -> usize {
        if self.paused || self.removed {
            0
        } else {
            self.settings.reserve.saturating_sub(self.running)
        }
    }
}

/// The queues, in the order of adding.
struct Model {
    concurrency: usize,
    order: Order,
    queues: Vec<Queue>,
}

impl Model {
    fn free(&self) -> usize {
        self.concurrency - self.queues.iter().map(|queue| queue.running).sum::<usize>()
    }

    fn may_take(&self, index: usize) -> bool {
        let queue = &self.queues[index];
        let of_others: usize = (self.queues.iter().enumerate())
            .filter(|&(other, _)| other != index)
            .map(|(_, other)| other.reserved())
            .sum();
        !queue.paused
            && !queue.removed
            && queue.running < queue.settings.max
            && self.free() > 0
            && (queue.reserved() > 0 || self.free() > of_others)
    }

    fn give(
        &mut self,
        index: usize,
        wants: &mut [Want<QueueId>],
        given: &mut Vec<(QueueId, usize)>,
    ) {
        let number = QueueId(self.queues[index].number);
        self.queues[index].running += 1;
        let want = wants.iter_mut().find(|want| want.id == number);
        want.expect("it wants").handlers -= 1;
        match given.iter_mut().find(|(queue, _)| *queue == number) {
            Some((_, handlers)) => *handlers += 1,
            None => given.push((number, 1)),
        }
    }

    fn allot(&mut self, wants: &[Want<QueueId>]) -> Vec<(QueueId, usize)> {
        let mut wants = wants.to_vec();
        let mut given = Vec::new();
        if let Order::Strict { max_wait } = self.order {
            // The sort is stable, so among equally long waits the queue of the first rank comes
            // first.
            let mut overdue: Vec<_> = (0..self.queues.len())
                .filter_map(|index| Some((self.waited(index, &wants)?, index)))
                .filter(|&(waited, index)| waited >= max_wait && !self.queues[index].had_turn)
                .collect();
            overdue.sort_by_key(|&(waited, _)| std::cmp::Reverse(waited));
            for (_, index) in overdue {
                // A queue that is the only one to want handlers needs no turn.
                if wants.len() > 1 && self.may_take(index) {
                    self.give(index, &mut wants, &mut given);
                    self.queues[index].had_turn = true;
                }
            }
        }
        let wants_one = |model: &Self, wants: &[Want<QueueId>], index| {
            model.waited(index, wants).is_some() && model.may_take(index)
        };
        let all = 0..self.queues.len();
        while let Some(next) = all.clone().find(|&index| wants_one(self, &wants, index)) {
            self.give(next, &mut wants, &mut given);
            self.queues
                .iter_mut()
                .for_each(|queue| queue.had_turn = false);
        }
        given
    }

    /// Copies what the queues got by weight into the model. Checks that each got as many as it
    /// could use, and that no other queue got any.
    fn follow(&mut self, wants: &[Want<QueueId>], given: &[(QueueId, usize)], at: &str) {
        let mut wants = wants.to_vec();
        for (number, handlers) in given {
            for _ in 0..*handlers {
                let index = (self.queues.iter()).position(|queue| queue.number == number.0);
                let index = index.expect("a queue");
                assert!(self.may_take(index), "{at}: {number:?}");
                self.give(index, &mut wants, &mut Vec::new());
            }
        }
        let mut all = 0..self.queues.len();
        let unmet = all.find(|&index| self.waited(index, &wants).is_some() && self.may_take(index));
        assert!(unmet.is_none(), "{at}: {unmet:?} could have more");
    }

    /// For how long the queue has waited, if it wants a handler.
    fn waited(&self, index: usize, wants: &[Want<QueueId>]) -> Option<Duration> {
        let number = QueueId(self.queues[index].number);
        let want = wants.iter().find(|want| want.id == number)?;
        (want.handlers > 0).then_some(want.waited)
    }
}

#[test]
fn random_operations_follow_the_model() {
    for seed in 0..400 {
        run(seed);
    }
}

fn run(seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let concurrency = random.usize(0..20);
    let order = match random.bool() {
        true => Order::Weighted,
        false => Order::Strict {
            max_wait: Duration::from_secs(3),
        },
    };
    let mut shares = Shares::new(concurrency, order);
    let mut model = Model {
        concurrency,
        order,
        queues: Vec::new(),
    };
    let (mut next_number, mut time) = (0, 0);
    for step in 0..300 {
        let any = match model.queues.len() {
            0 => None,
            queues => Some(random.usize(0..queues)),
        };
        match (random.u32(0..12), any) {
            (0, _) => {
                let settings = ShareSettings {
                    weight: random.u32(0..8),
                    reserve: random.usize(0..4),
                    max: random.usize(0..12),
                };
                let reserves: usize = (model.queues.iter())
                    .filter(|queue| !queue.removed)
                    .map(|queue| queue.settings.reserve)
                    .sum();
                let fits = settings.weight > 0
                    && settings.max >= settings.reserve.max(1)
                    && reserves + settings.reserve <= concurrency;
                let added = shares.add(QueueId(next_number), settings);
                assert_eq!(added.is_ok(), fits, "seed {seed}, step {step}: {added:?}");
                if fits {
                    model.queues.push(Queue {
                        number: next_number,
                        settings,
                        running: 0,
                        paused: false,
                        removed: false,
                        had_turn: false,
                    });
                }
                next_number += 1;
            }
            (1, Some(index)) if random.u32(0..4) == 0 => {
                model.queues[index].removed = true;
                shares.remove(QueueId(model.queues[index].number));
            }
            (2, Some(index)) => {
                let paused = random.bool();
                model.queues[index].paused = paused;
                shares.set_paused(QueueId(model.queues[index].number), paused);
            }
            (3..7, Some(index)) => {
                let queue = &mut model.queues[index];
                let ended = random.usize(0..=queue.running);
                queue.running -= ended;
                let ended = Ended {
                    ran: ended,
                    ..Ended::default()
                };
                shares.start(QueueId(queue.number), ended.ran, at(time));
                time += random.u64(0..1_000);
                shares.release(QueueId(queue.number), ended, at(time));
            }
            _ => {
                let mut wants = Vec::new();
                for queue in &model.queues {
                    if random.bool() {
                        wants.push(Want {
                            id: QueueId(queue.number),
                            handlers: random.usize(0..6),
                            soon: 0,
                            waited: Duration::from_secs(random.u64(0..5)),
                        });
                    }
                }
                random.shuffle(&mut wants);
                let given = shares.allot(&wants, at(time));
                let place = format!("seed {seed}, step {step}");
                match order {
                    Order::Weighted => model.follow(&wants, &given, &place),
                    Order::Strict { .. } => assert_eq!(given, model.allot(&wants), "{place}"),
                }
            }
        }
        compare(&shares, &model, seed, step);
    }
}

fn compare(shares: &Shares, model: &Model, seed: u64, step: u32) {
    assert_eq!(shares.free(), model.free(), "seed {seed}, step {step}");
    for (index, queue) in model.queues.iter().enumerate() {
        let number = QueueId(queue.number);
        assert_eq!(
            shares.running(number),
            queue.running,
            "seed {seed}, step {step}"
        );
        let may_take = model.may_take(index);
        assert_eq!(
            shares.free_for(number) > 0,
            may_take,
            "seed {seed}, step {step}"
        );
    }
}
