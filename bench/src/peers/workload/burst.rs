//! 50,000 messages due in one instant: from there to the last acknowledgement.

use anyhow::{Result, bail};
use dueq_bench_driver::{Dues, Request, unix_us};

use super::{PATIENCE, until};
use crate::peers::systems::System;

const N: u64 = 50_000;
const LONG_MS: u64 = 15_000;
/// How long before they are due the worker starts.
const WORKER_BEFORE_MS: u64 = 600;

pub(super) async fn run(system: &mut System) -> Result<()> {
    let push_ms = (2_000.0 * N as f64 / system.measured.push_bulk_per_s.about()) as u64;
    if push_ms > LONG_MS && system.measured.burst_50k_s.median().is_some() {
        return Ok(()); // once is enough for those that take long to push so many
    }
    // At a whole second: some know no finer time.
    let at_ms = (unix_us() / 1_000 + push_ms + 2_000).next_multiple_of(1_000);
    system.open().await?;
    let push = system.ask(&Request::Bulk { n: N, batch: 0, due: Dues { at_ms, ..Dues::default() } }).await?;
    if push.to_us > (at_ms - WORKER_BEFORE_MS) * 1_000 {
        bail!("pushing took until after they were due");
    }
    until(at_ms - WORKER_BEFORE_MS).await;
    system.ask(&Request::Work { concurrency: 0 }).await?;
    let drain = system.drain(N, PATIENCE, false).await?;
    system.measured.burst_50k_s.add(drain.to_us.saturating_sub(at_ms * 1_000) as f64 / 1e6);
    system.close().await
}
