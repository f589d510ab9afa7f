//! Weekly opening hours in a time zone, to move due times into them. Pure: the caller provides the
//! time.

mod week;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::error::Error;
use crate::model::business_hours::week::Week;
use crate::model::zone::zone as place;

/// No zone removes the same hours in two consecutive weeks. So the next opening is at most two
/// weeks away, plus a day for clocks that are put back.
const MAX_WAIT_MS: u64 = 15 * 24 * 3_600_000;

/// Weekly opening hours in a time zone, with the cargo feature `business-hours`.
///
/// It answers two questions about an instant: is it within the hours, and when do the hours open
/// next? [`Due::within`](crate::Due::within) moves a due time to the next opening. Only the due
/// time moves: a retry, a paused queue or a late worker can start a handler outside the hours. A
/// handler that must not run then checks [`is_open`](BusinessHours::is_open).
///
/// # Clock changes
///
/// An instant is open if the local time at that instant is within the hours. Therefore:
///
/// - Clocks put forward over the start of a range: the range opens when the skipped time is over.
///   A range that is skipped as a whole does not open on that day.
/// - Clocks put back over a range, so that it occurs twice: it is open both times.
/// - The end of a range is closed already: `09:00-18:00` ends with 17:59:59.999.
///
/// The rules of the zones are those compiled into the program, as for crons: see
/// [`Schedule::zone`](crate::schedules::Schedule::zone). Programs with different rules compute
/// different openings.
///
/// ```
/// use dueq::BusinessHours;
///
/// let hours = BusinessHours::parse("Mon-Thu 09:00-18:00, Fri 09:00-12:00", "Europe/Paris")?;
/// let friday_noon = 1_796_986_800_000; // 2026-12-11T12:00:00+01:00
/// assert!(!hours.is_open(friday_noon));
/// let monday_nine = 1_797_235_200_000; // 2026-12-14T09:00:00+01:00
/// assert_eq!(hours.next_open(friday_noon)?, monday_nine);
/// assert_eq!(hours.next_open(monday_nine)?, monday_nine);
/// # Ok::<(), dueq::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BusinessHours {
    week: Week,
    zone: TimeZone,
}

impl BusinessHours {
    /// Reads the hours of a week, and the IANA name of their time zone.
    ///
    /// `hours` is a list of days and the ranges that they are open. Commas or blanks separate the
    /// parts:
    ///
    /// | text | open |
    /// |---|---|
    /// | `Mon-Fri 09:00-18:00` | from Monday to Friday, from 9 until 18 o'clock |
    /// | `Mon-Thu 09:00-12:00 13:00-18:00, Fri 09:00-12:00` | several ranges a day, several sets of days |
    /// | `Mon, Wed, Sat-Sun 10:00-14:00` | on four days |
    /// | `Fri-Sat 22:00-02:00` | over midnight: until 2 o'clock on Saturday and on Sunday |
    /// | `Mon-Sun 00:00-24:00` | always |
    ///
    /// Days are `Mon`, `Tue`, `Wed`, `Thu`, `Fri`, `Sat` and `Sun`; `Sun-Thu` is a range as well.
    /// Times are from `00:00` to `24:00`. A range whose end is not after its start ends on the next
    /// day.
    ///
    /// `zone` is a name such as `Europe/Paris`, or `UTC`. Abbreviations such as `CET`, and offsets
    /// such as `+01:00`, are refused: they do not say when clocks change.
    ///
    /// # Errors
    ///
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) if a day, a time or the zone is unknown, if
    /// a range is empty, or if two ranges overlap.
    ///
    /// ```
    /// use dueq::{BusinessHours, ErrorKind};
    ///
    /// let hours = "Mon-Fri 09:00-12:00 13:00-18:00, Sat 10:00-14:00";
    /// assert!(BusinessHours::parse(hours, "Europe/Paris").is_ok());
    ///
    /// let error = BusinessHours::parse(hours, "CET").unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::InvalidInput);
    /// assert!(BusinessHours::parse("Mon 09:00-12:00 11:00-18:00", "UTC").is_err());
    /// # Ok::<(), dueq::Error>(())
    /// ```
    pub fn parse(hours: &str, zone: &str) -> Result<Self, Error> {
        Ok(Self {
            week: Week::parse(hours)?,
            zone: place(zone, "business hours")?,
        })
    }

    /// Whether the hours are open at this instant, in Unix milliseconds. After the year 9999 they
    /// never are.
    ///
    /// ```
    /// use dueq::BusinessHours;
    ///
    /// let night = BusinessHours::parse("Mon-Sun 22:00-06:00", "Asia/Tokyo")?;
    /// assert!(night.is_open(1_796_137_200_000)); // 2026-12-02T00:00:00+09:00
    /// assert!(!night.is_open(1_796_180_400_000)); // 2026-12-02T12:00:00+09:00
    /// # Ok::<(), dueq::Error>(())
    /// ```
    pub fn is_open(&self, unix_ms: u64) -> bool {
        timestamp(unix_ms).is_ok_and(|at| self.wait_ms(at) == 0)
    }

    /// The first open instant that is not before this one, both in Unix milliseconds: this instant
    /// itself if it is open. It is at most 15 days later.
    ///
    /// # Errors
    ///
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) if the instant is after the year 9999.
    ///
    /// ```
    /// use dueq::BusinessHours;
    ///
    /// // On 2026-03-29, clocks in Paris are put forward from 02:00 to 03:00.
    /// let hours = BusinessHours::parse("Sun 02:30-04:00", "Europe/Paris")?;
    /// let midnight = 1_774_738_800_000; // 2026-03-29T00:00:00+01:00
    /// let three = 1_774_746_000_000; // 2026-03-29T03:00:00+02:00
    /// assert_eq!(hours.next_open(midnight)?, three);
    /// # Ok::<(), dueq::Error>(())
    /// ```
    pub fn next_open(&self, unix_ms: u64) -> Result<u64, Error> {
        let mut from_ms = unix_ms;
        loop {
            let from = timestamp(from_ms)?;
            // The wait is exact if it ends before the next clock change, because until then local
            // time passes like time.
            let open_ms = from_ms + self.wait_ms(from);
            let change = self.zone.following(from).next();
            let change_ms = change.and_then(|change| unix_ms_of(change.timestamp()));
            match change_ms {
                Some(change_ms) if change_ms <= open_ms => from_ms = change_ms,
                _ => return Ok(open_ms),
            }
            if from_ms - unix_ms > MAX_WAIT_MS {
                return Err(Error::invalid(format!(
                    "the business hours do not open within 15 days after {unix_ms} (Unix ms): clocks of their zone skip \
                     them; choose hours that are not skipped"
                )));
            }
        }
    }

    /// How long it takes from this instant to the next opening if no clock changes: 0 if the hours
    /// are open.
    fn wait_ms(&self, at: Timestamp) -> u64 {
        let offset_ms = i64::from(self.zone.to_offset(at).seconds()) * 1_000;
        self.week.wait_ms(at.as_millisecond() + offset_ms)
    }
}

fn timestamp(unix_ms: u64) -> Result<Timestamp, Error> {
    let timestamp = i64::try_from(unix_ms).map(Timestamp::from_millisecond);
    timestamp.ok().and_then(Result::ok).ok_or_else(|| {
        Error::invalid(format!(
            "the Unix time of {unix_ms} ms is after the year 9999: a due time may be at most 100 years ahead"
        ))
    })
}

fn unix_ms_of(timestamp: Timestamp) -> Option<u64> {
    u64::try_from(timestamp.as_millisecond()).ok()
}

#[cfg(test)]
mod tests;
