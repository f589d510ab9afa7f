//! A seeded random client. It chooses times and operations, and repeats some calls as if their
//! replies were lost.

use fastrand::Rng;

use crate::model::client::operation::{Hold, Operation};
use crate::model::message::Message;
use crate::model::world::{Now, World};
use crate::queue::{DAY, T0};
use crate::reply::Text;

pub(crate) const NODES: [&str; 3] = ["north", "south", "west"];

/// How many past calls the client remembers and may repeat.
const KEPT: usize = 40;

pub(crate) struct Driver {
    pub(crate) random: Rng,
    pub(crate) now: Now,
    /// Ids with the tokens of their claims, current and stale.
    pub(crate) holds: Vec<Hold>,
    pub(crate) kept: Vec<(usize, Operation)>,
    /// The last ids that the client made, and how many it has made so far.
    pub(crate) made: (Vec<Text>, usize),
    /// The planned operations, about a second apart; the last element is made first. A repetition
    /// has the number of the call that it repeats.
    pub(crate) planned: Vec<(Option<usize>, Operation)>,
    /// When this number of planned operations remains, the clock goes back by this number of
    /// microseconds.
    pub(crate) set_back: Option<(usize, u64)>,
    /// Whether the clock went back, so that the remaining planned operations follow at once.
    pub(crate) at_once: bool,
    /// Whether no call may store anything in attrs.
    pub(crate) plain: bool,
    pub(crate) calls: usize,
    /// Whether the queue of the run may have a map.
    pub(crate) has_map: bool,
    /// Whether the users have the rights of release 0.1 only.
    pub(crate) has_old_rights: bool,
    pub(crate) may_have_layout_3: bool,
    /// How many of a hundred calls are about schedules.
    pub(crate) of_schedules: u32,
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
            has_old_rights: false,
            may_have_layout_3: false,
            of_schedules: 0,
        }
    }

    pub(crate) fn chance(&mut self, percent: u32) -> bool {
        self.random.u32(0..100) < percent
    }

    /// The next operation and its number. A repetition has the number of the call that it repeats.
    pub(crate) fn next(&mut self, world: &World) -> (usize, Operation) {
        self.calls += 1;
        if let Some((number, planned)) = self.planned.pop() {
            return (number.unwrap_or(self.calls), self.simplified(planned));
        }
        if let Some(check) = self.check() {
            return (self.calls, check);
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
        let is_tick = |id: &&Text| id.0.contains(&b'@');
        let mut ticks = self.holds.iter().map(|(id, _)| id).filter(is_tick);
        if let Some(tick) = ticks.next_back() {
            // Remembered so that other verbs also get ids of ticks.
            self.made.0.insert(0, tick.clone());
        }
    }

    pub(crate) fn pick<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.random.usize(0..choices.len())].clone()
    }
}

impl Driver {
    /// Moves the clock: mostly a little, often exactly to a due time or deadline or close to it,
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

    pub(crate) fn moment(&mut self, world: &World, within_us: u64) -> Option<u64> {
        let mut moments: Vec<u64> = world
            .messages
            .values()
            .map(|message| message.place.time())
            .collect();
        moments.extend(world.closed_until);
        let expiry =
            |message: &Message| message.expiry(message.original.unwrap_or(message.place.time()));
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
}
