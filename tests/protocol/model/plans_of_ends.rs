//! Sequences about the end of a delivery: windows, outcomes, next messages and follow-up messages.

use crate::model::driver::Driver;
use crate::model::message::Due;
use crate::model::operation::{Hold, Item, Operation};
use crate::model::world::World;
use crate::reply::Text;

impl Driver {
    /// A push with windows, the end of its messages, and calls that meet the windows.
    pub(super) fn plan_windows(&mut self) -> Operation {
        let window = self.pick(&[1_500, 4_000, 20_000, 60_000]);
        let drops = self.chance(30);
        let item = |driver: &mut Self| {
            let mut item = Item {
                id: driver.id(),
                due: Due::In(driver.random.u64(0..500)),
                ..driver.item()
            };
            item.drop_options();
            item.window = Some(window);
            if drops {
                (item.expires, item.on_expire) = (Some(Due::In(1)), Some("drop"));
            }
            item
        };
        let items: Vec<Item> = (0..3).map(|_| item(self)).collect();
        let ids: Vec<Text> = items.iter().map(|item| item.id.clone()).collect();
        let again = |driver: &mut Self, id: &Text| Item {
            id: id.clone(),
            ..driver.item()
        };
        for _ in 0..self.random.usize(1..3) {
            let get = Operation::Get(ids[0].clone());
            let items = ids.iter().map(|id| again(self, id)).collect();
            let attempt = self.chance(50).then(|| self.attempt(6_000_000));
            let push = self.push_of(attempt, items);
            self.plan([push, get]);
        }
        let token = self.token();
        let claim = Operation::Claim {
            count: 50,
            token: token.clone(),
            lease: 30_000,
        };
        let holds: Vec<Hold> = ids.iter().map(|id| (id.clone(), token.clone())).collect();
        let end = match self.random.u32(0..10) {
            0..4 => Operation::Ack(holds),
            4 => self.ack_push(holds[0].clone()),
            5 => Operation::Retry(
                holds
                    .into_iter()
                    .map(|hold| (hold, 3_600_000, Text::default()))
                    .collect(),
            ),
            6 => Operation::Snooze(
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
        self.plan([end, claim]);
        let attempt = self.chance(50).then(|| self.attempt(0));
        self.push_of(attempt, items)
    }

    /// Pushes of next messages for some deliveries, then the end of these deliveries.
    pub(super) fn plan_next(&mut self, world: &World) -> Operation {
        let mut holds = Self::current(world);
        self.random.shuffle(&mut holds);
        holds.truncate(3);
        if holds.is_empty() {
            return self.claim();
        }
        let end = self.end(holds.clone());
        self.plan([end]);
        let item = |driver: &mut Self, (id, _): &Hold| Item {
            id: id.clone(),
            on_conflict: Some("next"),
            ..driver.item()
        };
        for number in 0..self.random.usize(1..3) {
            let items = holds.iter().map(|hold| item(self, hold)).collect();
            let attempt = self.chance(70).then(|| self.attempt(2_000_000));
            let push = self.push_of(attempt, items);
            if number == 0 && self.chance(40) {
                let later = self.calls + 1_000_000 + self.planned.len();
                self.planned.push((Some(later), push.clone()));
                self.planned.push((Some(later), push));
            } else {
                self.plan([push]);
            }
        }
        if self.chance(20) {
            let ids = holds.into_iter().map(|(id, _)| id).collect();
            return Operation::Cancel {
                dead: false,
                since: None,
                ids,
            };
        }
        Operation::Get(holds[0].0.clone())
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

    /// Pushes of an id that is not leased, with a longest wait: each gives it a later due time.
    pub(super) fn plan_a_debounce(&mut self) -> Operation {
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

    /// Deaths of deliveries, and pushes that revive them, some of them repeated.
    pub(super) fn plan_revivals(&mut self, world: &World) -> Operation {
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
        let claim = Operation::Claim {
            count: 50,
            token,
            lease: 30_000,
        };
        self.plan([Operation::Bury(bury), claim]);
        push
    }

    /// An ack_push with random messages.
    pub(super) fn ack_push(&mut self, hold: Hold) -> Operation {
        let mut items: Vec<Item> = (0..self.random.usize(1..4)).map(|_| self.item()).collect();
        let are_good = self.chance(70);
        for item in &mut items {
            if are_good || !self.chance(20) {
                (item.on_conflict, item.max_wait, item.revive) = (None, None, false);
                item.due = Due::In(self.random.u64(0..5_000));
            }
            if self.chance(70) {
                item.id = self.make();
            }
        }
        if self.chance(4) {
            items[0].id = hold.0.clone();
        }
        Operation::AckPush { hold, items }
    }
}
