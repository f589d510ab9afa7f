//! The due time of a message, as fields or flags give it.

use std::time::Duration;

use dueq::{BusinessHours, Due};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::error::quoted;
use crate::{Error, Wording, time};

/// When a message is due, unparsed.
#[derive(Debug, Clone, Default)]
pub struct When {
    /// The message is due this long after the server receives it.
    pub delay: Option<Duration>,
    /// The message is due at this moment. Without effect beside `delay`.
    pub at: Option<String>,
    /// Business hours: a due time outside of them is moved to their next opening.
    pub within: Option<String>,
    /// The time zone of `within`, and of a moment that names none.
    pub tz: Option<TimeZone>,
}

/// A due time, and the business hours to which it is moved.
#[derive(Debug, Clone, Default)]
pub struct Timing {
    /// The due time, if one is given.
    pub due: Option<Due>,
    /// The business hours, if there are any.
    pub hours: Option<BusinessHours>,
}

impl When {
    /// Reads the fields `delay`, `at`, `within` and `tz` of an object.
    ///
    /// # Errors
    /// If the delay or the zone is wrong, or both `delay` and `at` are given.
    /// [`timing`](Self::timing) parses the moment and the hours.
    ///
    /// ```
    /// use dueq_input::{When, Wording};
    /// use jiff::Timestamp;
    ///
    /// let (now, fields) = (Timestamp::UNIX_EPOCH, Wording::Fields);
    /// let when = When::read(None, Some("today 20:00"), None, Some("Europe/Paris"), fields)?;
    /// let due = when.timing(None, now, fields)?.resolve_at(0)?;
    /// assert_eq!(due, Some(dueq::Due::AtMs(19 * 3_600_000)));
    /// # Ok::<(), dueq_input::Error>(())
    /// ```
    pub fn read(
        delay: Option<&str>,
        at: Option<&str>,
        within: Option<&str>,
        tz: Option<&str>,
        wording: Wording,
    ) -> Result<Self, Error> {
        if delay.is_some() && at.is_some() {
            let holder = wording.holder();
            return Err(Error::new(format!(
                "the {holder} has both delay and at; remove one"
            )));
        }
        let delay = delay.map(time::delay).transpose();
        let tz = tz.map(time::zone).transpose();
        Ok(Self {
            delay: delay.map_err(|error| error.of("delay"))?,
            at: at.map(str::to_owned),
            within: within.map(str::to_owned),
            tz: tz.map_err(|error| error.of("tz"))?,
        })
    }

    /// The timing of a single message. `expires_at` is a second moment that may need `tz`.
    ///
    /// # Errors
    /// If the moment or the hours are wrong, or `tz` has no effect.
    pub fn timing(
        &self,
        expires_at: Option<&str>,
        now: Timestamp,
        wording: Wording,
    ) -> Result<Timing, Error> {
        let timing = self.default_timing(now, wording)?;
        self.refuse_idle_zone(expires_at, now, wording)?;
        Ok(timing)
    }

    /// The default timing for messages of a file that have none. Lines of the file may also need
    /// `tz`, so an unused `tz` is not refused here.
    ///
    /// # Errors
    /// If the moment or the hours are wrong.
    pub fn default_timing(&self, now: Timestamp, wording: Wording) -> Result<Timing, Error> {
        Ok(Timing {
            due: self.due(now, wording)?,
            hours: self.hours(wording)?,
        })
    }

    /// The due time, if `delay` or `at` gives one.
    ///
    /// # Errors
    /// If the moment is wrong.
    pub fn due(&self, now: Timestamp, wording: Wording) -> Result<Option<Due>, Error> {
        if let Some(delay) = self.delay {
            return Ok(Some(delay.into()));
        }
        let moment = |at: &String| time::moment(at, self.tz.as_ref(), now, wording);
        let due = self.at.as_ref().map(moment).transpose();
        Ok(due.map_err(|error| error.of("at"))?.map(Due::from))
    }

    /// The business hours of `within` in the zone `tz`.
    ///
    /// # Errors
    /// If the hours are wrong, or there is no zone.
    pub fn hours(&self, wording: Wording) -> Result<Option<BusinessHours>, Error> {
        let Some(within) = &self.within else {
            return Ok(None);
        };
        let zone = self.tz.as_ref().and_then(TimeZone::iana_name);
        let zone = zone.ok_or_else(|| {
            let (tz, example) = (wording.name("tz"), wording.example("tz", "Europe/Paris"));
            let reason = format!(
                "the hours {} have no zone: add {tz}, such as {example}",
                quoted(within)
            );
            Error::new(reason).of("within")
        })?;
        let hours = BusinessHours::parse(within, zone);
        hours
            .map(Some)
            .map_err(|error| Error::new(error.to_string()).of("within"))
    }

    /// Refuses a zone that nothing uses: neither `within`, nor a moment in `at` or `expires_at`.
    ///
    /// # Errors
    /// If `tz` has no effect.
    pub fn refuse_idle_zone(
        &self,
        expires_at: Option<&str>,
        now: Timestamp,
        wording: Wording,
    ) -> Result<(), Error> {
        let (Some(zone), None) = (&self.tz, &self.within) else {
            return Ok(());
        };
        let name = |field| wording.name(field);
        let (zone, tz) = (zone.iana_name().unwrap_or("ZONE"), name("tz"));
        let moments = [("at", self.at.as_deref()), ("expires_at", expires_at)];
        let mut moments = moments
            .iter()
            .filter_map(|(field, at)| Some((*field, (*at)?)));
        let is_zoned = |at: &str| time::moment(at, None, now, wording).is_ok();
        let Some((field, at)) = moments.clone().next() else {
            return Err(Error::new(format!(
                "{tz} {zone} has no effect without {} or {}: add a time, such as {}, or leave out {tz}",
                name("at"),
                name("within"),
                wording.example("at", "tomorrow 20:00"),
            )));
        };
        if moments.all(|(_, at)| is_zoned(at)) {
            return Err(Error::new(format!(
                "{tz} {zone} has no effect on {} {}, which needs no zone: leave out {tz}",
                name(field),
                quoted(at),
            )));
        }
        Ok(())
    }
}

impl Timing {
    /// The due time, moved to the hours if there are any. `now_ms` is the server's present time, in
    /// Unix milliseconds.
    ///
    /// # Errors
    /// If the due time is after the year 9999.
    pub fn resolve_at(self, now_ms: u64) -> Result<Option<Due>, Error> {
        let Some(hours) = self.hours else {
            return Ok(self.due);
        };
        let due = self.due.unwrap_or(Due::AfterMs(0));
        due.within(&hours, now_ms)
            .map(Some)
            .map_err(|error| Error::new(error.to_string()))
    }
}
