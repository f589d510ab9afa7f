//! Checks the ranges of a schedule. The scripts check the same ranges, except those that need a
//! time zone.

use std::time::{Duration, SystemTime};

use crate::error::Error;
use crate::model::due::MAX_DELAY_MS;
use crate::model::push_rules::OnExpire;
use crate::model::schedule::builder::unix_ms;
use crate::model::schedule::{MissedPolicy, Rule, Schedule};

/// The largest time that scripts take, in Unix milliseconds.
const MAX_TIME_MS: u64 = (1 << 53) - 1;
/// How many fires of a cron are computed to find the shortest time between two fires.
const GAPS: usize = 512;
/// A cron pattern must fire within this time: about ten years.
const TEN_YEARS_MS: u64 = 10 * 366 * 86_400_000;

impl Schedule {
    /// Refuses a schedule that [`apply`](crate::schedules::ScheduleSet::apply) would refuse,
    /// without a call to the server. `now` is the time after which the fires are looked at.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput), which names the option and its range.
    ///
    /// ```
    /// use dueq::schedules::Schedule;
    /// use std::time::{Duration, SystemTime};
    ///
    /// let schedule = Schedule::every(Duration::from_millis(9)).name("too-fast");
    /// let error = schedule.check(SystemTime::now()).unwrap_err();
    /// assert!(error.to_string().contains("10 ms to 100 years"));
    /// ```
    pub fn check(&self, now: SystemTime) -> Result<(), Error> {
        self.check_at(unix_ms(now))
    }

    pub(crate) fn check_at(&self, now_ms: u64) -> Result<(), Error> {
        check_name(&self.name)?;
        self.check_rule()?;
        self.check_options()?;
        self.check_fires(now_ms)
    }

    /// Checks the part of the schedule that the iterator of fires uses.
    pub(super) fn check_rule(&self) -> Result<(), Error> {
        match &self.rule {
            Rule::Every(interval) => {
                in_range("every", *interval, 10)?;
                if self.zone.is_some() {
                    return Err(Error::invalid(
                        "every has no time zone: its fires are multiples of a time; use cron for times of a day",
                    ));
                }
            }
            Rule::Cron(pattern) => {
                if pattern.len() > 256 {
                    return Err(Error::invalid(format!(
                        "the cron pattern has {} bytes, it must have 1 to 256",
                        pattern.len()
                    )));
                }
                if self.anchor_ms.is_some() {
                    return Err(Error::invalid("a cron has no anchor: only every has one"));
                }
                if self.zone.is_none() {
                    return Err(Error::invalid(
                        "a cron needs a time zone: the IANA name of a place, such as Europe/Paris, or UTC",
                    ));
                }
            }
        }
        for (what, time) in [
            ("anchor", self.anchor_ms),
            ("start", self.start_ms),
            ("end", self.end_ms),
        ] {
            if let Some(ms) = time.filter(|ms| *ms > MAX_TIME_MS) {
                return Err(Error::invalid(format!(
                    "{what} is {ms} in Unix ms, it must be 0 to {MAX_TIME_MS}"
                )));
            }
        }
        if let Some(end) = self.end_ms
            && let Some(start) = self.start_ms
            && end < start
        {
            return Err(Error::invalid(format!(
                "end ({end} in Unix ms) is before start ({start})"
            )));
        }
        if !self.jitter.is_zero() {
            in_range("jitter", self.jitter, 1)?;
        }
        if let Rule::Every(interval) = self.rule
            && self.jitter >= interval
        {
            return Err(Error::invalid(format!(
                "jitter is {:?}, it must be less than every ({interval:?})",
                self.jitter
            )));
        }
        check_count("limit", self.limit, 1_000_000_000_000_000)
    }

    fn check_options(&self) -> Result<(), Error> {
        if let Some(within) = self.within {
            in_range("within", within, 1)?;
        }
        if let MissedPolicy::All { max } = self.missed {
            check_count("max of missed=all", Some(max), 100_000)?;
        }
        check_count("max_attempts", self.max_attempts.map(u64::from), 1_000_000)?;
        check_count("expires_after in ms", self.expires_after_ms, MAX_DELAY_MS)?;
        if self.expires_after_ms.is_none() && self.on_expire != OnExpire::Dead {
            return Err(Error::invalid(
                "on_expire is set and the ticks do not expire: set expires_after too",
            ));
        }
        Ok(())
    }

    fn check_fires(&self, now_ms: u64) -> Result<(), Error> {
        let Rule::Cron(pattern) = &self.rule else {
            return Ok(());
        };
        // The limit and the end are left out, because a schedule that has ended is not an error.
        let endless = Self {
            end_ms: None,
            limit: None,
            ..self.clone()
        };
        let mut fires = endless.fires(now_ms)?;
        let first = fires.next().map(|fire| fire.nominal_ms);
        let from_ms = now_ms.max(self.start_ms.unwrap_or(0));
        let Some(first) = first.filter(|first| first - from_ms <= TEN_YEARS_MS) else {
            return Err(Error::invalid(format!(
                "the cron pattern {pattern:?} does not fire within ten years"
            )));
        };
        if self.jitter.is_zero() {
            return Ok(());
        }
        let (mut last, mut gap) = (first, u64::MAX);
        for fire in fires.take(GAPS) {
            gap = gap.min(fire.nominal_ms - last);
            last = fire.nominal_ms;
        }
        if self.jitter.as_millis() >= u128::from(gap) {
            return Err(Error::invalid(format!(
                "jitter is {:?}, it must be less than {:?}, the shortest time between two of the next {GAPS} fires",
                self.jitter,
                Duration::from_millis(gap)
            )));
        }
        Ok(())
    }
}

/// Checks a schedule's name: 1 to 100 letters, digits and `. _ - : /`.
pub(crate) fn check_name(name: &str) -> Result<(), Error> {
    check_word("the name of a schedule", name)
}

/// Checks the name of a set of schedules, which has the form of a schedule's name.
pub(crate) fn check_set(name: &str) -> Result<(), Error> {
    check_word("the name of a set of schedules", name)
}

fn check_word(what: &str, name: &str) -> Result<(), Error> {
    let is_fit = |c: char| c.is_ascii_alphanumeric() || "._-:/".contains(c);
    if (1..=100).contains(&name.len()) && name.chars().all(is_fit) {
        return Ok(());
    }
    let start: String = name.chars().take(60).collect();
    Err(Error::invalid(format!(
        "{what} is {start:?}: it must be 1 to 100 letters, digits and . _ - : /"
    )))
}

/// Refuses a duration that is no whole number of milliseconds from `least` to 100 years.
fn in_range(what: &str, duration: Duration, least: u64) -> Result<(), Error> {
    let (ms, rest) = (duration.as_millis(), duration.as_nanos() % 1_000_000);
    if rest == 0 && (u128::from(least)..=u128::from(MAX_DELAY_MS)).contains(&ms) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "{what} is {duration:?}, it must be {least} ms to 100 years, in whole milliseconds"
    )))
}

fn check_count(what: &str, count: Option<u64>, most: u64) -> Result<(), Error> {
    match count {
        Some(count) if !(1..=most).contains(&count) => Err(Error::invalid(format!(
            "{what} is {count}, it must be 1 to {most}"
        ))),
        _ => Ok(()),
    }
}
