//! The opening hours of a week in local time, and the text that describes them.

use crate::error::Error;

const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
const MINUTE_MS: i64 = 60_000;
const DAY_MINUTES: u32 = 24 * 60;
const WEEK_MINUTES: u32 = 7 * DAY_MINUTES;
const WEEK_MS: i64 = WEEK_MINUTES as i64 * MINUTE_MS;
/// January 1st 1970 was a Thursday.
const MONDAY_TO_EPOCH_MS: i64 = 3 * DAY_MINUTES as i64 * MINUTE_MS;

const EXAMPLE: &str = "such as 'Mon-Fri 09:00-18:00'";

/// The ranges of a week: at least one, and no two overlap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Week(Vec<Range>);

/// An open range in local time: its first minute, counted from Monday 00:00, and its length in
/// minutes. A range that starts on Sunday may end on Monday.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Range {
    start: u32,
    minutes: u32,
}

impl Week {
    /// Reads sets of days, each followed by its ranges.
    pub(super) fn parse(text: &str) -> Result<Self, Error> {
        let mut ranges = Vec::new();
        let (mut days, mut last_day, mut days_have_hours) = (Vec::new(), "", true);
        let separators = |c: char| c == ',' || c.is_whitespace();
        for word in text.split(separators).filter(|word| !word.is_empty()) {
            if !word.starts_with(|c: char| c.is_ascii_digit()) {
                if days_have_hours {
                    days.clear();
                }
                (last_day, days_have_hours) = (word, false);
                days.extend(days_of(word)?);
                continue;
            }
            if days.is_empty() {
                return Err(Error::invalid(format!(
                    "the hours {word:?} have no day: write the days before them, {EXAMPLE}"
                )));
            }
            let (start, minutes) = hours_of(word)?;
            days_have_hours = true;
            ranges.extend(days.iter().map(|day| Range {
                start: day * DAY_MINUTES + start,
                minutes,
            }));
        }
        if days.is_empty() {
            return Err(Error::invalid(format!(
                "the business hours are empty: write days and hours, {EXAMPLE}"
            )));
        }
        if !days_have_hours {
            return Err(Error::invalid(format!(
                "the days {last_day:?} have no hours: write hours after them, {EXAMPLE}"
            )));
        }
        ranges.sort_unstable();
        refuse_overlap(&ranges)?;
        Ok(Self(ranges))
    }

    /// The milliseconds from this local time to the next opening: 0 if it is open. Local time
    /// counts from 1970 as Unix time does.
    pub(super) fn wait_ms(&self, local_ms: i64) -> u64 {
        let waits = self.0.iter().map(|range| {
            let start_ms = i64::from(range.start) * MINUTE_MS;
            let since_start_ms = (local_ms + MONDAY_TO_EPOCH_MS - start_ms).rem_euclid(WEEK_MS);
            if since_start_ms < i64::from(range.minutes) * MINUTE_MS {
                0
            } else {
                WEEK_MS - since_start_ms
            }
        });
        waits.min().unwrap_or(WEEK_MS).unsigned_abs()
    }
}

impl Range {
    /// The range as a user would write it.
    fn text(self) -> String {
        let clock = |minute: u32| format!("{:02}:{:02}", minute / 60, minute % 60);
        let start = self.start % DAY_MINUTES;
        let end = match start + self.minutes {
            DAY_MINUTES => DAY_MINUTES,
            end => end % DAY_MINUTES,
        };
        let day = DAYS[(self.start / DAY_MINUTES) as usize % DAYS.len()];
        format!("{day} {}-{}", clock(start), clock(end))
    }
}

/// Refuses ranges that overlap. Compares each range with the next one, and the last one with the
/// first of the next week.
fn refuse_overlap(sorted: &[Range]) -> Result<(), Error> {
    let next_week = sorted.first().map(|first| Range {
        start: first.start + WEEK_MINUTES,
        ..*first
    });
    let following = sorted.iter().copied().skip(1).chain(next_week);
    for (range, next) in sorted.iter().zip(following) {
        if range.start + range.minutes > next.start {
            return Err(Error::invalid(format!(
                "the business hours {} and {} overlap: join them to one range, or leave one out",
                range.text(),
                next.text()
            )));
        }
    }
    Ok(())
}

/// Reads `Mon` or `Mon-Fri`; days count from Monday, which is 0.
fn days_of(word: &str) -> Result<Vec<u32>, Error> {
    let day = |name: &str| {
        let days = (0..).zip(DAYS);
        let mut days = days.filter(|(_, day)| day.eq_ignore_ascii_case(name));
        days.next().map(|(day, _)| day)
    };
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    let (Some(first), Some(last)) = (day(first), day(last)) else {
        return Err(Error::invalid(format!(
            "{word:?} is no day: write Mon, Tue, Wed, Thu, Fri, Sat, Sun, or a range such as Mon-Fri"
        )));
    };
    if first == last && word.contains('-') {
        return Err(Error::invalid(format!(
            "the range of days {word:?} starts and ends on the same day: write {} for one day, or Mon-Sun for all",
            DAYS[first as usize]
        )));
    }
    let count = (last + 7 - first) % 7 + 1;
    Ok((first..first + count).map(|day| day % 7).collect())
}

/// Reads `09:00-18:00`: the minute of the day at which the range starts, and its length in minutes.
fn hours_of(word: &str) -> Result<(u32, u32), Error> {
    let times = word.split_once('-');
    let times = times.and_then(|(start, end)| Some((minute_of(start)?, minute_of(end)?)));
    let Some((start, end)) = times else {
        return Err(Error::invalid(format!(
            "{word:?} is no range of hours: write two times from 00:00 to 24:00 without blanks, such as 09:00-18:00"
        )));
    };
    if start == end {
        return Err(Error::invalid(format!(
            "the range of hours {word:?} is empty: write a later end, or 00:00-24:00 for the whole day"
        )));
    }
    if start == DAY_MINUTES {
        return Err(Error::invalid(format!(
            "the range of hours {word:?} starts at the end of the day: write 00:00 as its start, and name the next day"
        )));
    }
    let end = if end < start { end + DAY_MINUTES } else { end };
    Ok((start, end - start))
}

/// Reads `09:00` as the minute of the day. The last one is `24:00`.
fn minute_of(text: &str) -> Option<u32> {
    let (hour, minute) = text.split_once(':')?;
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !(1..=2).contains(&hour.len()) || minute.len() != 2 || !digits(hour) || !digits(minute) {
        return None;
    }
    let (hour, minute): (u32, u32) = (hour.parse().ok()?, minute.parse().ok()?);
    let of_day = hour * 60 + minute;
    (minute < 60 && of_day <= DAY_MINUTES).then_some(of_day)
}
