//! Sequences of operations that the random client would hardly make by chance.

use crate::model::client::driver::{Driver, NODES};
use crate::model::client::operation::{Item, Operation, Presence};
use crate::model::message::Due;
use crate::model::world::World;
use crate::reply::Text;

impl Driver {
    /// Plans these operations. They are listed in reverse: the last one is made first.
    pub(crate) fn plan(&mut self, operations: impl IntoIterator<Item = Operation>) {
        self.planned
            .extend(operations.into_iter().map(|operation| (None, operation)));
    }

    /// Plans crashes: a node beats twice and settles nothing, so that leased messages crash, are
    /// claimed again and crash again.
    pub(crate) fn plan_crashes(&mut self) -> Operation {
        let beat = Operation::Beat {
            node: self.pick(&NODES).into(),
            presence: Presence::Stay,
        };
        for _ in 0..2 {
            let reap = Operation::Reap(self.limit());
            let claim = Operation::Claim {
                count: 5,
                token: self.token(),
                lease: 2_000,
            };
            let promote = Operation::Promote(1_000);
            self.plan([claim, promote, reap]);
            self.plan(vec![beat.clone(); 6]);
        }
        beat
    }

    /// Plans a cancel, a push of the same ids, perhaps as an undo, and a repetition of the cancel
    /// with a `since` close to the first cancel's time.
    pub(crate) fn plan_a_repeated_cancel(&mut self) -> Operation {
        let (dead, ids) = (self.chance(40), self.ids());
        let item = |id: &Text, driver: &mut Self| Item {
            id: id.clone(),
            undo: driver.chance(40).then(|| driver.now.ceil()),
            ..driver.item()
        };
        let items = ids.iter().map(|id| item(id, self)).collect();
        let since = Some(self.now.floor() + self.random.u64(0..1_500) - 500);
        self.plan([Operation::Cancel {
            dead,
            since,
            ids: ids.clone(),
        }]);
        // The push comes two seconds from now, after the cancel.
        let attempt = self.chance(50).then(|| self.attempt(2_500_000));
        let push = self.push_of(attempt, items);
        self.plan([push]);
        Operation::Cancel {
            dead,
            since: None,
            ids,
        }
    }

    /// Plans a push of new ids, the end of some of them, a push of the same ids by another call,
    /// and a repetition of the first push.
    pub(crate) fn plan_a_repeated_push(&mut self) -> Operation {
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

    /// A push of `count` new messages that are due in less than `within` ms.
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

    /// Plans a release after the clock went back to before the due time.
    pub(crate) fn plan_a_release_in_the_past(&mut self) -> Operation {
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

    /// Plans a claim after the clock went back: some ready messages are no longer due, and due ones
    /// follow them.
    pub(crate) fn plan_a_claim_in_the_past(&mut self) -> Operation {
        let (first, second) = (self.fresh(8, 900), self.fresh(4, 2));
        let promote = || Operation::Promote(1_000);
        let claim = Operation::Claim {
            count: 50,
            token: self.token(),
            lease: 2_000,
        };
        self.plan([claim, promote(), second, promote()]);
        self.set_back = Some((3, self.random.u64(100_000..1_000_000)));
        first
    }

    /// Plans a claim of many messages that are due within a few ms. For these the script counts
    /// equal due times instead of reading each.
    pub(crate) fn plan_a_dense_claim(&mut self) -> Operation {
        let claim = |driver: &mut Self| Operation::Claim {
            count: 50,
            token: driver.token(),
            lease: 2_000,
        };
        let (all, push, them) = (claim(self), self.fresh(9, 3), claim(self));
        self.plan([them, push]);
        all
    }

    /// Plans for a run without attrs. Such a run has no reap, so the plan acks all leased messages
    /// when there are many.
    pub(crate) fn plan_of_a_plain_run(&mut self, world: &World) -> Operation {
        let held = Self::current(world);
        match self.chance(50) {
            _ if world.messages.len() >= 40 && !held.is_empty() => Operation::Ack(held),
            true => self.plan_a_claim_in_the_past(),
            false => self.plan_a_dense_claim(),
        }
    }

    /// Returns the operation, or a simpler one: in a plain run for one that may store attrs, and in
    /// a run with the rights of release 0.1 for one that needs more rights.
    pub(crate) fn simplified(&mut self, operation: Operation) -> Operation {
        match operation {
            Operation::Push {
                upsert,
                attempt,
                mut items,
            } if self.has_old_rights => {
                items.iter_mut().for_each(Item::drop_new_options);
                Operation::Push {
                    upsert,
                    attempt,
                    items,
                }
            }
            Operation::AckPush { hold, .. } if self.plain || self.has_old_rights => {
                Operation::Ack(vec![hold])
            }
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
            Operation::Snooze(items) => {
                Operation::Release(items.into_iter().map(|(hold, _)| hold).collect())
            }
            Operation::Bury(items) => {
                Operation::Release(items.into_iter().map(|(hold, _)| hold).collect())
            }
            Operation::Beat { .. } | Operation::Reap(_) | Operation::EndLeases(_) => self.claim(),
            other => other,
        }
    }
}
