//! Operations that the random client makes one after the other, as it would hardly do by chance.

use crate::model::driver::{Driver, NODES};
use crate::model::operation::{Item, Operation};
use crate::model::world::{Due, World};
use crate::reply::Text;

impl Driver {
    /// The last of them comes first.
    pub(super) fn plan(&mut self, operations: impl IntoIterator<Item = Operation>) {
        self.planned
            .extend(operations.into_iter().map(|operation| (None, operation)));
    }

    /// A node that beats while nobody settles, twice over: what is leased crashes, and what is claimed then crashes again.
    pub(super) fn plan_crashes(&mut self) -> Operation {
        let beat = Operation::Beat {
            node: self.pick(&NODES).into(),
            leave: false,
        };
        for _ in 0..2 {
            let reap = Operation::Reap {
                limit: self.limit(),
            };
            let claim = Operation::Claim {
                count: 5,
                token: self.token(),
                lease: 2_000,
            };
            let promote = Operation::Promote { limit: 1_000 };
            self.plan([claim, promote, reap]);
            self.plan(vec![beat.clone(); 6]);
        }
        beat
    }

    /// A cancel, a push of the same ids on purpose, and the cancel again, as of a time about that of the first one.
    pub(super) fn plan_a_repeated_cancel(&mut self) -> Operation {
        let (dead, ids) = (self.chance(40), self.ids());
        let item = |id: &Text, driver: &mut Self| Item {
            id: id.clone(),
            ..driver.item()
        };
        let items = ids.iter().map(|id| item(id, self)).collect();
        let since = Some(self.now.floor() + self.random.u64(0..1_500) - 500);
        self.plan([Operation::Cancel {
            dead,
            since,
            ids: ids.clone(),
        }]);
        // It is made two seconds from now, after the cancel.
        let attempt = self.chance(50).then(|| self.attempt(2_500_000));
        let push = self.push_of(attempt, items);
        self.plan([push]);
        Operation::Cancel {
            dead,
            since: None,
            ids,
        }
    }

    /// A push of new ids, what becomes of some of them, a push of those by another call, and the first push again.
    pub(super) fn plan_a_repeated_push(&mut self) -> Operation {
        let mut items: Vec<_> = (0..self.random.usize(2..10))
            .map(|_| Item {
                id: self.make(),
                ..self.item()
            })
            .collect();
        if self.chance(60) {
            items.iter_mut().for_each(Item::drop_options);
        }
        if self.chance(15) {
            items.push(items[0].clone());
        }
        if self.chance(40) {
            let later = self.now.floor() + 10_001;
            items
                .iter_mut()
                .for_each(|item| item.due = Due::At(later + self.random.u64(0..3_000)));
        }
        let gone: Vec<_> = items
            .iter()
            .map(|item| item.id.clone())
            .filter(|_| self.chance(60))
            .collect();
        let attempt = self.attempt(0);
        let push = self.push_of(Some(attempt), items.clone());
        self.planned.push((Some(self.calls), push.clone()));
        if self.chance(30) {
            let attempt = self.chance(50).then(|| self.attempt(4_500_000));
            let other = self.push_of(attempt, items);
            self.plan([other]);
        }
        if !gone.is_empty() && self.chance(40) {
            self.plan([Operation::Cancel {
                dead: false,
                since: None,
                ids: gone,
            }]);
        } else if !gone.is_empty() {
            let token = self.token();
            let ack = Operation::Ack(gone.into_iter().map(|id| (id, token.clone())).collect());
            self.plan([
                ack,
                Operation::Claim {
                    count: 50,
                    token,
                    lease: 5_000,
                },
            ]);
        }
        push
    }

    /// New messages that are due within so many ms.
    fn fresh(&mut self, count: usize, within: u64) -> Operation {
        let item = |driver: &mut Self| {
            let mut item = Item {
                id: driver.make(),
                due: Due::In(driver.random.u64(0..within)),
                ..driver.item()
            };
            item.drop_options();
            item
        };
        Operation::Push {
            upsert: false,
            attempt: None,
            items: (0..count).map(|_| item(self)).collect(),
        }
    }

    /// A release by a clock that shows less than the due.
    pub(super) fn plan_a_release_in_the_past(&mut self) -> Operation {
        let push = self.fresh(2, 1);
        let Operation::Push { items, .. } = &push else {
            return push;
        };
        let token = self.token();
        let release = Operation::Release(
            items
                .iter()
                .map(|item| (item.id.clone(), token.clone()))
                .collect(),
        );
        self.plan([
            release,
            Operation::Claim {
                count: 50,
                token,
                lease: 30_000,
            },
        ]);
        self.set_back = Some((1, self.random.u64(500_000..3_000_000)));
        push
    }

    /// Messages that are ready, of which some are due only later by a clock that was set back, and others behind them.
    pub(super) fn plan_a_claim_in_the_past(&mut self) -> Operation {
        let (first, second) = (self.fresh(8, 900), self.fresh(4, 2));
        let promote = || Operation::Promote { limit: 1_000 };
        let claim = Operation::Claim {
            count: 50,
            token: self.token(),
            lease: 2_000,
        };
        self.plan([claim, promote(), second, promote()]);
        self.set_back = Some((3, self.random.u64(100_000..1_000_000)));
        first
    }

    /// A claim of many that are due within few milliseconds, and of nothing else: their dues are counted, not read.
    pub(super) fn plan_a_dense_claim(&mut self) -> Operation {
        let claim = |driver: &mut Self| Operation::Claim {
            count: 50,
            token: driver.token(),
            lease: 2_000,
        };
        let (all, push, them) = (claim(self), self.fresh(9, 3), claim(self));
        self.plan([them, push]);
        all
    }

    /// What a plain run does now and then. Nothing comes back by itself there, so it must not grow.
    pub(super) fn plan_of_a_plain_run(&mut self, world: &World) -> Operation {
        let held = Self::current(world);
        match self.chance(50) {
            _ if world.messages.len() >= 40 && !held.is_empty() => Operation::Ack(held),
            true => self.plan_a_claim_in_the_past(),
            false => self.plan_a_dense_claim(),
        }
    }

    /// The same, or what a plain run does instead.
    pub(super) fn simplified(&mut self, operation: Operation) -> Operation {
        match operation {
            _ if !self.plain => operation,
            Operation::Push {
                attempt, mut items, ..
            } => {
                items.iter_mut().for_each(Item::drop_options);
                self.push_of(attempt, items)
            }
            Operation::Retry(items) => {
                Operation::Release(items.into_iter().map(|(hold, ..)| hold).collect())
            }
            Operation::Bury(items) => {
                Operation::Release(items.into_iter().map(|(hold, _)| hold).collect())
            }
            Operation::Beat { .. } | Operation::Reap { .. } => self.claim(),
            other => other,
        }
    }
}
