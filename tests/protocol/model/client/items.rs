//! Random pushes and their items.

use crate::model::client::driver::Driver;
use crate::model::client::operation::{Attempt, Item, Operation};
use crate::model::message::Due;
use crate::model::windows::WINDOW_MOST;
use crate::model::world::CENTURY_MS;
use crate::queue::{DAY, HOUR};
use crate::reply::Text;

impl Driver {
    pub(crate) fn push(&mut self) -> Operation {
        let attempt = match self.random.u32(0..10) {
            0..6 => Some(self.attempt(0)),
            6 => Some(Attempt {
                until_us: self.now.0 + self.random.u64(12_000_001..12_003_000),
                ..self.attempt(0)
            }),
            7 => Some(Attempt {
                until_us: (self.now.floor() - self.random.u64(0..3)) * 1_000,
                ..self.attempt(0)
            }),
            _ => None,
        };
        let new = attempt.is_some() && self.chance(8);
        let most = if new { 10 } else { 6 };
        let mut items: Vec<_> = (0..self.random.usize(1..most))
            .map(|_| self.item())
            .collect();
        if self.chance(50) {
            // The script has a fast path for calls without options, so such calls are made often.
            items.iter_mut().for_each(Item::drop_options);
        }
        if new {
            items.iter_mut().for_each(|item| item.id = self.make());
            if self.chance(10) {
                items.push(items[0].clone());
            }
        }
        self.push_of(attempt, items)
    }

    /// An upsert if most items move messages, else a push. A few items remain that belong to the
    /// other verb: the script refuses them.
    pub(crate) fn push_of(&mut self, attempt: Option<Attempt>, mut items: Vec<Item>) -> Operation {
        let upsert = 2 * items.iter().filter(|item| item.moves()).count() > items.len();
        for item in &mut items {
            let unknown = item.on_conflict == Some("never");
            if item.moves() != upsert && !unknown && !self.chance(5) {
                item.on_conflict = match upsert {
                    true => Some(self.pick(&["reschedule", "replace"])),
                    false => self.pick(&[None, Some("keep")]),
                };
                (item.max_wait, item.revive) = (None, false);
            }
        }
        Operation::Push {
            upsert,
            attempt,
            items,
        }
    }

    /// The `attempt` argument of a push call that its client first makes `later_us` from now. The
    /// client's estimate of the server's time may lag, but is never ahead.
    pub(crate) fn attempt(&mut self, later_us: u64) -> Attempt {
        let behind = self.pick(&[0, 0, 1, 500, 20_000]);
        let nonce = format!("{:016x}", self.random.u64(..));
        let until_us = self.now.0 + later_us + 10_000_000 - behind;
        let whole = self.chance(50).then_some(until_us % 1_000); // such clients count in ms
        Attempt {
            until_us: until_us - whole.unwrap_or(0),
            nonce,
        }
    }

    pub(crate) fn item(&mut self) -> Item {
        let choices = [
            None,
            None,
            Some("keep"),
            Some("reschedule"),
            Some("reschedule"),
            Some("replace"),
            Some("replace"),
            Some("next"),
            Some("never"),
        ];
        let expires = self.chance(30).then(|| match self.random.u32(0..12) {
            0 => Due::In(0),
            1..3 => Due::At(self.now.floor() + self.random.u64(0..9_000)),
            3..6 => Due::In(self.random.u64(1..3_000)),
            _ => Due::In(self.random.u64(1..60_000)),
        });
        let (on_conflict, due) = (self.pick(&choices), self.due());
        let moves = on_conflict.is_some_and(|choice| choice != "keep" && choice != "never");
        let replaces = matches!(on_conflict, Some("replace" | "next"));
        Item {
            id: if self.chance(2) {
                "x".repeat(self.random.usize(0..203)).into()
            } else {
                self.id()
            },
            due,
            payload: self.payload(),
            on_conflict,
            max_attempts: self.chance(30).then(|| self.random.u64(1..4)),
            cost: self.chance(15).then(|| self.random.u64(1..6)),
            on_expire: match &expires {
                Some(_) if self.chance(60) => Some(self.pick(&["drop", "drop", "dead"])),
                None if self.chance(2) => Some("drop"),
                _ => None,
            },
            expires,
            window: self.chance(20).then(|| {
                self.pick(&[
                    0,
                    1,
                    30,
                    700,
                    4_000,
                    20_000,
                    20_000,
                    WINDOW_MOST,
                    WINDOW_MOST + 1,
                ])
            }),
            reuse: self.chance(12),
            max_wait: self
                .chance(if moves { 25 } else { 1 })
                .then(|| self.pick(&[0, 100, 4_000, 4_000, 20_000, CENTURY_MS, CENTURY_MS + 1])),
            revive: self.chance(if replaces { 25 } else { 1 }),
            undo: self.chance(2).then(|| self.now.floor()),
            trace_parent: self.chance(20).then(|| {
                format!(
                    "00-{:032x}-{:016x}-01",
                    self.random.u128(1..),
                    self.random.u64(1..)
                )
            }),
        }
    }

    pub(crate) fn due(&mut self) -> Due {
        match self.random.u32(0..20) {
            0..9 => Due::In(self.delay()),
            9..13 => Due::In(0),
            13..15 => Due::At(self.now.floor() - self.random.u64(0..5_000)),
            15 => Due::At(self.pick(&[0, 1, 2_000_000_000, self.now.floor() - DAY])),
            16..18 => Due::At(self.now.floor() + self.random.u64(0..20_000)),
            18 => Due::In(3_155_760_000_000 + self.random.u64(0..2)),
            _ => Due::Nonsense(
                self.pick(&["", "soon", "-5", "1.5", "+", "nan", "1e3", "0x10", " 5"]),
            ),
        }
    }

    pub(crate) fn delay(&mut self) -> u64 {
        match self.random.u32(0..8) {
            0..3 => self.random.u64(0..100),
            3..5 => self.random.u64(0..4_000),
            5 => self.random.u64(11_998..12_003),
            6 => self.random.u64(4_000..20_000),
            _ => self.pick(&[48 * HOUR, DAY, 30 * DAY]),
        }
    }

    pub(crate) fn payload(&mut self) -> Text {
        let length = self.random.usize(0..12);
        Text((0..length).map(|_| self.random.u8(..)).collect())
    }
}
