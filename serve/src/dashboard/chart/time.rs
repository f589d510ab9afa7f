//! Round steps of time in the page's time zone, for bars and for the marks of an axis.

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};

use crate::dashboard::show::Clock;

const MINUTE_MS: u64 = 60_000;
const DAY_MS: u64 = 86_400_000;
/// The longest month and the longest year: the assumed length of a step must not be too short.
const MONTH_MS: u64 = 31 * DAY_MS;

/// The length of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::dashboard) enum Step {
    Minutes(u64),
    Days(i64),
    Months(i64),
}

/// All steps, the shortest first: up to 500 years.
const STEPS: [Step; 26] = [
    Step::Minutes(1),
    Step::Minutes(2),
    Step::Minutes(5),
    Step::Minutes(10),
    Step::Minutes(15),
    Step::Minutes(30),
    Step::Minutes(60),
    Step::Minutes(120),
    Step::Minutes(180),
    Step::Minutes(360),
    Step::Minutes(720),
    Step::Days(1),
    Step::Days(2),
    Step::Days(7),
    Step::Days(14),
    Step::Months(1),
    Step::Months(2),
    Step::Months(3),
    Step::Months(6),
    Step::Months(12),
    Step::Months(24),
    Step::Months(60),
    Step::Months(120),
    Step::Months(300),
    Step::Months(1_200),
    Step::Months(6_000),
];

impl Step {
    /// The shortest step that fits at most `most` times into `length_ms`.
    pub(in crate::dashboard) fn within(length_ms: u64, most: u64) -> Self {
        let fits = |step: &Step| length_ms / step.shortest_ms() <= most;
        STEPS
            .into_iter()
            .find(fits)
            .unwrap_or(STEPS[STEPS.len() - 1])
    }

    fn shortest_ms(self) -> u64 {
        match self {
            Self::Minutes(minutes) => minutes * MINUTE_MS,
            Self::Days(days) => days.unsigned_abs() * DAY_MS,
            Self::Months(months) => months.unsigned_abs() * (MONTH_MS - 3 * DAY_MS),
        }
    }

    /// The first `most` times after `from_ms` at which such a step begins, ascending. Fewer if the
    /// calendar ends before that, in the year 9999.
    pub(in crate::dashboard) fn after(self, clock: &Clock, from_ms: u64, most: usize) -> Vec<u64> {
        let rules = clock.zone().rules();
        let first = i64::try_from(from_ms)
            .ok()
            .and_then(|ms| Timestamp::from_millisecond(ms).ok());
        let Some(first) = first else {
            return Vec::new();
        };
        let offset_ms = i64::from(rules.to_offset(first).seconds()) * 1_000;
        let local = first.as_millisecond() + offset_ms;
        let mut times = Vec::with_capacity(most);
        for number in 1..=i64::try_from(most).unwrap_or(i64::MAX) {
            let time = match self {
                Self::Minutes(minutes) => {
                    let step = i64::try_from(minutes * MINUTE_MS).unwrap_or(i64::MAX);
                    let time = (local.div_euclid(step) + number) * step - offset_ms;
                    Timestamp::from_millisecond(time).ok()
                }
                Self::Days(step) => {
                    let day = local.div_euclid(86_400_000);
                    // Weeks begin on Monday; 1970 began on a Thursday.
                    let shift = if step % 7 == 0 { 3 } else { 0 };
                    let day = ((day + shift).div_euclid(step) + number) * step - shift;
                    midnight(rules, Date::constant(1970, 1, 1), day, 0)
                }
                Self::Months(step) => {
                    let date = first.to_zoned(rules.clone()).date();
                    let month = i64::from(date.year()) * 12 + i64::from(date.month()) - 1;
                    let month = (month.div_euclid(step) + number) * step;
                    midnight(rules, Date::constant(1970, 1, 1), 0, month - 1_970 * 12)
                }
            };
            match time.and_then(|time| u64::try_from(time.as_millisecond()).ok()) {
                Some(time) if times.last().is_none_or(|last| *last < time) && time > from_ms => {
                    times.push(time);
                }
                Some(_) => {}
                None => break,
            }
        }
        times
    }

    /// The text of a mark at this time.
    fn label(self, clock: &Clock, ms: u64) -> String {
        match self {
            Self::Minutes(_) => match clock.format(ms, "%H:%M") {
                midnight if midnight == "00:00" => clock.format(ms, "%-d %b"),
                time => time,
            },
            Self::Days(_) => clock.format(ms, "%-d %b"),
            Self::Months(months) if months < 12 => clock.format(ms, "%b %Y"),
            Self::Months(_) => clock.format(ms, "%Y"),
        }
    }
}

/// The first instant of the day that is `months` months and `days` days after `date`.
fn midnight(rules: &TimeZone, date: Date, days: i64, months: i64) -> Option<Timestamp> {
    let date = date.checked_add(Span::new().try_days(days).ok()?).ok()?;
    let date = date
        .checked_add(Span::new().try_months(months).ok()?)
        .ok()?;
    let zoned = date.to_zoned(rules.clone()).ok()?;
    Some(zoned.timestamp())
}

