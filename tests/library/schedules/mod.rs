//! Recurring schedules: declaring, ticks, changes by hand; of crons also their lists.

mod by_hand;
#[cfg(feature = "schedules")]
mod crons;
mod declaring;
mod ticks;

use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use dueq::{Queue, Schedule, ScheduleInfo};

/// A schedule that fires every so many milliseconds.
fn every(ms: u64, name: &str) -> Schedule {
    Schedule::every(Duration::from_millis(ms)).name(name)
}

async fn info(queue: &Queue, name: &str) -> Result<ScheduleInfo> {
    let info = queue.schedule(name).get().await?;
    info.with_context(|| format!("no schedule {name}"))
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    u64::try_from(now.unwrap_or_default().as_millis()).unwrap_or(0)
}

fn names(declared: &[dueq::Declared]) -> Vec<&str> {
    declared.iter().map(|declared| &*declared.name).collect()
}
