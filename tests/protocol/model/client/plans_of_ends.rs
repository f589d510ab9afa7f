//! Sequences about the end of a delivery: windows, outcomes, next messages and follow-ups.

use crate::model::client::driver::Driver;
use crate::model::client::operation::{Hold, Item, Operation};
use crate::model::message::Due;
use crate::model::world::World;
use crate::reply::Text;

impl Driver {
    /// Plans calls that make room, so that the next claim grants something and the next push
    /// creates something.
    fn plan_room(&mut self) {
        if self.chance(50) {
            let limits = ["max_messages", "rate", "max_leased"];
            let pairs = limits.map(|name| (name, Text::default()));
            self.plan([Operation::Configure(pairs.to_vec()), Operation::Resume]);
        }
    }

    fn claim_with(token: &Text) -> Operation {
        Operation::Claim {
            count: 50,
            token: token.clone(),
            lease: 30_000,
        }
    }

    /// Plans a push with windows, the end of its messages, and further pushes of the same ids.
    pub(crate) fn plan_windows(&mut self) -> Operation {
        let window = self.pick(&[4_000, 20_000, 20_000, 60_000, 100_000]);
        let (drops, expires) = (self.chance(40), self.pick(&[1, 20_000, 60_000]));
        let item = |driver: &mut Self| {
            let mut item = Item {
                id: if driver.chance(60) {
                    driver.make()
                } else {
                    driver.id()
                },
                due: Due::In(driver.random.u64(0..500)),
                ..driver.item()
            };
            item.drop_options();
            item.window = Some(window);
            if drops {
                let choice = driver.pick(&[Some("drop"), Some("drop"), None]);
                (item.expires, item.on_expire) = (Some(Due::In(expires)), choice);
            }
            item
        };
        let items: Vec<Item> = (0..3).map(|_| item(self)).collect();
        let ids: Vec<Text> = items.iter().map(|item| item.id.clone()).collect();
        let again = |driver: &mut Self, id: &Text| {
            let mut item = driver.item();
            (item.id, item.reuse) = (id.clone(), driver.chance(25));
            item
        };
        for _ in 0..self.random.usize(1..3) {
            let gets: Vec<_> = ids.iter().cloned().map(Operation::Get).collect();
            let items = ids.iter().map(|id| again(self, id)).collect();
            let attempt = self.chance(50).then(|| self.attempt(6_000_000));
            let push = self.push_of(attempt, items);
            self.plan([push]);
            self.plan(gets);
        }
        let token = self.token();
        let holds: Vec<Hold> = ids.iter().map(|id| (id.clone(), token.clone())).collect();
        let end = match self.random.u32(0..14) {
            0..5 => Operation::Ack(holds),
            5 => self.ack_push(holds[0].clone()),
            6..9 => Operation::Retry(
                holds
                    .into_iter()
                    .map(|hold| (hold, 3_600_000, Text::default()))
                    .collect(),
            ),
            9..12 => Operation::Snooze(
                holds
                    .into_iter()
                    .map(|hold| (hold, Due::In(3_600_000)))
                    .collect(),
            ),
            _ => Operation::Cancel {
                dead: true,
                since: None,
                ids,
            },
        };
        self.plan([end, Self::claim_with(&token)]);
        self.plan_room();
        let attempt = self.chance(50).then(|| self.attempt(2_500_000));
        let push = self.push_of(attempt, items);
        self.plan([push]);
        Operation::Promote(1_000)
    }

    /// Plans next messages for some deliveries, and the end of these deliveries. The client repeats
    /// the first push at each step.
    pub(crate) fn plan_next(&mut self, world: &World) -> Operation {
        let mut holds = Self::current(world);
        self.random.shuffle(&mut holds);
        holds.truncate(3);
        if holds.is_empty() {
            return self.claim();
        }
        let ids: Vec<Text> = holds.iter().map(|(id, _)| id.clone()).collect();
        let item = |driver: &mut Self, id: &Text| {
            let mut item = driver.item();
            (item.id, item.on_conflict) = (id.clone(), Some("next"));
            item
        };
        let items = ids.iter().map(|id| item(self, id)).collect();
        let attempt = self.chance(80).then(|| self.attempt(0));
        let push = self.push_of(attempt, items);
        let repetition = (Some(self.calls), push.clone());
        let mut calls = vec![(None, self.end(holds.clone()))];
        let read = match self.random.u32(0..10) {
            0..3 => Operation::Cancel {
                dead: false,
                since: None,
                ids: ids.clone(),
            },
            _ => Operation::Get(ids[0].clone()),
        };
        calls.push((None, read));
        if self.chance(50) {
            let items = ids.iter().map(|id| item(self, id)).collect();
            let attempt = self.chance(50).then(|| self.attempt(1_000_000));
            calls.push((None, self.push_of(attempt, items)));
        }
        for at in (0..=calls.len()).rev() {
            if self.chance(25) {
                calls.insert(at, repetition.clone());
            }
        }
        self.planned.extend(calls);
        push
    }

