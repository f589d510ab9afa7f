//! The flags that say when a message is due.

use std::time::Duration;

use clap::Args;
use dueq::Due;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::output::Usage;
use crate::time;

#[derive(Args)]
pub(crate) struct When {
    /// Due so long from now: 48h, 1500ms, '1h 30m'
    #[arg(long, value_name = "TIME", value_parser = time::delay, allow_hyphen_values = true)]
    pub(crate) delay: Option<Duration>,
    /// Due at this moment: 2026-12-01T20:00:00+08:00, Unix milliseconds, or with --tz '2026-12-01 20:00', 'today 20:00',
    /// 'tomorrow 20:00'
    #[arg(long, value_name = "MOMENT", conflicts_with = "delay")]
    pub(crate) at: Option<String>,
    /// The time zone of an --at without one: Asia/Shanghai
    #[arg(long, value_name = "ZONE", value_parser = time::zone)]
    pub(crate) tz: Option<TimeZone>,
}

impl When {
    /// The due time, if one was given.
    pub(crate) fn due(&self) -> Result<Option<Due>, Usage> {
        if let Some(delay) = self.delay {
            return Ok(Some(delay.into()));
        }
        match &self.at {
            Some(at) => self.moment(at).map(Some).map_err(Usage),
            None => Ok(None),
        }
    }

    /// A moment as --at takes it, in the zone of --tz.
    pub(crate) fn moment(&self, text: &str) -> Result<Due, String> {
        time::moment(text, self.tz.as_ref(), Timestamp::now()).map(Due::from)
    }
}
