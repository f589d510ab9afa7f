//! Encodes and decodes a schedule in the form that the scripts store.

use std::fmt::Display;
use std::fmt::Write as _;
use std::time::Duration;

use crate::model::push_rules::OnExpire;
use crate::model::schedule::{MissedPolicy, OverlapPolicy, Rule, Schedule};

/// The `max` of `missed=all` unless the schedule sets another.
const USUAL_MAX: u64 = 1_000;

impl Schedule {
    /// The words of the schedule's rule and policies. The script stores them in one fixed order.
    pub(crate) fn spec_words(&self, zone: Option<&str>) -> String {
        let mut words = Words::default();
        if let Rule::Every(interval) = self.rule {
            words.add("every", Some(interval.as_millis()));
        }
        words.add("anchor", self.anchor_ms);
        words.add("zone", zone);
        if self.missed != MissedPolicy::One {
            words.add("missed", Some(self.missed));
        }
        words.add("within", self.within.map(|within| within.as_millis()));
        if let MissedPolicy::All { max } = self.missed
            && max != USUAL_MAX
        {
            words.add("max", Some(max));
        }
        if self.overlap != OverlapPolicy::Allow {
            words.add("overlap", Some(self.overlap));
        }
        if !self.jitter.is_zero() {
            words.add("jitter", Some(self.jitter.as_millis()));
        }
        words.add("start", self.start_ms);
        words.add("end", self.end_ms);
        words.add("limit", self.limit);
        words.0
    }

    /// Reads a schedule that the scripts stored. Ignores words that a later version may have
    /// written. `None` if there is no rule.
    pub(crate) fn parse(name: &str, spec: &str, options: &str, pattern: &str) -> Option<Self> {
        let word = |name: &str| {
            let words = spec.split(' ').filter_map(|word| word.split_once('='));
            words
                .into_iter()
                .find_map(|(word, value)| (word == name).then_some(value))
        };
        let number = |name: &str| word(name)?.parse().ok();
        let time = |name: &str| number(name).map(Duration::from_millis);
        let rule = match time("every") {
            Some(interval) => Rule::Every(interval),
            None if word("zone").is_some() => Rule::Cron(pattern.to_owned()),
            None => return None,
        };
        let mut schedule = Self {
            name: name.to_owned(),
            zone: word("zone").map(str::to_owned),
            anchor_ms: number("anchor"),
            missed: match word("missed") {
                Some("skip") => MissedPolicy::Skip,
                Some("all") => MissedPolicy::All {
                    max: number("max").unwrap_or(USUAL_MAX),
                },
                _ => MissedPolicy::One,
            },
            within: time("within"),
            overlap: match word("overlap") {
                Some("skip") => OverlapPolicy::Skip,
                Some("replace") => OverlapPolicy::Replace,
                _ => OverlapPolicy::Allow,
            },
            jitter: time("jitter").unwrap_or_default(),
            start_ms: number("start"),
            end_ms: number("end"),
            limit: number("limit"),
            ..Self::new(rule)
        };
        for word in options.split(' ') {
            match word.split_once('=') {
                Some(("max_attempts", limit)) => schedule.max_attempts = limit.parse().ok(),
                Some(("expires", time)) => {
                    schedule.expires_after_ms =
                        time.strip_prefix('+').and_then(|ms| ms.parse().ok());
                }
                Some(("on_expire", "drop")) => schedule.on_expire = OnExpire::Drop,
                _ => {}
            }
        }
        Some(schedule)
    }
}

/// The options of a schedule's ticks.
pub(crate) fn option_words(schedule: &Schedule) -> String {
    let mut words = Words::default();
    words.add("max_attempts", schedule.max_attempts);
    words.add(
        "expires",
        schedule.expires_after_ms.map(|ms| format!("+{ms}")),
    );
    if schedule.on_expire == OnExpire::Drop {
        words.add("on_expire", Some("drop"));
    }
    words.0
}

#[derive(Default)]
struct Words(String);

impl Words {
    fn add(&mut self, name: &str, value: Option<impl Display>) {
        if let Some(value) = value {
            let blank = if self.0.is_empty() { "" } else { " " };
            // Writing to a string does not fail.
            let _ = write!(self.0, "{blank}{name}={value}");
        }
    }
}
