//! A model of one schedule that lists its fires one by one.

use std::collections::BTreeSet;

use fastrand::Rng;

use super::schedules::{listed, tick};
use crate::reply::{Text, words};

/// What a schedule says, and what happened to its fires.
#[derive(Debug, Clone, Default)]
pub(super) struct Model {
    /// Period and anchor; of a cron none.
    pub(super) every: Option<(u64, u64)>,
    pub(super) list: Vec<u64>,
    pub(super) is_final: bool,
    pub(super) jitter: u64,
    pub(super) missed: &'static str,
    pub(super) within: Option<u64>,
    pub(super) expires: Option<u64>,
    pub(super) max: usize,
    pub(super) overlap: &'static str,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) limit: u64,
    pub(super) state: &'static str,
    pub(super) next: u64,
    pub(super) last: u64,
    pub(super) since: u64,
    pub(super) counts: [u64; 4],
    pub(super) resumed: u64,
    pub(super) live: BTreeSet<u64>,
    /// Fires since `since`, in their order.
    pub(super) fires: Vec<u64>,
}

impl Model {
    pub(super) fn random(random: &mut Rng, now: u64) -> Self {
        let every = random
            .bool()
            .then(|| (random.u64(10..2_000), random.u64(0..3_000)));
        let mut model = Self {
            every,
            missed: ["one", "skip", "all"][random.usize(0..3)],
            overlap: ["allow", "skip", "replace"][random.usize(0..3)],
            within: (random.u8(0..3) == 0).then(|| random.u64(1..20_000)),
            expires: (random.u8(0..5) == 0).then(|| random.u64(1..5_000)),
            max: if random.bool() {
                1_000
            } else {
                random.usize(1..20)
            },
            limit: if random.u8(0..5) == 0 {
                random.u64(1..20)
            } else {
                u64::MAX
            },
            end: if random.u8(0..5) == 0 {
                now + random.u64(1..100_000)
            } else {
                u64::MAX
            },
            start: if random.u8(0..5) == 0 {
                now + random.u64(0..9_000)
            } else {
                0
            },
            ..Self::default()
        };
        if model.missed != "all" {
            model.max = 1_000;
        }
        if model.end < model.start {
            model.start = 0;
        }
        let most = every.map_or(3_000, |(every, _)| every - 1);
        model.jitter = if random.u8(0..3) == 0 {
            random.u64(0..=most)
        } else {
            0
        };
        if every.is_none() {
            model.list = more(random, now.max(model.start));
            model.is_final = random.u8(0..4) == 0;
        }
        model
    }

    pub(super) fn words(&self) -> Vec<Text> {
        let mut spec = format!("missed={} overlap={}", self.missed, self.overlap);
        let mut add = |name: &str, value: u64, none: u64| {
            if value != none {
                spec.push_str(&format!(" {name}={value}"));
            }
        };
        add("within", self.within.unwrap_or(0), 0);
        add("max", self.max as u64, 1_000);
        add("jitter", self.jitter, 0);
        add("start", self.start, 0);
        add("end", self.end, u64::MAX);
        add("limit", self.limit, u64::MAX);
        let options = self
            .expires
            .map(|ms| format!("expires=+{ms}"))
            .unwrap_or_default();
        match self.every {
            Some((every, anchor)) => {
                words![
                    "s",
                    format!("every={every} anchor={anchor} {spec}"),
                    "",
                    options,
                    "",
                    "p"
                ]
            }
            None => {
                let fires = listed("2026a", u8::from(self.is_final), &self.list);
                words![
                    "s",
                    format!("zone=UTC {spec}"),
                    "pattern",
                    options,
                    fires,
                    "p"
                ]
            }
        }
    }

    /// The first fire that is after this time, if one is known.
    pub(super) fn after(&self, time: u64) -> Option<u64> {
        match self.every {
            Some((every, anchor)) => Some(anchor + ((time - anchor) / every + 1) * every),
            None => self.list.iter().copied().find(|fire| *fire > time),
        }
    }

    pub(super) fn begin(&mut self, after: u64) {
        let before = after.max(self.start.saturating_sub(1));
        self.list.retain(|fire| *fire > before);
        self.last = after;
        self.settle(self.after(before));
        self.since = self.next;
    }

