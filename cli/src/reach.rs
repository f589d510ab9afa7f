//! The flags for a moment up to which, or from which on, a command reaches.

use std::time::UNIX_EPOCH;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::output::Usage;
use crate::time;

/// This moment in Unix milliseconds; `zone` is that of --tz.
pub(crate) fn moment_ms(text: &str, zone: Option<&TimeZone>) -> Result<u64, Usage> {
    let moment = time::moment(text, zone, Timestamp::now()).map_err(Usage)?;
    let since_epoch = moment.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX))
}
