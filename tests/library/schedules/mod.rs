//! Recurring schedules: declaring them, their ticks, changes by hand, and the lists of crons.

#[cfg(feature = "schedules")]
mod crons;
mod declaring;
mod doctor;
mod ticks;

use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use dueq::Queue;
use dueq::schedules::{Schedule, ScheduleInfo};

#[cfg(feature = "schedules")]
use crate::support::Setup;

/// A schedule that fires every `ms` milliseconds.
fn every(ms: u64, name: &str) -> Schedule {
    Schedule::every(Duration::from_millis(ms)).name(name)
}

async fn info(queue: &Queue, name: &str) -> Result<ScheduleInfo> {
    let info = queue.schedule(name).get().await?;
    info.with_context(|| format!("no schedule {name}"))
}

pub(crate) fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    u64::try_from(now.unwrap_or_default().as_millis()).unwrap_or(0)
}

fn names(declared: &[dueq::schedules::ScheduleChange]) -> Vec<&str> {
    declared.iter().map(|declared| &*declared.name).collect()
}

/// Applies a cron with this list of fires, like a client that has these time zone rules.
#[cfg(feature = "schedules")]
pub(crate) async fn apply_raw(
    setup: &Setup,
    name: &str,
    spec: &str,
    pattern: &str,
    fires: &str,
) -> Result<()> {
    let script = include_str!("../../../lua/dist/schedule.lua");
    let mut words = vec!["EVAL", script, "10"];
    words.extend(setup.queue.keys().iter().map(String::as_str));
    words.extend(["", "raw", "", "", name, spec, pattern, "", fires, ""]);
    setup.command::<redis::Value>(&words).await?;
    Ok(())
}