    pub(super) fn settle(&mut self, next: Option<u64>) {
        if self.state == "paused" {
            return;
        }
        let is_over = next.is_some_and(|next| next > self.end) || next.is_none() && self.is_final;
        self.state = if self.counts[0] >= self.limit || is_over {
            "ended"
        } else if next.is_some() {
            "active"
        } else {
            "dry"
        };
        self.next = next.filter(|_| self.state == "active").unwrap_or(0);
    }

    pub(super) fn due(&self, nominal: u64) -> u64 {
        if self.jitter == 0 {
            return nominal;
        }
        let hash = redis::Script::new(&tick(nominal)).get_hash().to_owned();
        nominal + u64::from_str_radix(&hash[..8], 16).unwrap_or(0) % self.jitter
    }

    /// The tick that a claim makes now, if it makes one. `lives` and `exists` are asked for ids.
    pub(super) fn fire(
        &mut self,
        now: u64,
        lives: bool,
        exists: impl Fn(u64) -> bool,
    ) -> Option<u64> {
        if self.state != "active" || self.due(self.next) > now {
            return None;
        }
        let (mut due, mut next) = (Vec::new(), Some(self.next));
        while let Some(fire) = next.filter(|fire| *fire <= self.end && self.due(*fire) <= now) {
            due.push(fire);
            next = self.after(fire);
        }
        let within = match (self.within, self.missed) {
            (Some(within), _) => within,
            (None, "skip") => 10_000,
            (None, "all") => 86_400_000,
            _ => u64::MAX,
        };
        let within = within.min(self.expires.unwrap_or(u64::MAX));
        let is_late = |fire: u64| now - self.due(fire) > within;
        let mut at = due.len() - 1;
        if self.missed == "all" {
            at = 0;
            while at < due.len() - 1 && (due.len() - at > self.max || is_late(due[at])) {
                at += 1;
            }
        }
        let mut made = Some(due[at]).filter(|fire| !is_late(*fire));
        self.counts[1] += at as u64 + u64::from(made.is_none());
        if made.is_some_and(|fire| lives && self.overlap == "skip" || exists(fire)) {
            self.counts[2] += 1;
            made = None;
        }
        self.counts[0] += u64::from(made.is_some());
        self.fires.extend(&due[..=at]);
        self.last = due[at];
        self.list.retain(|fire| *fire > due[at]);
        self.settle(self.after(self.last));
        made
    }

    pub(super) fn resume(&mut self, now: u64) {
        if self.state != "paused" {
            return;
        }
        self.state = "active";
        self.resumed = now;
        self.skip_paused();
    }

    /// Adds fires to the list; those of newer rules replace it.
    pub(super) fn refill(&mut self, fires: &[u64], is_newer: bool) {
        if is_newer {
            self.list.clear();
        }
        self.list.extend(fires);
        self.list.retain(|fire| *fire >= self.start);
        let first = self.list.first().filter(|fire| **fire <= self.end);
        let first = first.copied().unwrap_or(0);
        if self.counts == [0; 4] {
            self.since = first;
        }
        if self.state == "paused" {
            self.next = first;
        } else {
            self.skip_paused();
        }
    }

    /// Fires until the last resume count as paused.
    pub(super) fn skip_paused(&mut self) {
        let now = self.resumed;
        let first = if self.every.is_some() {
            Some(self.next)
        } else {
            self.list.first().copied()
        };
        let (mut next, mut over) = (first, Vec::new());
        while let Some(fire) = next.filter(|fire| *fire <= now && *fire <= self.end) {
            over.push(fire);
            next = self.after(fire);
        }
        self.counts[3] += over.len() as u64;
        self.list.retain(|fire| *fire > now.min(self.end));
        self.last = over.last().copied().unwrap_or(self.last);
        self.fires.extend(over);
        self.settle(next);
    }
}

/// Some fires after this time.
pub(super) fn more(random: &mut Rng, mut after: u64) -> Vec<u64> {
    let next = |_| {
        after += random.u64(1..4_000);
        after
    };
    (0..20).map(next).collect()
}
