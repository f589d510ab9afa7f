//! A schedule in the model: its rule and policies, and the counts of its fires.

use fastrand::Rng;

use crate::reply::{Text, words};

/// The due time of a timer without a next fire: 2200-01-01.
pub(crate) const NEVER_MS: u64 = 7_258_118_400_000;

/// Whether this id in `messages` is the timer of a schedule.
pub(crate) fn is_timer(id: &Text) -> bool {
    id.0.first() == Some(&4)
}

/// A schedule: its rule and policies, and the counts of its fires.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Schedule {
    pub(crate) name: String,
    pub(crate) set: String,
    /// The period and the anchor; `None` for a cron.
    pub(crate) every: Option<(u64, u64)>,
    pub(crate) zone: String,
    pub(crate) pattern: String,
    /// The listed next fires of a cron.
    pub(crate) list: Vec<u64>,
    /// The version of the time zone rules that made the list.
    pub(crate) rules: String,
    pub(crate) last_listed: u64,
    pub(crate) is_final: bool,
    /// Every fire of a cron that was listed since the last change.
    pub(crate) known: Vec<u64>,
    pub(crate) jitter: u64,
    /// The policy for missed fires; empty if not given.
    pub(crate) missed: &'static str,
    pub(crate) within: Option<u64>,
    pub(crate) max: Option<usize>,
    /// The policy for overlaps; empty if not given.
    pub(crate) overlap: &'static str,
    pub(crate) start: Option<u64>,
    pub(crate) end: Option<u64>,
    pub(crate) limit: Option<u64>,
    pub(crate) max_attempts: Option<u64>,
    pub(crate) expires: Option<u64>,
    pub(crate) on_expire: Option<&'static str>,
    pub(crate) payload: Text,
    pub(crate) state: &'static str,
    pub(crate) next: u64,
    pub(crate) last: u64,
    pub(crate) since: u64,
    /// The counts of fires: made, missed, overlapped, paused.
    pub(crate) counts: [u64; 4],
    pub(crate) triggered: u64,
    pub(crate) resumed: u64,
    pub(crate) version: u64,
    /// Nominal times of ticks that may wait or be leased, if the overlap policy needs them.
    pub(crate) live: Vec<u64>,
}

impl Schedule {
    /// A schedule of the name `s` in the set `some`.
    pub(crate) fn random(random: &mut Rng, now: u64) -> Self {
        let every = random
            .bool()
            .then(|| (random.u64(10..2_000), random.u64(0..3_000)));
        let mut one_in = |of: u8| random.u8(0..of) == 0;
        let asked: Vec<bool> = [3, 5, 2, 5, 5, 5, 3, 4].map(&mut one_in).to_vec();
        let mut given = asked.into_iter();
        let mut given = || given.next().unwrap_or(false);
        let mut schedule = Self {
            name: "s".into(),
            set: "some".into(),
            every,
            rules: "2026a".into(),
            payload: "p".into(),
            missed: ["one", "skip", "all", ""][random.usize(0..4)],
            overlap: ["allow", "skip", "replace", ""][random.usize(0..4)],
            within: given().then(|| random.u64(1..20_000)),
            expires: given().then(|| random.u64(1..5_000)),
            max: given().then(|| random.usize(1..20)),
            limit: given().then(|| random.u64(1..20)),
            end: given().then(|| now + random.u64(1..100_000)),
            start: given().then(|| now + random.u64(0..9_000)),
            ..Self::default()
        };
        if schedule.missed != "all" {
            schedule.max = None;
        }
        if schedule.end < schedule.start {
            schedule.end = None;
        }
        let most = every.map_or(3_000, |(every, _)| every - 1);
        if given() {
            schedule.jitter = random.u64(1..=most);
        }
        if every.is_none() {
            (schedule.zone, schedule.pattern) = ("UTC".into(), "pattern".into());
            schedule.list = more(random, now.max(schedule.start.unwrap_or(0)), 20);
            schedule.is_final = given();
        }
        schedule
    }

    /// Whether the script `schedule` refuses this schedule in any state of the queue.
    pub(crate) fn is_invalid(&self) -> bool {
        let every = self.every.map_or(u64::MAX, |(every, _)| every);
        let ends_early = self.end.is_some_and(|end| end < self.start.unwrap_or(0));
        every < 10
            || self.jitter >= every
            || ends_early
            || self.max.is_some() && self.missed != "all"
    }

