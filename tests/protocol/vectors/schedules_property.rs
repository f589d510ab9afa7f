//! Random applies, claims, pauses and jumps of the clock, against a small model of one schedule that
//! lists its fires one by one.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use fastrand::Rng;

use super::schedules::{apply, claim, listed, show, tick};
use crate::queue::{Queue, T0};
use crate::reply::{Text, words};

/// What a schedule says, and what happened to its fires.
#[derive(Debug, Clone, Default)]
struct Model {
    /// Period and anchor; of a cron none.
    every: Option<(u64, u64)>,
    list: Vec<u64>,
    is_final: bool,
    jitter: u64,
    missed: &'static str,
    within: Option<u64>,
    expires: Option<u64>,
    max: usize,
    overlap: &'static str,
    start: u64,
    end: u64,
    limit: u64,
    state: &'static str,
    next: u64,
    last: u64,
    since: u64,
    counts: [u64; 4],
    resumed: u64,
    live: BTreeSet<u64>,
    /// Fires since `since`, in their order.
    fires: Vec<u64>,
}

impl Model {
    fn random(random: &mut Rng, now: u64) -> Self {
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

    fn words(&self) -> Vec<Text> {
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
    fn after(&self, time: u64) -> Option<u64> {
        match self.every {
            Some((every, anchor)) => Some(anchor + ((time - anchor) / every + 1) * every),
            None => self.list.iter().copied().find(|fire| *fire > time),
        }
    }

    fn begin(&mut self, after: u64) {
        let before = after.max(self.start.saturating_sub(1));
        self.list.retain(|fire| *fire > before);
        self.last = after;
        self.settle(self.after(before));
        self.since = self.next;
    }

    fn settle(&mut self, next: Option<u64>) {
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

    fn due(&self, nominal: u64) -> u64 {
        if self.jitter == 0 {
            return nominal;
        }
        let hash = redis::Script::new(&tick(nominal)).get_hash().to_owned();
        nominal + u64::from_str_radix(&hash[..8], 16).unwrap_or(0) % self.jitter
    }

    /// The tick that a claim makes now, if it makes one. `lives` and `exists` are asked for ids.
    fn fire(&mut self, now: u64, lives: bool, exists: impl Fn(u64) -> bool) -> Option<u64> {
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

    fn resume(&mut self, now: u64) {
        if self.state != "paused" {
            return;
        }
        self.state = "active";
        self.resumed = now;
        self.skip_paused();
    }

    /// Fires until the last resume count as paused.
    fn skip_paused(&mut self) {
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
        self.list.retain(|fire| *fire > now);
        self.last = over.last().copied().unwrap_or(self.last);
        self.fires.extend(over);
        self.settle(next);
    }
}

/// Some fires after this time.
fn more(random: &mut Rng, mut after: u64) -> Vec<u64> {
    let next = |_| {
        after += random.u64(1..4_000);
        after
    };
    (0..20).map(next).collect()
}

fn state_of(queue: &mut Queue, id: &str) -> Result<String> {
    let reply = queue.ok("get", T0, words![id])?;
    let pairs = reply.part(1)?.list()?;
    pairs.get(1).map_or(Ok(String::new()), |state| state.text())
}

fn run(queue: &mut Queue, seed: u64) -> Result<u64> {
    let mut random = Rng::with_seed(seed);
    queue.empty()?;
    let (mut now, mut all) = (T0, BTreeSet::new());
    let mut model = Model::random(&mut random, now);
    let (word, _, _) = apply(queue, now, ["some", "", ""], &[model.words()])?;
    ensure!(word == "OK");
    model.begin(now);
    let mut held: Vec<(String, Text)> = Vec::new();
    for step in 0..40 {
        now = match random.u8(0..20) {
            0 => now.saturating_sub(random.u64(1..5_000)).max(T0 - 20_000),
            1..4 => now + random.u64(0..40_000),
            _ => now + random.u64(0..2_500),
        };
        let action = random.u8(0..20);
        let what = format!("seed {seed}, step {step}, action {action}, {now}");
        match action {
            0..9 => {
                let mut waiting = Vec::new();
                let mut lives = false;
                for nominal in model.live.clone() {
                    let state = state_of(queue, &tick(nominal))?;
                    if ["", "dead"].contains(&&*state) {
                        continue;
                    }
                    lives = true;
                    if state != "leased" {
                        waiting.push(tick(nominal));
                    }
                }
                let messages = queue.state()?.messages;
                let made = model.fire(now, lives, |nominal| {
                    messages.contains_key(&tick(nominal).into())
                });
                let (ids, token) = claim(queue, now, 1_000)?;
                if let Some(nominal) = made {
                    ensure!(
                        ids.contains(&tick(nominal)),
                        "{what}: {nominal} not in {ids:?}"
                    );
                    ensure!(all.insert(nominal), "{what}: {nominal} again");
                    ensure!(now >= model.due(nominal), "{what}: {nominal} is early");
                    if model.overlap == "replace" {
                        for id in waiting.iter().filter(|id| !ids.contains(id)) {
                            let state = state_of(queue, id)?;
                            ensure!(
                                state.is_empty() || state == "dead",
                                "{what}: {id} is {state}"
                            );
                        }
                    }
                    if model.overlap != "allow" {
                        model.live.insert(nominal);
                    }
                }
                for id in &ids {
                    let is_known = messages.contains_key(&id.into());
                    ensure!(
                        is_known || made.is_some_and(|at| tick(at) == *id),
                        "{what}: {id} is not {made:?} of {model:?}"
                    );
                }
                held.extend(ids.into_iter().map(|id| (id, token.clone())));
            }
            9..13 if !held.is_empty() => {
                let (id, token) = held.swap_remove(random.usize(0..held.len()));
                match random.u8(0..4) {
                    0 => queue.ok("retry", now, words![id, token, 1_000, "why"])?,
                    1 => queue.ok("bury", now, words![id, token, "why"])?,
                    _ => queue.ok("ack", now, words![token, 1, id])?,
                };
            }
            13 => drop(queue.ok("promote", now, words![1_000])?),
            14 => {
                queue.ok("amend", now, words!["pause", "s"])?;
                if ["active", "dry"].contains(&model.state) {
                    model.state = "paused";
                }
            }
            15 => {
                queue.ok("amend", now, words!["resume", "s"])?;
                model.resume(now);
            }
            16 => {
                let old = model.clone();
                let mut new = Model::random(&mut random, now.max(old.last));
                if old.state != "ended" {
                    new.every = new
                        .every
                        .map(|(every, _)| (every, 3_000 + u64::from(action)));
                }
                let (word, replies, _) = apply(queue, now, ["some", "", ""], &[new.words()])?;
                ensure!(
                    word == "OK" && replies[0].starts_with("CHANGED"),
                    "{what}: {replies:?}"
                );
                new.begin(now.max(old.last));
                if old.state == "paused" && new.state != "ended" {
                    new.state = "paused";
                }
                new.live = old.live;
                model = new;
            }
            17 => {
                let before = show(queue, "s")?;
                apply(queue, now, ["some", "", ""], &[model.words()])?;
                if model.every.is_some() {
                    ensure!(show(queue, "s")? == before, "{what}: not kept");
                }
            }
            18 => {
                let state = ["ready", "scheduled", "dead"][random.usize(0..3)];
                queue.ok("purge", now, words![state, 1_000])?;
            }
            _ if model.every.is_none() => {
                let shown = show(queue, "s")?;
                let fires = more(
                    &mut random,
                    shown.last_listed.max(now.saturating_sub(9_000)),
                );
                let text = listed(&shown.zone_version, u8::from(model.is_final), &fires);
                let words = words!["s", shown.version, shown.last_listed, text];
                let replies = queue.items("refill", now, words)?;
                ensure!(replies[0].starts_with("OK"), "{what}: {replies:?}");
                model.list.extend(fires);
                model.list.retain(|fire| *fire >= model.start);
                if model.state != "paused" {
                    model.skip_paused();
                }
            }
            _ => {}
        }
        let shown = show(queue, "s")?;
        let found = (&*shown.state, shown.counts, shown.since);
        ensure!(
            found == (model.state, model.counts, model.since),
            "{what}: {shown:?} is not {model:?}"
        );
        ensure!(
            model.state == "paused" || shown.next == model.next,
            "{what}: {shown:?}, {model:?}"
        );
        let sum: u64 = model.counts.iter().sum();
        ensure!(
            sum == model.fires.len() as u64,
            "{what}: {sum} of {:?}",
            model.fires
        );
        let in_range = |fire: &&u64| **fire >= shown.since && **fire <= shown.last;
        ensure!(
            model.fires.iter().filter(in_range).count() as u64 == sum,
            "{what}: {shown:?}"
        );
        ensure!(
            model.fires.is_sorted_by(|one, other| one < other),
            "{what}: a fire twice"
        );
    }
    Ok(all.len() as u64)
}

#[test]
fn schedules_match_a_model_that_lists_each_fire() -> Result<()> {
    let mut queue = Queue::start()?;
    let mut made = 0;
    for seed in 0..250 {
        made += run(&mut queue, seed).with_context(|| format!("seed {seed}"))?;
    }
    ensure!(made > 1_000, "only {made} ticks were made");
    Ok(())
}
