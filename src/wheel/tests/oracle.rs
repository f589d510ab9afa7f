//! Random operations on a wheel and a sorted map, compared after each operation.

use std::collections::BTreeMap;

use super::super::{Expired, Key, Wheel};
use super::model::Model;
use super::model::Random;

/// The wheel and its model, with the checks that hold after every operation.
struct Pair {
    wheel: Wheel<u64>,
    model: Model,
    random: Random,
    /// All keys that were returned, live and stale.
    keys: Vec<Key>,
    /// The value of the timer of each key. Values are numbers.
    values: BTreeMap<Key, u64>,
    inserted: u64,
    /// Deadlines are at most 2^`bits` ticks ahead.
    bits: u64,
}

impl Pair {
    fn new(seed: u64, bits: u64) -> Self {
        Self {
            wheel: Wheel::new(),
            model: Model::default(),
            random: Random::new(seed),
            keys: Vec::new(),
            values: BTreeMap::new(),
            inserted: 0,
            bits,
        }
    }

    /// A random deadline: mostly in the future, sometimes past, now, the largest time, or equal to
    /// that of another timer.
    fn deadline(&mut self) -> u64 {
        let now = self.model.now;
        match self.random.below(20) {
            0 => now,
            1 => now.saturating_sub(self.random.ticks(self.bits)),
            2 => u64::MAX - self.random.below(3),
            3 => self.random.any(),
            4..8 => {
                // A time at or next to a boundary between levels.
                let shift = 6 * self.random.below(self.bits / 6 + 1);
                let boundary = ((now >> shift).saturating_add(1))
                    .checked_shl(shift as u32)
                    .unwrap_or(u64::MAX);
                boundary
                    .saturating_add(self.random.below(3))
                    .saturating_sub(1)
            }
            8..11 => self
                .any_key()
                .and_then(|key| self.model.timers.get(&key).copied())
                .unwrap_or(now),
            _ => now.saturating_add(self.random.ticks(self.bits)),
        }
    }

    fn any_key(&mut self) -> Option<Key> {
        let count = self.keys.len() as u64;
        (count > 0).then(|| self.keys[self.random.below(count) as usize])
    }

    fn insert(&mut self) {
        let when = self.deadline();
        let key = self.wheel.insert(when, self.inserted).expect("no limit");
        assert!(
            self.values.insert(key, self.inserted).is_none(),
            "a key is never reused"
        );
        self.inserted += 1;
        self.model.set(key, when);
        self.keys.push(key);
    }

    fn remove(&mut self) {
        let Some(key) = self.any_key() else { return };
        let expected = self.model.remove(key).map(|_| self.values[&key]);
        assert_eq!(self.wheel.remove(key), expected);
    }

    fn reset(&mut self) {
        let Some(key) = self.any_key() else { return };
        let when = self.deadline();
        let live = self.model.timers.contains_key(&key);
        assert_eq!(self.wheel.reset(key, when), live);
        if live {
            self.model.set(key, when);
        }
    }

    fn look_up(&mut self) {
        let Some(key) = self.any_key() else { return };
        let expected = self.model.timers.get(&key);
        assert_eq!(self.wheel.deadline(key), expected.copied());
        assert_eq!(self.wheel.get(key), expected.map(|_| &self.values[&key]));
        assert_eq!(self.wheel.get_mut(key).is_some(), expected.is_some());
    }

    /// A random time to advance to: in the future, at or next to the earliest deadline, or in the
    /// past.
    fn time(&mut self) -> u64 {
        let earliest = self.model.earliest().unwrap_or(u64::MAX);
        let now = match self.random.below(12) {
            0 => self.model.now.saturating_sub(self.random.ticks(self.bits)),
            1..4 => self
                .model
                .now
                .saturating_add(self.random.ticks(self.bits.saturating_sub(3).max(1))),
            4 => earliest.saturating_sub(1),
            5 => earliest,
            6 => self.wheel.next_expiration().unwrap_or(0),
            7 => earliest.saturating_add(self.random.below(130)),
            _ => self.model.now.saturating_add(self.random.below(70)),
        };
        // The largest time is reached only now and then.
        if now > u64::MAX / 2 && self.random.below(200) > 0 {
            self.model.now
        } else {
            now
        }
    }

    /// Checks that the fired timer is due and has the earliest deadline.
    fn fired(&mut self, expired: Expired<u64>) {
        let Expired {
            key,
            deadline,
            value,
        } = expired;
        assert_eq!(
            self.model.earliest(),
            Some(deadline),
            "in the order of deadlines"
        );
        assert!(
            deadline <= self.model.now,
            "{deadline} fired at {}",
            self.model.now
        );
        assert_eq!(self.model.remove(key), Some(deadline));
        assert_eq!(self.values[&key], value);
    }

