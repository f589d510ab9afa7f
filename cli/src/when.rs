//! The flags for the due time.

use std::time::Duration;

use clap::Args;
use dueq::{BusinessHours, Client, Due};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::output::Usage;
use crate::time;

#[derive(Args)]
pub(crate) struct When {
    /// Due this long from now: 48h, 1500ms, '1h 30m'
    #[arg(long, value_name = "TIME", value_parser = time::delay, allow_hyphen_values = true)]
    pub(crate) delay: Option<Duration>,
    /// Due at this moment: now, 2026-12-01T20:00:00+08:00, Unix milliseconds; or with --tz
    /// '2026-12-01 20:00', 'today 20:00', 'tomorrow 20:00'
    #[arg(long, value_name = "MOMENT", conflicts_with = "delay")]
    pub(crate) at: Option<String>,
    /// Due at the next opening of these hours in --tz, if the due time is outside them: 'Mon-Fri
    /// 09:00-18:00'
    #[arg(long, value_name = "HOURS")]
    pub(crate) within: Option<String>,
    /// The time zone of --within, and of a time without one: Asia/Shanghai
    #[arg(long, value_name = "ZONE", value_parser = time::zone)]
    pub(crate) tz: Option<TimeZone>,
}

/// A due time, and the hours to which it is moved.
#[derive(Clone)]
pub(crate) struct Timing {
    pub(crate) due: Option<Due>,
    pub(crate) hours: Option<BusinessHours>,
}

impl When {
    /// The timing of a single message. A --tz without effect is refused. `expires_at` is another
    /// moment that may need it.
    pub(crate) fn timing(&self, expires_at: Option<&str>) -> Result<Timing, Usage> {
        let timing = self.default_timing()?;
        self.refuse_idle_zone(expires_at)?;
        Ok(timing)
    }

    /// The timing of the lines of a file that have none. The lines may also need --tz.
    pub(crate) fn default_timing(&self) -> Result<Timing, Usage> {
        Ok(Timing {
            due: self.due()?,
            hours: self.hours()?,
        })
    }

    /// The due time, if --delay or --at gives one.
    pub(crate) fn due(&self) -> Result<Option<Due>, Usage> {
        if let Some(delay) = self.delay {
            return Ok(Some(delay.into()));
        }
        let moment = |at: &String| time::moment(at, self.tz.as_ref(), Timestamp::now());
        let due = self.at.as_ref().map(moment).transpose().map_err(Usage)?;
        Ok(due.map(Due::from))
    }

    /// The business hours of --within in the zone of --tz.
    pub(crate) fn hours(&self) -> Result<Option<BusinessHours>, Usage> {
        let Some(within) = &self.within else {
            return Ok(None);
        };
        let zone = self.tz.as_ref().and_then(TimeZone::iana_name);
        let zone = zone.ok_or_else(|| {
            Usage(format!(
                "the hours {within:?} have no zone: add --tz, such as --tz Europe/Paris"
            ))
        })?;
        let hours = BusinessHours::parse(within, zone);
        hours.map(Some).map_err(|error| Usage(error.to_string()))
    }

    /// Refuses a zone that neither --within nor a moment uses: that of --at, or `expires_at`.
    pub(crate) fn refuse_idle_zone(&self, expires_at: Option<&str>) -> Result<(), Usage> {
        let (Some(zone), None) = (&self.tz, &self.within) else {
            return Ok(());
        };
        let zone = zone.iana_name().unwrap_or("ZONE");
        let at = ("--at", self.at.as_deref());
        let moments = [at, ("--expires-at", expires_at)];
        let mut moments = moments.iter().filter_map(|(flag, at)| Some((flag, (*at)?)));
        let is_zoned = |at: &str| time::moment(at, None, Timestamp::now()).is_ok();
        let Some((flag, at)) = moments.clone().next() else {
            return Err(Usage(format!(
                "--tz {zone} has no effect without --at or --within: add a time, such as --at 'tomorrow 20:00', or leave \
                 out --tz"
            )));
        };
        if moments.all(|(_, at)| is_zoned(at)) {
            return Err(Usage(format!(
                "--tz {zone} has no effect on {flag} {at:?}, which needs no zone: leave out --tz"
            )));
        }
        Ok(())
    }
}

impl Timing {
    /// The due time, by the server's clock if it is moved. Without hours no call is made.
    pub(crate) async fn resolve(self, client: &Client) -> Result<Option<Due>, dueq::Error> {
        if self.hours.is_none() {
            return Ok(self.due);
        }
        let now_ms = client.server_time().await?.now_ms();
        self.resolve_at(now_ms)
    }

    /// The due time, moved to the hours if there are any.
    pub(crate) fn resolve_at(self, now_ms: u64) -> Result<Option<Due>, dueq::Error> {
        let Some(hours) = self.hours else {
            return Ok(self.due);
        };
        let due = self.due.unwrap_or(Due::AfterMs(0));
        due.within(&hours, now_ms).map(Some)
    }
}
