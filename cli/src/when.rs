//! The flags for the due time.

use std::time::Duration;

use clap::Args;
use dueq::{Client, Due};
use dueq_input::{Timing, When, Wording};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::output::Usage;
use crate::time;

#[derive(Args)]
pub(crate) struct WhenFlags {
    /// Due this long from now: 48h, 1500ms, '1h 30m'
    #[arg(long, value_name = "TIME", value_parser = time::delay, allow_hyphen_values = true)]
    delay: Option<Duration>,
    /// Due at this moment: now, 2026-12-01T20:00:00+08:00, Unix milliseconds; or with --tz
    /// '2026-12-01 20:00', 'today 20:00', 'tomorrow 20:00'
    #[arg(long, value_name = "MOMENT", conflicts_with = "delay")]
    at: Option<String>,
    /// Due at the next opening of these hours in --tz, if the due time is outside them: 'Mon-Fri
    /// 09:00-18:00'
    #[arg(long, value_name = "HOURS")]
    within: Option<String>,
    /// The time zone of --within, and of a time without one: Asia/Shanghai
    #[arg(long, value_name = "ZONE", value_parser = time::zone)]
    tz: Option<TimeZone>,
}

impl WhenFlags {
    /// What the flags say.
    pub(crate) fn read(self) -> When {
        When {
            delay: self.delay,
            at: self.at,
            within: self.within,
            tz: self.tz,
        }
    }
}

/// The timing of a single message. A --tz without effect is refused. `expires_at` is another moment
/// that may need it.
pub(crate) fn timing(when: &When, expires_at: Option<&str>) -> Result<Timing, Usage> {
    Ok(when.timing(expires_at, Timestamp::now(), Wording::Flags)?)
}

/// The timing of the lines of a file that have none. The lines may also need --tz.
pub(crate) fn default_timing(when: &When) -> Result<Timing, Usage> {
    Ok(when.default_timing(Timestamp::now(), Wording::Flags)?)
}

/// The due time, by the server's clock if it is moved. Without hours no call is made.
pub(crate) async fn resolve(timing: Timing, client: &Client) -> anyhow::Result<Option<Due>> {
    if timing.hours.is_none() {
        return Ok(timing.due);
    }
    let now_ms = client.server_time().await?.now_ms();
    Ok(timing.resolve_at(now_ms).map_err(Usage::from)?)
}
