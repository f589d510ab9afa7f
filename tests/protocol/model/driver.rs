//! A seeded random client. It chooses times and operations, and repeats some calls as if their
//! replies were lost.

use fastrand::Rng;

use crate::model::operation::{Attempt, Hold, Item, Operation, Presence};
use crate::model::world::{CENTURY_MS, Due, Now, Place, World};
use crate::queue::{DAY, HOUR, T0};
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
pub(super) const NODES: [&str; 3] = ["north", "south", "west"];
const STATES: [&str; 4] = ["scheduled", "ready", "leased", "dead"];

/// Number of past calls that the client may repeat.
const KEPT: usize = 40;

pub(crate) struct Driver {
    pub(super) random: Rng,
    pub(crate) now: Now,
    /// Ids with the tokens of their claims, current and stale.
    holds: Vec<Hold>,
    kept: Vec<(usize, Operation)>,
    /// The last fresh ids, and the number of all of them so far.
    made: (Vec<Text>, usize),
    /// The next operations, about a second apart: the last element comes first. A repetition has
    /// the number of the call that it repeats.
    pub(super) planned: Vec<(Option<usize>, Operation)>,
    /// A number of operations and microseconds: when so many planned operations remain, the clock
    /// goes back by so much.
    pub(super) set_back: Option<(usize, u64)>,
    /// Whether the clock went back: then the remaining planned operations follow at once.
    at_once: bool,
    /// Whether no call may store anything in attrs.
    pub(super) plain: bool,
    pub(super) calls: usize,
    /// Whether the queue may have a map.
    pub(crate) has_map: bool,
}

impl Driver {
    pub(crate) fn new(seed: u64, plain: bool) -> Self {
        let now = Now(T0 * 1_000);
        Self {
            random: Rng::with_seed(seed),
            now,
            holds: Vec::new(),
            kept: Vec::new(),
            made: (Vec::new(), 0),
            planned: Vec::new(),
            set_back: None,
            at_once: false,
            plain,
            calls: 0,
            has_map: false,
        }
    }

    pub(crate) fn chance(&mut self, percent: u32) -> bool {
        self.random.u32(0..100) < percent
    }

    /// Moves the clock: mostly a little, often exactly to a time that matters or close to it,
    /// sometimes back.
    pub(crate) fn pass_time(&mut self, world: &World) {
        let us = self.now.0;
        if let Some((_, us)) = self
            .set_back
            .take_if(|(left, _)| *left == self.planned.len())
        {
            self.now.0 -= us;
            self.at_once = true;
            return;
        }
        self.at_once &= !self.planned.is_empty();
        if !self.planned.is_empty() {
            self.now.0 += if self.at_once {
                self.random.u64(0..20_000)
            } else {
                self.random.u64(900_000..1_100_000)
            };
            return;
        }
        self.now.0 = match self.random.u32(0..100) {
            0..35 => us + 1,
            35..55 => us + self.random.u64(0..20_000),
            55..65 => us + self.random.u64(0..1_000_000),
            65..92 => self.moment(world, 2_000_000).unwrap_or(us),
            92..96 => self.moment(world, 15_000_000).unwrap_or(us),
            96..97 => self.moment(world, 40 * DAY * 1_000).unwrap_or(us),
            97..98 => us + self.random.u64(3_000_000..20_000_000),
            _ => us - self.random.u64(0..400_000),
        };
    }

