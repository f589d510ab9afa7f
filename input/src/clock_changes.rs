//! Explains how clock changes affect the fires of a cron.

use dueq::schedules::Schedule;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};

/// The most local times that are examined within one gap. A skipped day has 86,400 seconds.
const MOST: usize = 100_000;

/// Explains what clock changes do to the fires of a cron in a time zone.
///
/// ```
/// use dueq_input::ClockChanges;
///
/// let changes = ClockChanges::new(dueq_input::zone("Europe/Paris")?, Some("30 2 * * *"));
/// let (before, fire) = ("2027-03-27T02:30:00Z".parse()?, "2027-03-28T01:00:00Z".parse()?);
/// assert_eq!(changes.remark(before, fire), "02:30 does not exist that day: 03:00");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ClockChanges {
    zone: TimeZone,
    /// The schedule with the pattern in UTC, which has no clock changes: its fires are the matching
    /// local times.
    local: Option<Schedule>,
}

impl ClockChanges {
    /// `pattern` is the pattern of a cron. With `None` there are no remarks.
    pub fn new(zone: TimeZone, pattern: Option<&str>) -> Self {
        let local = pattern.and_then(|pattern| Schedule::cron(pattern).ok());
        Self {
            zone,
            local: local.map(|cron| cron.name("local").zone("UTC")),
        }
    }

    /// The time zone.
    pub fn zone(&self) -> &TimeZone {
        &self.zone
    }

    /// Explains how clock changes affect this fire, which is the first one after `before`. Empty if
    /// they do not.
    pub fn remark(&self, before: Timestamp, fire: Timestamp) -> String {
        if self.local.is_none() {
            return String::new();
        }
        let mut remarks = self.skipped(before, fire);
        remarks.extend(self.pass(fire));
        remarks.join("; ")
    }

    /// The matching local times that do not exist, in gaps between the two fires.
    fn skipped(&self, before: Timestamp, fire: Timestamp) -> Vec<String> {
        let changes = self.zone.following(before);
        let changes = changes.take_while(|change| change.timestamp() <= fire);
        changes
            .filter_map(|change| self.gap(change.timestamp(), change.offset(), fire))
            .collect()
    }

    fn gap(&self, change: Timestamp, after: Offset, fire: Timestamp) -> Option<String> {
        let last = Timestamp::from_millisecond(change.as_millisecond() - 1).ok()?;
        let before = self.zone.to_offset(last);
        let (from, to) = (before.to_datetime(change), after.to_datetime(change));
        let (first, last) = self.matches(from, to)?;
        let shown = self.zone.to_datetime(fire);
        let day = match first.date() == shown.date() {
            true => "that day".to_owned(),
            false => format!("on {}", first.date()),
        };
        if first != last {
            return Some(format!(
                "{} to {} do not exist {day}",
                time(first),
                time(last)
            ));
        }
        let first = time(first);
        // A pattern with a fixed time fires at the end of the gap instead. Other patterns do not
        // fire for it.
        let is_moved = fire == change
            && self
                .matches(to, to.saturating_add(jiff::Span::new().seconds(1)))
                .is_none();
        Some(match is_moved {
            true => format!("{first} does not exist {day}: {}", time(shown)),
            false => format!("{first} does not exist {day}"),
        })
    }

    /// The first and the last matching local time, from `from` to before `to`.
    fn matches(&self, from: DateTime, to: DateTime) -> Option<(DateTime, DateTime)> {
        let ms = |local: DateTime| {
            let local = Offset::UTC.to_timestamp(local).ok()?;
            u64::try_from(local.as_millisecond()).ok()
        };
        let (from, to) = (ms(from)?, ms(to)?);
        let fires = self.local.as_ref()?.fires(from.checked_sub(1)?).ok()?;
        let mut fires = fires.map(|fire| fire.nominal_ms);
        let mut fires = fires.by_ref().take_while(|ms| *ms < to).take(MOST);
        let first = fires.next()?;
        let last = fires.last().unwrap_or(first);
        let local = |ms: u64| {
            let ms = Timestamp::from_millisecond(i64::try_from(ms).ok()?).ok()?;
            Some(Offset::UTC.to_datetime(ms))
        };
        Some((local(first)?, local(last)?))
    }

