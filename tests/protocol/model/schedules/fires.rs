//! The fires of a schedule in the model, listed one by one, and what becomes of each.

use crate::model::schedules::schedule::Schedule;

/// How many fires before a time are listed one by one. No policy chooses an earlier fire.
const LISTED: u64 = 3_000;

/// What a claim does with a due timer.
#[derive(Debug, Default)]
pub(crate) struct Fired {
    pub(crate) tick: Option<u64>,
    /// Ticks that the new one replaces, if they wait.
    pub(crate) replaced: Vec<u64>,
    /// The events of the fire, for the coverage.
    pub(crate) events: Vec<String>,
}

impl Schedule {
    /// The first fire that is after this time, if one is known.
    fn after(&self, time: u64) -> Option<u64> {
        match self.every {
            Some((every, anchor)) => {
                let passed = (time as i128 - anchor as i128).div_euclid(every as i128);
                Some((anchor as i128 + (passed + 1) * every as i128) as u64)
            }
            None => self.list.iter().copied().find(|fire| *fire > time),
        }
    }

    /// How many fires there are from `since` to this time.
    fn fires_until(&self, time: u64) -> u64 {
        let range = self.since..=time;
        match self.every {
            _ if self.since == 0 || range.is_empty() => 0,
            Some((every, _)) => (time - self.since) / every + 1,
            None => self
                .known
                .iter()
                .filter(|fire| range.contains(fire))
                .count() as u64,
        }
    }

    /// Checks that each fire from `since` to `last` is counted once.
    pub(crate) fn is_conserved(&self) -> bool {
        self.counts.iter().sum::<u64>() == self.fires_until(self.last)
    }

    /// Starts the counts anew with the first fire after this time.
    pub(crate) fn begin(&mut self, after: u64) {
        let before = after.max(self.start.unwrap_or(0).saturating_sub(1));
        self.last_listed = self.list.last().copied().unwrap_or(0);
        self.list.retain(|fire| *fire > before);
        self.known = self.list.clone();
        (self.last, self.state) = (after, "active");
        self.settle(self.after(before));
        self.since = self.next;
    }

    /// Sets the state, and the next fire if the schedule continues.
    fn settle(&mut self, next: Option<u64>) {
        if self.state == "paused" {
            return;
        }
        let is_over = match next {
            Some(next) => self.end.is_some_and(|end| next > end),
            None => self.is_final,
        };
        self.state = if self.limit.is_some_and(|limit| self.counts[0] >= limit) || is_over {
            "ended"
        } else if next.is_some() {
            "active"
        } else {
            "dry"
        };
        self.next = next.filter(|_| self.state == "active").unwrap_or(0);
    }

    pub(crate) fn pause(&mut self) {
        if ["active", "dry"].contains(&self.state) {
            self.state = "paused";
        }
    }

    /// When the tick of this fire is due.
    pub(crate) fn due(&self, nominal: u64) -> u64 {
        if self.jitter == 0 {
            return nominal;
        }
        let hash = redis::Script::new(&self.tick(nominal))
            .get_hash()
            .to_owned();
        nominal + u64::from_str_radix(&hash[..8], 16).unwrap_or(0) % self.jitter
    }

    /// The id of the tick of this fire.
    pub(crate) fn tick(&self, nominal: u64) -> String {
        format!("{}@{nominal}", self.name)
    }

    /// The fires from `first` to this time that are listed, and how many earlier ones are not.
    fn listed_until(
        &self,
        first: Option<u64>,
        is_over: impl Fn(u64) -> bool,
        now: u64,
    ) -> (u64, Vec<u64>) {
        let (mut next, mut skipped, mut fires) = (first, 0, Vec::new());
        let end = self.end.unwrap_or(u64::MAX);
        if let (Some(first), Some((every, _))) = (first, self.every) {
            skipped = (now.min(end).saturating_sub(first) / every).saturating_sub(LISTED);
            next = Some(first + skipped * every);
        }
        while let Some(fire) = next.filter(|fire| *fire <= end && is_over(*fire)) {
            fires.push(fire);
            next = self.after(fire);
        }
        (skipped, fires)
    }

