//! The flags for the due time.

use std::time::Duration;

use clap::Args;
use dueq::Due;
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
    /// The time zone of a time without one: Asia/Shanghai
    #[arg(long, value_name = "ZONE", value_parser = time::zone)]
    pub(crate) tz: Option<TimeZone>,
}

impl When {
    /// The due time of a single message, if the flags give one. A --tz without effect is refused.
    pub(crate) fn due(&self) -> Result<Option<Due>, Usage> {
        let due = self.default_due()?;
        let Some(zone) = &self.tz else {
            return Ok(due);
        };
        let zone = zone.iana_name().unwrap_or("ZONE");
        let Some(at) = &self.at else {
            return Err(Usage(format!(
                "--tz {zone} has no effect without --at: add a time, such as --at 'tomorrow 20:00', or leave out --tz"
            )));
        };
        if time::moment(at, None, Timestamp::now()).is_ok() {
            return Err(Usage(format!(
                "--tz {zone} has no effect on --at {at:?}, which needs no zone: leave out --tz"
            )));
        }
        Ok(due)
    }

    /// The due time for the lines of a file that have none. The lines may also need --tz.
    pub(crate) fn default_due(&self) -> Result<Option<Due>, Usage> {
        if let Some(delay) = self.delay {
            return Ok(Some(delay.into()));
        }
        match &self.at {
            Some(at) => self.moment(at).map(Some).map_err(Usage),
            None => Ok(None),
        }
    }

    /// Reads a moment in the notations of --at, in the zone of --tz.
    pub(crate) fn moment(&self, text: &str) -> Result<Due, String> {
        time::moment(text, self.tz.as_ref(), Timestamp::now()).map(Due::from)
    }
}