    fn moment(&mut self, world: &World, within_us: u64) -> Option<u64> {
        let mut moments: Vec<u64> = world
            .messages
            .values()
            .map(|message| message.place.time())
            .collect();
        moments.extend(world.closed_until);
        let expiry = |message: &crate::model::world::Message| {
            message.expiry(message.original.unwrap_or(message.place.time()))
        };
        moments.extend(world.messages.values().filter_map(expiry));
        moments.extend(world.recent.values().map(|score| *score as u64));
        if let Some((_, leader_until, seen, reap_after)) = &world.beats {
            moments.extend([*leader_until, seen + 3_000, *reap_after, *reap_after]);
        }
        moments.extend(
            self.kept
                .iter()
                .filter_map(|(_, operation)| match operation {
                    Operation::Push {
                        attempt: Some(attempt),
                        ..
                    } => Some(attempt.until_us / 1_000),
                    _ => None,
                }),
        );
        let from = self.now.0.saturating_sub(300_000);
        moments.retain(|ms| (from..from.saturating_add(within_us)).contains(&(ms * 1_000)));
        let chosen = self.random.choice(moments)? * 1_000;
        let beside = [0, 0, 0, 1, 1_000, 500, -1, -500, -1_000];
        Some(chosen.saturating_add_signed(self.random.choice(beside)?))
    }

    /// The next operation and its number. A repetition has the number of the call that it repeats.
    pub(crate) fn next(&mut self, world: &World) -> (usize, Operation) {
        self.calls += 1;
        if let Some((number, planned)) = self.planned.pop() {
            return (number.unwrap_or(self.calls), self.simplified(planned));
        }
        if !self.kept.is_empty() && self.chance(8) {
            let kept = self.random.usize(0..self.kept.len());
            return self.kept[kept].clone();
        }
        let operation = self.choose(world);
        let operation = self.simplified(operation);
        let repeated_by_clients =
            !matches!(operation, Operation::Claim { .. } | Operation::Beat { .. });
        if repeated_by_clients && self.chance(30) {
            if self.kept.len() == KEPT {
                self.kept.remove(0);
            }
            self.kept.push((self.calls, operation.clone()));
        }
        (self.calls, operation)
    }

    /// Remembers the ids that a claim granted, with its token.
    pub(crate) fn learn(&mut self, ids: Vec<Text>, token: &Text) {
        self.holds
            .extend(ids.into_iter().map(|id| (id, token.clone())));
        let surplus = self.holds.len().saturating_sub(60);
        self.holds.drain(..surplus);
    }