    /// The words of the spec in the order in which the queue stores them, without the set.
    fn spec_words(&self) -> Vec<String> {
        let number = |name: &str, value: Option<u64>| value.map(|value| format!("{name}={value}"));
        let word = |name: &str, value: &str| (!value.is_empty()).then(|| format!("{name}={value}"));
        let words = [
            number("every", self.every.map(|(every, _)| every)),
            number("anchor", self.every.map(|(_, anchor)| anchor)),
            word("zone", &self.zone),
            word("missed", self.missed),
            number("within", self.within),
            number("max", self.max.map(|max| max as u64)),
            word("overlap", self.overlap),
            number("jitter", Some(self.jitter).filter(|jitter| *jitter > 0)),
            number("start", self.start),
            number("end", self.end),
            number("limit", self.limit),
        ];
        words.into_iter().flatten().collect()
    }

    pub(crate) fn spec(&self) -> String {
        let set = format!("set={}", self.set);
        [vec![set], self.spec_words()].concat().join(" ")
    }

    /// The options of the schedule's ticks.
    pub(crate) fn options(&self) -> String {
        let words = [
            self.max_attempts.map(|most| format!("max_attempts={most}")),
            self.expires.map(|ms| format!("expires=+{ms}")),
            self.on_expire.map(|choice| format!("on_expire={choice}")),
        ];
        words.into_iter().flatten().collect::<Vec<_>>().join(" ")
    }

    /// The words with which a call of `schedule` declares this schedule.
    pub(crate) fn words(&self) -> Vec<Text> {
        let mut spec = self.spec_words();
        spec.reverse();
        let fires = match self.every {
            Some(_) => String::new(),
            None => listed(&self.rules, self.is_final, &self.list),
        };
        let (spec, options) = (spec.join(" "), self.options());
        words![
            &self.name,
            spec,
            &self.pattern,
            options,
            fires,
            &self.payload
        ]
    }

    /// A copy with only what a call declares, without counts and fires.
    pub(crate) fn declared_in(&self, set: &str) -> Self {
        let set = set.to_owned();
        let (next, last, since, counts) = (0, 0, 0, [0; 4]);
        let (triggered, resumed, version, live) = (0, 0, 0, Vec::new());
        Self {
            set,
            next,
            last,
            since,
            counts,
            triggered,
            resumed,
            version,
            live,
            ..self.clone()
        }
    }

    /// Whether a call that declares `other` would change nothing.
    pub(crate) fn says_the_same(&self, other: &Self) -> bool {
        let said = |schedule: &Self| {
            let (spec, options) = (schedule.spec(), schedule.options());
            (
                spec,
                options,
                schedule.pattern.clone(),
                schedule.payload.clone(),
            )
        };
        said(self) == said(other)
    }

    /// The id of the schedule's timer in `messages`.
    pub(crate) fn timer(&self) -> Text {
        format!("\u{4}{}", self.name).into()
    }

    /// When the timer is due.
    pub(crate) fn timer_due(&self) -> u64 {
        match self.state {
            "active" => self.due(self.next),
            _ => NEVER_MS,
        }
    }

    pub(crate) fn obeys_overlap(&self) -> bool {
        ["skip", "replace"].contains(&self.overlap)
    }

    /// Whether the list of fires needs more fires soon.
    pub(crate) fn is_low(&self) -> bool {
        let is_wanting = self.every.is_none() && self.state != "ended" && !self.is_final;
        let bytes = self.list.iter().map(|fire| fire.ilog10() as usize + 2);
        is_wanting && bytes.sum::<usize>() < 256 * 14
    }
}

/// The fires, joined by blanks.
pub(crate) fn joined(fires: &[u64]) -> String {
    let fires: Vec<String> = fires.iter().map(u64::to_string).collect();
    fires.join(" ")
}

/// A list of fires as `schedule` and `refill` take it.
pub(crate) fn listed(rules: &str, is_final: bool, fires: &[u64]) -> String {
    format!("{rules} {}\n{}", u8::from(is_final), joined(fires))
}

/// Makes some fires after this time.
pub(crate) fn more(random: &mut Rng, mut after: u64, count: usize) -> Vec<u64> {
    let next = |_| {
        after += random.u64(1..4_000);
        after
    };
    (0..count).map(next).collect()
}
