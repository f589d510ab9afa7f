//! The workloads.

mod cost;
mod idle;
mod life;
mod order;
pub(crate) mod push;

use std::fmt;
use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;
use dueq_bench_driver::unix_us;

use super::systems::System;

/// How long to wait for an empty queue.
const PATIENCE: Duration = Duration::from_secs(60);

/// One workload; in the order of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Workload {
    Push,
    Bulk,
    Life,
    Cost,
    DelayedCost,
    Lateness,
    #[value(name = "lateness-10")]
    Lateness10,
    Burst,
    Bytes,
    Idle,
    Order,
}

/// The state that all workloads of a run share.
pub(crate) struct Plan {
    pub(crate) quick: bool,
    /// The time from which on no system's server is busy with delayed messages, in Unix
    /// milliseconds. The systems take turns.
    free_from_ms: u64,
}

impl Plan {
    pub(crate) fn new(quick: bool) -> Self {
        Self {
            quick,
            free_from_ms: 0,
        }
    }

    /// Reserves a time of this length that begins at least `ahead` from now, in which no other
    /// system is busy. Returns its begin.
    fn reserve_ms(&mut self, ahead: Duration, length: Duration) -> Result<u64> {
        // A whole second: some systems have no finer times, and would deliver early.
        let at = (unix_us() / 1_000 + u64::try_from(ahead.as_millis())?)
            .max(self.free_from_ms)
            .next_multiple_of(1_000);
        self.free_from_ms = at + u64::try_from(length.as_millis())?;
        Ok(at)
    }
}

impl Workload {
    /// The requested workloads; if none is requested, all that belong to this kind of run.
    pub(crate) fn all(asked: &[Self], quick: bool) -> Vec<Self> {
        if !asked.is_empty() {
            return asked.to_vec();
        }
        Self::value_variants()
            .iter()
            .copied()
            .filter(|workload| !quick || *workload != Self::Order)
            .collect()
    }

    /// How often the workload is repeated.
    pub(crate) fn rounds(self, quick: bool) -> usize {
        match self {
            Self::Order | Self::Bytes | Self::Idle => 1,
            Self::Lateness | Self::Lateness10 if quick => 1,
            _ if quick => 3,
            _ => 5,
        }
    }

    /// The number of stages: each system completes a stage before any system begins the next.
    pub(crate) fn stages(self) -> usize {
        if self == Self::DelayedCost { 2 } else { 1 }
    }

    /// Whether the workload is meaningful for this system.
    pub(crate) fn suits(self, system: &System) -> bool {
        match self {
            Self::Order => ["dueq", "bullmq", "redisson"].contains(&system.kind.key),
            _ => true,
        }
    }

    pub(crate) async fn run(
        self,
        stage: usize,
        system: &mut System,
        plan: &mut Plan,
    ) -> Result<()> {
        match self {
            Self::Push => push::single(system).await,
            Self::Bulk => push::bulk(system).await,
            Self::Life => life::life(system).await,
            Self::Cost => cost::immediate(system).await,
            Self::DelayedCost if stage == 0 => cost::push_delayed(system, plan).await,
            Self::DelayedCost => cost::deliver_delayed(system).await,
            Self::Lateness => life::lateness(system, 1_000, if plan.quick { 4 } else { 10 }).await,
            Self::Lateness10 => life::lateness(system, 10, if plan.quick { 10 } else { 30 }).await,
            Self::Burst => life::burst(system).await,
            Self::Bytes => push::bytes(system).await,
            Self::Idle => idle::run(system).await,
            Self::Order => order::run(system).await,
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            self.to_possible_value()
                .as_ref()
                .map_or("", |value| value.get_name()),
        )
    }
}

/// The number of messages that keep a system with this speed busy for that time.
pub(crate) fn enough_for(per_s: f64, seconds: f64) -> u64 {
    ((per_s * seconds) as u64).clamp(1_000, 400_000)
}

/// Sleeps until this Unix millisecond.
async fn until(unix_ms: u64) {
    tokio::time::sleep(Duration::from_micros(
        (unix_ms * 1_000).saturating_sub(unix_us()),
    ))
    .await;
}