    fn choose(&mut self, world: &World) -> Operation {
        if self.plain && self.chance(10) {
            return self.plan_of_a_plain_run(world);
        }
        if self.has_map && self.chance(if world.map.is_none() { 20 } else { 4 }) {
            return self.remap(world);
        }
        match self.random.u32(0..1_000) {
            0..10 => self.plan_a_repeated_push(),
            10..200 => self.push(),
            200..300 => {
                if self.chance(10) {
                    let claim = self.claim();
                    self.plan([claim]);
                    self.set_back = Some((self.planned.len(), self.random.u64(0..400_000)));
                }
                Operation::Promote {
                    limit: self.limit(),
                }
            }
            300..400 => self.claim(),
            400..440 => Operation::Ack(self.holds(world)),
            440..460 => {
                let holds = self.holds(world);
                let due = |driver: &mut Self| match driver.chance(40) {
                    true => Due::In(3_600_000), // beyond most expiries
                    false => driver.due(),
                };
                Operation::Snooze(holds.into_iter().map(|hold| (hold, due(self))).collect())
            }
            460..464 => Operation::Throttle(
                self.holds(world)
                    .into_iter()
                    .map(|hold| (hold, self.pick(&[0, 1, 50, 50, 700, 2_000_000])))
                    .collect(),
            ),
            464 => Operation::Close(self.pick(&[1, 300, 2_000_000])),
            465..475 => {
                let holds = self.holds(world);
                Operation::Again(holds.into_iter().map(|hold| (hold, self.due())).collect())
            }
            475..525 => {
                let far = self.chance(20).then_some(3_600_000); // beyond most expiries
                let retry = |hold, random: &mut Self| {
                    let after = random.delay();
                    (hold, far.unwrap_or(after), random.bytes(3))
                };
                let holds = self.holds(world);
                Operation::Retry(holds.into_iter().map(|hold| retry(hold, self)).collect())
            }
            525..550 if self.chance(10) => self.plan_a_release_in_the_past(),
            525..550 => Operation::Release(self.holds(world)),
            550..570 => {
                let holds = self.holds(world);
                Operation::Bury(
                    holds
                        .into_iter()
                        .map(|hold| (hold, self.bytes(2)))
                        .collect(),
                )
            }
            570..600 => {
                let holds = self.holds(world);
                Operation::Extend(holds.into_iter().map(|hold| (hold, self.lease())).collect())
            }
            600..605 => self.plan_crashes(),
            605..690 => Operation::Reap {
                limit: self.limit(),
            },
            690..700 => self.plan_a_repeated_cancel(),
            700..735 => Operation::Cancel {
                dead: self.chance(40),
                since: None,
                ids: self.ids(),
            },
            735..775 => {
                let ids = self.ids();
                Operation::Reschedule(
                    ids.into_iter()
                        .map(|id| self.reschedule(world, id))
                        .collect(),
                )
            }
            775..795 => Operation::RunNow(self.ids()),
            795..810 => Operation::RequeueIds(self.ids()),
            810..825 => {
                let before = self
                    .chance(40)
                    .then(|| self.now.floor() - self.random.u64(0..20_000));
                Operation::RequeueOldest {
                    limit: self.limit(),
                    before,
                }
            }
            825..831 => Operation::Purge {
                state: self.pick(&["scheduled", "ready", "dead"]),
                limit: self.limit(),
            },
            831..834 => Operation::Pause(None),
            834..837 => Operation::Pause(Some(self.pick(&[1, 700, 700, 3_000, CENTURY_MS]))),
            837..850 => Operation::Resume,
            850..940 => Operation::Beat {
                node: self.pick(&NODES).into(),
                presence: match self.random.u32(0..10) {
                    0 => Presence::Leave,
                    1 => Presence::Park(self.pick(&[1_000, 2_500, 4_000, 60_000])),
                    _ => Presence::Stay,
                },
            },
            940..950 => Operation::Configure(self.limits()),
            950..970 => self.peek(world),
            970..992 => Operation::Get(self.id()),
            _ => Operation::Stats,
        }
    }

    pub(super) fn current(world: &World) -> Vec<Hold> {
        let current = |(id, message): (&Text, &crate::model::world::Message)| match &message.place {
            Place::Leased { token, .. } => Some((id.clone(), token.clone())),
            _ => None,
        };
        world.messages.iter().filter_map(current).collect()
    }

    pub(super) fn claim(&mut self) -> Operation {
        let count = self.random.usize(0..if self.plain { 30 } else { 6 });
        Operation::Claim {
            count,
            token: self.token(),
            lease: self.lease().clamp(1, DAY),
        }
    }