    fn pop(&mut self) {
        let now = self.time();
        self.model.now = self.model.now.max(now);
        match self.wheel.pop_expired(now) {
            Some(expired) => self.fired(expired),
            None => assert!(!self.model.is_due()),
        }
    }

    fn advance(&mut self) {
        let now = self.time();
        self.model.now = self.model.now.max(now);
        let take = if self.random.below(2) == 0 {
            usize::MAX
        } else {
            self.random.below(10) as usize
        };
        let fired: Vec<_> = self.wheel.advance(now).take(take).collect();
        let stopped = fired.len() == take;
        fired.into_iter().for_each(|expired| self.fired(expired));
        assert!(stopped || !self.model.is_due(), "every due timer has fired");
    }

    fn advance_limited(&mut self) {
        let now = self.time();
        self.model.now = self.model.now.max(now);
        let work = self.random.below(50) as usize;
        let mut due = self.wheel.advance_limited(now, work);
        let fired: Vec<_> = due.by_ref().collect();
        let left = due.work_left();
        assert!(fired.len() + left <= work);
        fired.into_iter().for_each(|expired| self.fired(expired));
        assert!(
            left == 0 || !self.model.is_due(),
            "work is left only if nothing is due"
        );
    }

    fn empty(&mut self) {
        let mut expected: Vec<_> = self
            .model
            .timers
            .iter()
            .map(|(key, &when)| (when, self.values[key]))
            .collect();
        if self.random.below(2) == 0 {
            self.wheel.clear();
        } else {
            let mut drained: Vec<_> = self.wheel.drain().collect();
            drained.sort_unstable();
            expected.sort_unstable();
            assert_eq!(drained, expected);
        }
        self.model.clear();
    }

    fn step(&mut self, growth: u64) {
        match self.random.below(100) {
            operation if operation < 25 + growth => self.insert(),
            25..45 => self.remove(),
            45..70 => self.reset(),
            70..75 => self.look_up(),
            75..84 => self.pop(),
            84..91 => self.advance(),
            91..98 => self.advance_limited(),
            _ if self.random.below(100) == 0 => self.empty(),
            _ => {}
        }
    }

    fn check(&self) {
        let earliest = self.model.earliest();
        assert_eq!(self.wheel.len(), self.model.timers.len());
        assert_eq!(self.wheel.now(), self.model.now);
        assert_eq!(self.wheel.next_expiration_exact(), earliest);
        let bound = self.wheel.next_expiration();
        assert_eq!(bound.is_some(), earliest.is_some());
        assert!(bound <= earliest, "a lower bound");
        assert!(
            !self.model.is_due() || bound <= Some(self.model.now),
            "a due timer is not missed"
        );
    }

    /// Sleeps until the next expiration and advances, until the wheel is empty.
    fn sleep_until_empty(&mut self) {
        let mut sleeps = 0;
        let most = 1 + 11 * self.wheel.len();
        while let Some(wake_at) = self.wheel.next_expiration() {
            sleeps += 1;
            assert!(sleeps <= most, "a timer causes 11 wake-ups at most");
            self.model.now = self.model.now.max(wake_at);
            let fired: Vec<_> = self.wheel.advance(wake_at).collect();
            fired.into_iter().for_each(|expired| self.fired(expired));
            let next = self.wheel.next_expiration();
            assert!(
                next.is_none_or(|next| next > self.model.now),
                "{next:?} at {}: it would spin",
                self.model.now
            );
        }
        assert!(self.model.timers.is_empty());
    }
}

fn exercise(seeds: u64, operations: usize, growth: u64, bits: u64) {
    for seed in 0..seeds {
        let mut pair = Pair::new(seed * 1_000 + bits, bits);
        for _ in 0..operations {
            pair.step(growth);
            pair.check();
        }
        pair.sleep_until_empty();
    }
}

#[test]
fn few_timers_over_all_of_time_match_the_model() {
    exercise(40, 3_000, 0, 63);
}

#[test]
fn few_timers_within_days_match_the_model() {
    exercise(60, 3_000, 0, 30);
}

#[test]
fn few_timers_within_two_levels_match_the_model() {
    exercise(60, 3_000, 2, 9);
}

#[test]
fn many_timers_within_two_levels_match_the_model() {
    exercise(4, 12_000, 20, 9);
}

#[test]
fn many_timers_within_a_minute_match_the_model() {
    exercise(4, 12_000, 20, 16);
}