    /// In which pass of a repeated hour the fire lies.
    fn pass(&self, fire: Timestamp) -> Option<String> {
        let shown = self.zone.to_datetime(fire);
        let AmbiguousOffset::Fold { before, .. } = self.zone.to_ambiguous_timestamp(shown).offset()
        else {
            return None;
        };
        let first = before.to_timestamp(shown).ok()?;
        let pass = if first == fire { "first" } else { "second" };
        Some(format!(
            "{} occurs twice that day: {pass} pass",
            time(shown)
        ))
    }
}

/// Formats `02:30`, with seconds if they are not zero.
fn time(local: DateTime) -> String {
    let format = if local.second() == 0 {
        "%H:%M"
    } else {
        "%H:%M:%S"
    };
    local.strftime(format).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remarks(pattern: &str, zone: &str, from: &str, count: usize) -> Vec<String> {
        let cron = Schedule::cron(pattern).expect("a pattern").zone(zone);
        let clock = ClockChanges::new(crate::time::zone(zone).expect("a zone"), Some(pattern));
        let mut before: Timestamp = from.parse().expect("a time");
        let after = u64::try_from(before.as_millisecond()).expect("after 1970");
        let fires = cron.fires(after).expect("fires").take(count);
        let lines = fires.map(|fire| {
            let ms = i64::try_from(fire.nominal_ms).expect("a time");
            let fire = Timestamp::from_millisecond(ms).expect("a time");
            let remark = clock.remark(before, fire);
            before = fire;
            format!(
                "{} {remark}",
                clock.zone().to_datetime(fire).strftime("%d %H:%M")
            )
        });
        lines.map(|line| line.trim_end().to_owned()).collect()
    }

    #[test]
    fn fixed_time_in_a_gap_moves_to_its_end() {
        assert_eq!(
            remarks("30 2 * * *", "Europe/Paris", "2027-03-27T00:00:00Z", 3),
            [
                "27 02:30",
                "28 03:00 02:30 does not exist that day: 03:00",
                "29 02:30"
            ]
        );
        assert_eq!(
            remarks("0,30 2,3 * * *", "Europe/Paris", "2027-03-27T22:00:00Z", 2),
            ["28 03:00 02:00 to 02:30 do not exist that day", "28 03:30"]
        );
    }

    #[test]
    fn wildcards_skip_a_gap_and_fire_in_both_passes() {
        assert_eq!(
            remarks("30 * * * *", "Europe/Paris", "2027-03-28T00:00:00Z", 2),
            ["28 01:30", "28 03:30 02:30 does not exist that day"]
        );
        assert_eq!(
            remarks("30 * * * *", "Europe/Paris", "2027-10-30T23:00:00Z", 4),
            [
                "31 01:30",
                "31 02:30 02:30 occurs twice that day: first pass",
                "31 02:30 02:30 occurs twice that day: second pass",
                "31 03:30",
            ]
        );
        assert_eq!(
            remarks("30 2 * * *", "Europe/Paris", "2027-10-30T23:00:00Z", 2),
            [
                "31 02:30 02:30 occurs twice that day: first pass",
                "01 02:30"
            ]
        );
    }

    #[test]
    fn hourly_nickname_fires_in_both_passes() {
        assert_eq!(
            remarks("@hourly", "Europe/Paris", "2027-10-30T23:30:00Z", 3),
            [
                "31 02:00 02:00 occurs twice that day: first pass",
                "31 02:00 02:00 occurs twice that day: second pass",
                "31 03:00",
            ]
        );
    }

    #[test]
    fn gap_of_another_day_is_named_with_its_date() {
        assert_eq!(
            remarks("15 */2 28 3 *", "Europe/Paris", "2027-03-28T00:30:00Z", 1),
            ["28 04:15 02:15 does not exist that day"]
        );
        assert_eq!(
            remarks(
                "30 2-2/1 * 3 SUN",
                "Europe/Paris",
                "2027-03-27T12:00:00Z",
                1
            ),
            ["05 02:30 02:30 does not exist on 2027-03-28"]
        );
    }
}