    /// Plans an ack with follow-ups of a message that was just claimed.
    pub(crate) fn plan_a_follow_up(&mut self) -> Operation {
        let token = self.token();
        let mut parent = self.item();
        parent.drop_options();
        (parent.id, parent.due) = (self.make(), Due::In(0));
        parent.window = self.chance(30).then_some(20_000);
        let hold = (parent.id.clone(), token.clone());
        let ack_push = self.ack_push(hold);
        if self.chance(30) {
            self.plan([ack_push.clone()]);
        }
        self.plan([ack_push]);
        if self.chance(30) {
            let mut next = self.item();
            (next.id, next.on_conflict) = (parent.id.clone(), Some("next"));
            let push = self.push_of(None, vec![next]);
            self.plan([push]);
        }
        self.plan([Self::claim_with(&token)]);
        self.plan_room();
        self.push_of(None, vec![parent])
    }

    /// A settlement of these deliveries.
    fn end(&mut self, holds: Vec<Hold>) -> Operation {
        match self.random.u32(0..10) {
            0 => Operation::Ack(holds),
            1 => self.ack_push(holds[0].clone()),
            2 => Operation::Again(holds.into_iter().map(|hold| (hold, self.due())).collect()),
            3 => Operation::Retry(
                holds
                    .into_iter()
                    .map(|hold| (hold, self.delay(), self.bytes(3)))
                    .collect(),
            ),
            4 => Operation::Release(holds),
            5 => Operation::Bury(
                holds
                    .into_iter()
                    .map(|hold| (hold, self.bytes(2)))
                    .collect(),
            ),
            6 => Operation::Snooze(holds.into_iter().map(|hold| (hold, self.due())).collect()),
            7 => Operation::Throttle(holds.into_iter().map(|hold| (hold, 50)).collect()),
            _ => self.plan_crashes(),
        }
    }

    /// Plans pushes of an id that is not leased, with a `max_wait`. Each gives the message a later
    /// due time.
    pub(crate) fn plan_a_debounce(&mut self) -> Operation {
        let (id, mode) = (self.id(), self.pick(&["reschedule", "replace", "next"]));
        let push = |driver: &mut Self| {
            let mut item = Item {
                id: id.clone(),
                due: Due::In(driver.random.u64(1_000..3_000)),
                ..driver.item()
            };
            item.drop_options();
            (item.on_conflict, item.max_wait) = (Some(mode), Some(3_000));
            driver.push_of(None, vec![item])
        };
        let pushes: Vec<_> = (0..self.random.usize(2..5)).map(|_| push(self)).collect();
        self.plan(pushes);
        push(self)
    }

    /// Plans deaths of deliveries and pushes that revive them; some pushes are repeated.
    pub(crate) fn plan_revivals(&mut self, world: &World) -> Operation {
        let mut dead: Vec<Text> = world.listed("dead").into_iter().map(|(_, id)| id).collect();
        dead.truncate(3);
        if dead.is_empty() {
            let holds = Self::current(world);
            let reason = |hold| (hold, Text::default());
            return Operation::Bury(match holds.is_empty() {
                true => vec![((self.id(), self.token()), Text::default())],
                false => holds.into_iter().map(reason).collect(),
            });
        }
        let item = |driver: &mut Self, id: &Text| {
            let mut item = Item {
                id: id.clone(),
                due: Due::In(driver.random.u64(0..300)),
                ..driver.item()
            };
            item.on_conflict = Some(driver.pick(&["replace", "next"]));
            (item.max_wait, item.revive) = (None, true);
            item
        };
        let items = dead.iter().map(|id| item(self, id)).collect();
        let attempt = self.chance(70).then(|| self.attempt(0));
        let push = self.push_of(attempt, items);
        let token = self.token();
        let bury = dead
            .into_iter()
            .map(|id| ((id, token.clone()), Text::default()))
            .collect();
        self.planned.push((Some(self.calls), push.clone()));
        self.plan([Operation::Bury(bury), Self::claim_with(&token)]);
        push
    }

    /// An ack with random follow-ups.
    pub(crate) fn ack_push(&mut self, hold: Hold) -> Operation {
        let mut items: Vec<Item> = (0..self.random.usize(1..4)).map(|_| self.item()).collect();
        let are_good = self.chance(70);
        for item in &mut items {
            if are_good || !self.chance(20) {
                (item.on_conflict, item.max_wait, item.revive) = (None, None, false);
                item.due = Due::In(self.random.u64(0..5_000));
            }
            item.id = match self.random.u32(0..10) {
                0..5 => self.make(),
                5..8 => self.random.choice(self.made.0.clone()).unwrap_or_default(),
                _ => self.id(),
            };
        }
        if self.chance(4) {
            items[0].id = hold.0.clone();
        }
        Operation::AckPush { hold, items }
    }
}
