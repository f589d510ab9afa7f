//! Random arguments of the random client: ids, tokens, limits and cursors.

use crate::model::client::driver::Driver;
use crate::model::client::operation::{Hold, Operation};
use crate::model::message::{Due, Place};
use crate::model::world::World;
use crate::queue::DAY;
use crate::reply::Text;

const IDS: [&str; 14] = [
    "a",
    "b",
    "c",
    "d",
    "order:42",
    "12:34",
    "with space",
    "grüße",
    "f",
    "g",
    "h",
    "i",
    "j",
    "0",
];
const STATES: [&str; 4] = ["scheduled", "ready", "leased", "dead"];

impl Driver {
    pub(crate) fn current(world: &World) -> Vec<Hold> {
        let current = |(id, message): (&Text, &crate::model::message::Message)| match &message.place
        {
            Place::Leased { token, .. } => Some((id.clone(), token.clone())),
            _ => None,
        };
        world.messages.iter().filter_map(current).collect()
    }

    pub(crate) fn claim(&mut self) -> Operation {
        let count = self.random.usize(0..if self.plain { 30 } else { 6 });
        Operation::Claim {
            count,
            token: self.token(),
            lease: self.lease().clamp(1, DAY),
        }
    }

    pub(crate) fn reschedule(&mut self, world: &World, id: Text) -> (Text, Due, Option<u64>) {
        let current = world.place(&id).map(Place::time);
        let expected = match self.random.u32(0..3) {
            0 => None,
            1 => current,
            _ => Some(self.now.floor() + self.random.u64(0..5)),
        };
        let due = match current {
            Some(current) if self.chance(20) => Due::At(current),
            _ => self.due(),
        };
        (id, due, expected)
    }

    /// Ids and tokens to settle: mostly of current claims, sometimes stale, of no claim, or one of
    /// them twice.
    pub(crate) fn holds(&mut self, world: &World) -> Vec<Hold> {
        let current = Self::current(world);
        let count = self.random.usize(1..5);
        (0..count)
            .map(|_| {
                let unknown = (self.id(), self.token());
                if !current.is_empty() && self.chance(4) {
                    let (id, mut token) = current[self.random.usize(0..current.len())].clone();
                    token.0[self.random.usize(0..16)] ^= 1;
                    return (id, token);
                }
                let known = if self.chance(80) {
                    &current
                } else {
                    &self.holds
                };
                if self.random.u32(0..100) < 90 && !known.is_empty() {
                    known[self.random.usize(0..known.len())].clone()
                } else {
                    unknown
                }
            })
            .collect()
    }

    pub(crate) fn limits(&mut self) -> Vec<(&'static str, Text)> {
        (0..self.random.usize(1..3))
            .map(|_| match self.random.u32(0..12) {
                11 => (
                    "max_remembered",
                    self.pick(&[8_u64, 1_000_000, 1_000_000]).into(),
                ),
                7 | 8 => (
                    "rate",
                    self.pick(&["", "", "5/700/3", "9/1000/1", "20/1001/20", "7/3/4"])
                        .into(),
                ),
                9 => ("max_leased", self.pick(&["", "", "2", "4", "7"]).into()),
                10 => ("max_throttle_ms", self.pick(&[100u64, 900_000]).into()),
                0 => ("max_attempts", self.random.u64(1..5).into()),
                1 => ("max_crashes", self.random.u64(0..4).into()),
                2 => ("max_messages", self.random.u64(7..14).into()),
                3 => ("max_messages", Text::default()),
                4 => (
                    "max_payload_bytes",
                    self.pick(&[9u64, 100, 16_777_216]).into(),
                ),
                5 => ("dead_keep_ms", self.pick(&[5_000u64, 2_592_000_000]).into()),
                _ => ("dead_keep", self.random.u64(1..6).into()),
            })
            .collect()
    }

    pub(crate) fn peek(&mut self, world: &World) -> Operation {
        let (state, limit) = (self.pick(&STATES), self.random.usize(1..4));
        let listed = world.listed(state);
        let cursor = match self.random.choice(listed) {
            None => Text::default(),
            _ if self.chance(30) => Text::default(),
            Some(_) if state == "ready" => format!("{}:", self.random.u32(1..8)).into(),
            Some((time, id)) => {
                let time = if self.chance(30) { time + 1 } else { time };
                Text([format!("{time}:").as_bytes(), &id.0].concat())
            }
        };
        Operation::Peek {
            state,
            cursor,
            limit,
        }
    }

    /// Random times close to the due times of scheduled messages, for a call of dues.
    pub(crate) fn dues(&mut self, world: &World) -> Operation {
        let listed = world.listed("scheduled");
        let mut times: Vec<u64> = listed.into_iter().map(|(due, _)| due).collect();
        times.retain(|_| self.chance(50));
        times.extend((0..self.random.u64(0..3)).map(|more| self.now.floor() + 500 * more));
        times.sort_unstable();
        times.dedup();
        times.truncate(60);
        Operation::Dues(times)
    }

    /// A call of held, mostly with the token of a claim whose lease holds messages.
    pub(crate) fn held(&mut self, world: &World) -> Operation {
        let token = self.random.choice(Self::current(world));
        let token = token.map(|(_, token)| token);
        Operation::Held(token.unwrap_or_else(|| self.token()))
    }

    pub(crate) fn limit(&mut self) -> usize {
        self.pick(&[1, 2, 3, 10, 1_000])
    }

    pub(crate) fn lease(&mut self) -> u64 {
        self.pick(&[
            0,
            1,
            50,
            500,
            1_000,
            2_000,
            2_000,
            5_000,
            30_000,
            DAY,
            DAY + 1,
        ])
    }

    pub(crate) fn token(&mut self) -> Text {
        let mut token = self.random.u128(..).to_le_bytes();
        if self.chance(30) {
            token[..8].copy_from_slice(b"@nodeOf1");
        }
        Text(token.to_vec())
    }

    /// Makes an id that no message had.
    pub(crate) fn make(&mut self) -> Text {
        let (made, count) = &mut self.made;
        *count += 1;
        made.truncate(7);
        made.insert(0, format!("made/{count}").into());
        made[0].clone()
    }

    pub(crate) fn ids(&mut self) -> Vec<Text> {
        (0..self.random.usize(1..5)).map(|_| self.id()).collect()
    }

    pub(crate) fn id(&mut self) -> Text {
        let made = self
            .chance(15)
            .then(|| self.random.choice(self.made.0.clone()))
            .flatten();
        made.unwrap_or_else(|| self.pick(&IDS).into())
    }

    /// An error text. Some are longer than the stored maximum.
    pub(crate) fn bytes(&mut self, percent_long: u32) -> Text {
        if self.chance(percent_long) {
            "long\0".repeat(210).into()
        } else {
            self.payload()
        }
    }
}