    fn push(&mut self) -> Operation {
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
            // The script has a fast path for calls without options.
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

    /// An upsert if most items move messages, else a push. A few items stay of the other kind: the
    /// verb refuses them.
    pub(super) fn push_of(&mut self, attempt: Option<Attempt>, mut items: Vec<Item>) -> Operation {
        let upsert = 2 * items.iter().filter(|item| item.moves()).count() > items.len();
        for item in &mut items {
            let unknown = item.on_conflict == Some("never");
            if item.moves() != upsert && !unknown && !self.chance(5) {
                item.on_conflict = match upsert {
                    true => Some(self.pick(&["reschedule", "replace"])),
                    false => self.pick(&[None, Some("keep")]),
                };
            }
        }
        Operation::Push {
            upsert,
            attempt,
            items,
        }
    }

    /// The attempt of a call that its client first makes `later_us` from now. The client's estimate
    /// of the server's time may be behind, never ahead.
    pub(super) fn attempt(&mut self, later_us: u64) -> Attempt {
        let behind = self.pick(&[0, 0, 1, 500, 20_000]);
        let nonce = format!("{:016x}", self.random.u64(..));
        let until_us = self.now.0 + later_us + 10_000_000 - behind;
        let whole = self.chance(50).then_some(until_us % 1_000); // a client that counts in milliseconds
        Attempt {
            until_us: until_us - whole.unwrap_or(0),
            nonce,
        }
    }

    /// An id that no message had.
    pub(super) fn make(&mut self) -> Text {
        let (made, count) = &mut self.made;
        *count += 1;
        made.truncate(7);
        made.insert(0, format!("made/{count}").into());
        made[0].clone()
    }

    pub(super) fn item(&mut self) -> Item {
        let choices = [
            None,
            None,
            Some("keep"),
            Some("reschedule"),
            Some("reschedule"),
            Some("replace"),
            Some("never"),
        ];
        let expires = self.chance(30).then(|| match self.random.u32(0..12) {
            0 => Due::In(0),
            1..3 => Due::At(self.now.floor() + self.random.u64(0..9_000)),
            3..6 => Due::In(self.random.u64(1..3_000)),
            _ => Due::In(self.random.u64(1..60_000)),
        });
        Item {
            id: if self.chance(2) {
                "x".repeat(self.random.usize(0..203)).into()
            } else {
                self.id()
            },
            due: self.due(),
            payload: self.payload(),
            on_conflict: self.pick(&choices),
            max_attempts: self.chance(30).then(|| self.random.u64(1..4)),
            cost: self.chance(15).then(|| self.random.u64(1..6)),
            on_expire: match &expires {
                Some(_) if self.chance(60) => Some(self.pick(&["drop", "drop", "dead"])),
                None if self.chance(2) => Some("drop"),
                _ => None,
            },
            expires,
            trace_parent: self.chance(20).then(|| {
                format!(
                    "00-{:032x}-{:016x}-01",
                    self.random.u128(1..),
                    self.random.u64(1..)
                )
            }),
        }
    }

    fn due(&mut self) -> Due {
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

    fn delay(&mut self) -> u64 {
        match self.random.u32(0..8) {
            0..3 => self.random.u64(0..100),
            3..5 => self.random.u64(0..4_000),
            5 => self.random.u64(11_998..12_003),
            6 => self.random.u64(4_000..20_000),
            _ => self.pick(&[48 * HOUR, DAY, 30 * DAY]),
        }
    }

    fn reschedule(&mut self, world: &World, id: Text) -> (Text, Due, Option<u64>) {
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
    fn holds(&mut self, world: &World) -> Vec<Hold> {
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

    fn limits(&mut self) -> Vec<(&'static str, Text)> {
        (0..self.random.usize(1..3))
            .map(|_| match self.random.u32(0..11) {
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

    fn peek(&mut self, world: &World) -> Operation {
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

    pub(super) fn limit(&mut self) -> usize {
        self.pick(&[1, 2, 3, 10, 1_000])
    }

    pub(super) fn lease(&mut self) -> u64 {
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

    pub(super) fn token(&mut self) -> Text {
        Text(self.random.u128(..).to_le_bytes().to_vec())
    }

    pub(super) fn ids(&mut self) -> Vec<Text> {
        (0..self.random.usize(1..5)).map(|_| self.id()).collect()
    }

    fn id(&mut self) -> Text {
        let made = self
            .chance(15)
            .then(|| self.random.choice(self.made.0.clone()))
            .flatten();
        made.unwrap_or_else(|| self.pick(&IDS).into())
    }

    fn payload(&mut self) -> Text {
        let length = self.random.usize(0..12);
        Text((0..length).map(|_| self.random.u8(..)).collect())
    }

    /// An error text. Some are longer than the stored maximum.
    fn bytes(&mut self, percent_long: u32) -> Text {
        if self.chance(percent_long) {
            "long\0".repeat(210).into()
        } else {
            self.payload()
        }
    }

    pub(super) fn pick<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.random.usize(0..choices.len())].clone()
    }
}
