//! 50,000 messages due in one instant: the time until the last acknowledgement.

use std::time::Duration;

use anyhow::{Result, bail};
use dueq_bench_driver::{Dues, Request, unix_us};

use super::until;
use crate::peers::systems::System;

const N: u64 = 50_000;
/// A system that takes longer than this to push or to deliver them has one round.
const LONG_S: f64 = 10.0;
const PATIENCE: Duration = Duration::from_secs(120);
/// How long before they are due the worker starts.
const WORKER_BEFORE_MS: u64 = 600;
/// Factor on the expected time of pushing, at the first try and at further ones.
const MARGINS: [f64; 3] = [2.0, 4.0, 8.0];

pub(crate) async fn run(system: &mut System) -> Result<()> {
    let expected_ms = 1_000.0 * N as f64 / system.measured.push_bulk_per_s.about();
    let earlier_s = system.measured.burst_50k_s.median();
    if earlier_s.is_some_and(|earlier_s| earlier_s.max(expected_ms / 1_000.0) > LONG_S) {
        return Ok(());
    }
    for margin in MARGINS {
        system.clear().await?;
        if let Some(seconds) = one(system, (expected_ms * margin) as u64).await? {
            system.measured.burst_50k_s.add(seconds);
            return Ok(());
        }
    }
    bail!("pushing took until after they were due")
}

/// `None` if they were due before all were pushed.
async fn one(system: &mut System, push_ms: u64) -> Result<Option<f64>> {
    // At a whole second: some systems know no finer time.
    let at_ms = (unix_us() / 1_000 + push_ms + 2_000).next_multiple_of(1_000);
    system.open().await?;
    let push = system
        .ask(&Request::Bulk {
            n: N,
            batch: 0,
            due: Dues {
                at_ms,
                ..Dues::default()
            },
        })
        .await?;
    if push.to_us > (at_ms - WORKER_BEFORE_MS) * 1_000 {
        system.close().await?;
        return Ok(None);
    }
    until(at_ms - WORKER_BEFORE_MS).await;
    system.ask(&Request::Work { concurrency: 0 }).await?;
    let drain = system.drain(N, PATIENCE, false).await?;
    system.close().await?;
    Ok(Some(drain.to_us.saturating_sub(at_ms * 1_000) as f64 / 1e6))
}
