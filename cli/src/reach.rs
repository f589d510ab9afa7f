//! The flags for a moment up to which, or from which on, a command reaches.

use std::time::UNIX_EPOCH;

use dueq::BulkSteps;
use dueq_input::Wording;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::output::Usage;
use crate::time;

/// How many messages a step deals with at most.
const STEP: usize = 200;

/// Goes through all steps of what died at or after this moment. Returns how many messages are done.
pub(crate) async fn since(steps: BulkSteps, from_ms: u64) -> Result<u64, dueq::Error> {
    let mut steps = steps.since(from_ms)?;
    while steps.step(STEP).await?.end.is_none() {}
    Ok(steps.done())
}

/// This moment in Unix milliseconds; `zone` is that of --tz.
pub(crate) fn moment_ms(text: &str, zone: Option<&TimeZone>) -> Result<u64, Usage> {
    let moment = time::moment(text, zone, Timestamp::now(), Wording::Flags).map_err(Usage::from)?;
    let since_epoch = moment.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX))
}