    /// What a claim does with the schedule's timer. `is_live` says for a nominal time whether its
    /// tick waits or is leased, `exists` whether a message has its id.
    pub(crate) fn fire(
        &mut self,
        now: u64,
        is_live: impl Fn(u64) -> bool,
        exists: impl Fn(u64) -> bool,
    ) -> Fired {
        let mut fired = Fired::default();
        if self.state != "active" || self.due(self.next) > now {
            fired.events.push("a timer was early".into());
            return fired;
        }
        let (skipped, due) = self.listed_until(Some(self.next), |fire| self.due(fire) <= now, now);
        let within = match (self.within, self.missed) {
            (Some(within), _) => within,
            (None, "skip") => 10_000,
            (None, "all") => 86_400_000,
            _ => u64::MAX,
        };
        let within = within.min(self.expires.unwrap_or(u64::MAX));
        let is_late = |fire: u64| now - self.due(fire) > within;
        let (mut at, max) = (due.len() - 1, self.max.unwrap_or(1_000));
        if self.missed == "all" {
            at = 0;
            while at < due.len() - 1 && (due.len() - at > max || is_late(due[at])) {
                let why = if is_late(due[at]) {
                    "too late"
                } else {
                    "beyond max"
                };
                fired.events.push(format!("all: missed, {why}"));
                at += 1;
            }
        }
        let missed = if self.missed.is_empty() {
            "one"
        } else {
            self.missed
        };
        let mut made = Some(due[at]).filter(|fire| !is_late(*fire));
        self.counts[1] += skipped + at as u64 + u64::from(made.is_none());
        if at > 0 || made.is_none() {
            fired.events.push(format!("missed={missed} misses fires"));
        }
        if made.is_some() && self.obeys_overlap() {
            self.live.retain(|live| is_live(*live));
        }
        let is_held = self.overlap == "skip" && !self.live.is_empty();
        if made.is_some_and(|fire| is_held || exists(fire)) {
            let why = if is_held {
                "a tick lives"
            } else {
                "its id is in use"
            };
            fired.events.push(format!("overlapped: {why}"));
            self.counts[2] += 1;
            made = None;
        }
        if let Some(fire) = made {
            self.counts[0] += 1;
            let of = if self.every.is_some() {
                "every"
            } else {
                "a cron"
            };
            fired
                .events
                .push(format!("{of} with missed={missed} makes a tick"));
            if self.overlap == "replace" {
                fired.replaced = self.live.clone();
            }
            if self.obeys_overlap() {
                self.live.push(fire);
            }
        }
        self.last = due[at];
        self.list.retain(|fire| *fire > due[at]);
        self.settle(self.after(self.last));
        if self.state != "active" {
            fired.events.push(format!("a fire ends in {}", self.state));
        }
        fired.tick = made;
        fired
    }

    pub(crate) fn resume(&mut self, now: u64) -> u64 {
        if self.state != "paused" {
            return 0;
        }
        (self.state, self.resumed) = ("active", now);
        self.skip_paused()
    }

    /// Counts the fires until the last resume as paused. Returns their number.
    fn skip_paused(&mut self) -> u64 {
        let now = self.resumed;
        let first = match self.every {
            Some(_) => Some(self.next),
            None => self.list.first().copied(),
        };
        let (skipped, over) = self.listed_until(first, |fire| fire <= now, now);
        let count = skipped + over.len() as u64;
        self.counts[3] += count;
        let next = match over.last() {
            Some(last) => self.after(*last),
            None => first,
        };
        self.last = over.last().copied().unwrap_or(self.last);
        self.list
            .retain(|fire| over.last().is_none_or(|last| fire > last));
        self.settle(next);
        count
    }

    /// Adds fires to the list; fires of newer rules replace it. Returns the new length of the list.
    pub(crate) fn refill(&mut self, rules: &str, is_final: bool, fires: &[u64]) -> usize {
        let is_newer = *rules > *self.rules;
        if is_newer {
            self.list.clear();
            self.known.retain(|fire| *fire <= self.last);
        }
        let last_listed = if is_newer {
            self.last
        } else {
            self.last_listed
        };
        self.last_listed = fires.last().copied().unwrap_or(last_listed);
        (self.rules, self.is_final) = (rules.to_owned(), is_final);
        let start = self.start.unwrap_or(0);
        let added = fires.iter().copied().filter(|fire| *fire >= start);
        self.list.extend(added.clone());
        self.known.extend(added);
        let end = self.end.unwrap_or(u64::MAX);
        let first = self.list.first().filter(|fire| **fire <= end);
        let first = first.copied().unwrap_or(0);
        if self.counts == [0; 4] {
            self.since = first;
        }
        if self.state == "paused" {
            self.next = first;
        } else {
            self.skip_paused();
        }
        self.list.len()
    }
}