/// About `most` marks at round times between `from_ms` and `before_ms`.
pub(super) fn marks(clock: &Clock, from_ms: u64, before_ms: u64, most: u64) -> Vec<(u64, String)> {
    let step = Step::within(before_ms.saturating_sub(from_ms), most);
    let times = step.after(clock, from_ms, usize::try_from(most).unwrap_or(0) + 1);
    let times = times.into_iter().filter(|time| *time < before_ms);
    times.map(|time| (time, step.label(clock, time))).collect()
}

/// A range of times in words, without its end: 2026-11-25 14:00 – 14:30 CET.
pub(in crate::dashboard) fn span(clock: &Clock, from_ms: u64, before_ms: u64) -> String {
    let day = |ms| clock.format(ms, "%Y-%m-%d");
    let end = match day(from_ms) == day(before_ms) {
        true => clock.format(before_ms, "%H:%M %Z"),
        false => clock.format(before_ms, "%Y-%m-%d %H:%M %Z"),
    };
    format!("{} – {end}", clock.format(from_ms, "%Y-%m-%d %H:%M"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dashboard::show::Zone;

    fn clock(zone: &str) -> Clock {
        Clock::now(Zone::named(zone).expect("a zone"))
    }

    /// The times as text, in the zone of the clock.
    fn shown(clock: &Clock, times: &[u64]) -> Vec<String> {
        let times = times.iter();
        times
            .map(|ms| clock.format(*ms, "%Y-%m-%d %H:%M"))
            .collect()
    }

    #[test]
    fn steps_are_round_in_the_zone() {
        // 2026-12-03 13:00 in Paris, 17:45 in Kathmandu.
        let now = 1_796_299_200_000;
        for (zone, step, expected) in [
            (
                "Europe/Paris",
                Step::Minutes(30),
                ["2026-12-03 13:30", "2026-12-03 14:00"],
            ),
            (
                "Asia/Kathmandu",
                Step::Minutes(60),
                ["2026-12-03 18:00", "2026-12-03 19:00"],
            ),
            (
                "Europe/Paris",
                Step::Days(1),
                ["2026-12-04 00:00", "2026-12-05 00:00"],
            ),
            (
                "Europe/Paris",
                Step::Days(7),
                ["2026-12-07 00:00", "2026-12-14 00:00"],
            ),
            (
                "Europe/Paris",
                Step::Months(1),
                ["2027-01-01 00:00", "2027-02-01 00:00"],
            ),
            (
                "Europe/Paris",
                Step::Months(120),
                ["2030-01-01 00:00", "2040-01-01 00:00"],
            ),
        ] {
            let clock = clock(zone);
            assert_eq!(
                shown(&clock, &step.after(&clock, now, 2)),
                expected,
                "{zone} {step:?}"
            );
        }
    }

    #[test]
    fn days_begin_at_midnight_after_the_clocks_change() {
        let clock = clock("Europe/Paris");
        // 2027-03-27 12:00; the clocks go forward in the next night.
        let days = Step::Days(1).after(&clock, 1_806_145_200_000, 3);
        assert_eq!(
            shown(&clock, &days),
            ["2027-03-28 00:00", "2027-03-29 00:00", "2027-03-30 00:00"]
        );
        assert_eq!(days[1] - days[0], 23 * 3_600_000);
    }

    #[test]
    fn steps_ascend_and_stop_at_the_year_9999() {
        let clock = clock("UTC");
        for from in [0, 253_402_200_000_000, u64::MAX] {
            for step in STEPS {
                let times = step.after(&clock, from, 60);
                assert!(times.len() <= 60, "{from} {step:?}");
                assert!(times.is_sorted() && times.iter().all(|time| *time > from));
            }
        }
        assert_eq!(Step::within(0, 8), Step::Minutes(1));
        assert_eq!(Step::within(u64::MAX, 8), Step::Months(6_000));
    }

    #[test]
    fn marks_are_few_and_within_the_range() {
        let clock = clock("Asia/Kathmandu");
        let mut length = 60_000;
        while length < 250_000_000_000_000 {
            let marks = marks(&clock, 1_000, 1_000 + length, 9);
            assert!(marks.len() <= 10, "{length}: {marks:?}");
            assert!(length < 120_000 || !marks.is_empty(), "{length}");
            assert!(
                marks
                    .iter()
                    .all(|(ms, _)| (1_000..1_000 + length).contains(ms))
            );
            length += length / 3;
        }
    }

    #[test]
    fn span_within_a_day_names_the_day_once() {
        let clock = clock("Europe/Paris");
        let now = 1_796_299_200_000;
        assert_eq!(
            span(&clock, now, now + 60_000),
            "2026-12-03 13:00 – 13:01 CET"
        );
        assert_eq!(
            span(&clock, now, now + 86_400_000),
            "2026-12-03 13:00 – 2026-12-04 13:00 CET"
        );
    }
}
