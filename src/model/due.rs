//! When a message is due: a delay from now, or a moment.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::error::Error;
#[cfg(any(test, feature = "business-hours"))]
use crate::model::business_hours::BusinessHours;

/// The longest delay, and the furthest moment from now: 100 years of 365.25 days.
pub(crate) const MAX_DELAY_MS: u64 = 3_155_760_000_000;

/// When a message is due.
///
/// A [`Duration`] becomes a delay from the time at which the server receives the message. Fractions
/// of a millisecond are rounded up, so that no message is early. A [`SystemTime`] becomes a fixed
/// time; one in the past is due at once. Both reach at most 100 years ahead.
///
/// ```
/// use dueq::Due;
/// use std::time::Duration;
///
/// assert_eq!(Due::from(Duration::from_micros(1)), Due::AfterMs(1));
/// assert_eq!(Due::at_ms(1_700_000_000_000), Due::AtMs(1_700_000_000_000));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Due {
    /// Due this number of milliseconds after the server receives the message.
    AfterMs(u64),
    /// Due at this moment, in Unix milliseconds.
    AtMs(u64),
}

impl Due {
    /// A due time at this moment, in Unix milliseconds.
    pub fn at_ms(unix_ms: u64) -> Self {
        Self::AtMs(unix_ms)
    }

    /// Moves this due time to the next opening of these hours, with the cargo feature
    /// `business-hours`; a due time within the hours stays as it is.
    ///
    /// `now_ms` is the present time in Unix milliseconds, such as
    /// [`ServerTime::now_ms`](crate::admin::ServerTime::now_ms): a delay counts from it, and a due
    /// time before it is moved as if it were now. The result is a fixed time.
    ///
    /// A [`spread`](crate::Message::spread) is added to the result, and may move the due time out
    /// of the hours.
    ///
    /// # Errors
    ///
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) if the due time is after the year 9999.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|client, orders| {
    /// use dueq::{BusinessHours, Due};
    /// use std::time::Duration;
    ///
    /// let hours = BusinessHours::parse("Mon-Fri 09:00-18:00", "Europe/Paris")?;
    /// let now_ms = client.server_time().await?.now_ms();
    /// let in_two_days = Due::from(Duration::from_secs(48 * 3600));
    /// let receipt = orders.push("call back").due(in_two_days.within(&hours, now_ms)?).await?;
    /// assert!(hours.is_open(receipt.due_ms().unwrap()));
    /// # });
    /// ```
    #[cfg(any(test, feature = "business-hours"))]
    pub fn within(self, hours: &BusinessHours, now_ms: u64) -> Result<Self, Error> {
        let due_ms = self.unix_ms(now_ms).max(now_ms);
        hours.next_open(due_ms).map(Self::AtMs)
    }

    /// This due time in Unix milliseconds, if the server receives the message at `now_ms`.
    pub(crate) fn unix_ms(self, now_ms: u64) -> u64 {
        match self {
            Self::AfterMs(ms) => now_ms.saturating_add(ms),
            Self::AtMs(ms) => ms,
        }
    }

    /// Encodes the due time for the scripts: `+<delay ms>` or `<unix ms>`. The server, which has
    /// the clock, checks the limit of a fixed time.
    pub(crate) fn encode(self) -> Result<String, Error> {
        match self {
            Self::AfterMs(ms) if ms > MAX_DELAY_MS => Err(Error::invalid(format!(
                "the delay of {ms} ms is longer than 100 years ({MAX_DELAY_MS} ms)"
            ))),
            Self::AfterMs(ms) => Ok(format!("+{ms}")),
            Self::AtMs(ms) => Ok(ms.to_string()),
        }
    }
}

impl From<Duration> for Due {
    fn from(delay: Duration) -> Self {
        Self::AfterMs(ceil_ms(delay))
    }
}

impl From<SystemTime> for Due {
    fn from(moment: SystemTime) -> Self {
        Self::AtMs(moment.duration_since(UNIX_EPOCH).map_or(0, ceil_ms))
    }
}

/// The duration in whole milliseconds, rounded up; `u64::MAX` if it does not fit.
pub(crate) fn ceil_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fraction_of_a_millisecond_is_rounded_up() {
        assert_eq!(ceil_ms(Duration::ZERO), 0);
        assert_eq!(ceil_ms(Duration::from_nanos(1)), 1);
        assert_eq!(ceil_ms(Duration::from_millis(7)), 7);
        assert_eq!(ceil_ms(Duration::MAX), u64::MAX);
    }

    #[test]
    fn a_delay_beyond_a_hundred_years_is_refused_with_the_reason() {
        let error = Due::from(Duration::MAX)
            .encode()
            .expect_err("beyond the limit");
        assert!(error.to_string().contains("100 years"), "{error}");
        assert_eq!(
            Due::AfterMs(MAX_DELAY_MS).encode().expect("at the limit"),
            format!("+{MAX_DELAY_MS}")
        );
    }

    #[test]
    fn moments_before_1970_are_due_at_once() {
        assert_eq!(Due::from(UNIX_EPOCH - Duration::from_secs(1)), Due::AtMs(0));
    }
}
