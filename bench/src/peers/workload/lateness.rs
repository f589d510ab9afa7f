//! From the due time of a message to the start of its handler, at a steady rate.

use std::time::Duration;

use anyhow::Result;
use dueq_bench_driver::Request;

use super::PATIENCE;
use crate::peers::systems::System;

/// How far ahead they are pushed.
const DELAY_MS: u64 = 1_000;
/// How long a worker has to settle in.
const SETTLING: Duration = Duration::from_millis(300);

pub(crate) async fn run(system: &mut System, per_s: u64, seconds: u64) -> Result<()> {
    let n = per_s * seconds;
    system.open().await?;
    system.ask(&Request::Work { concurrency: 0 }).await?;
    tokio::time::sleep(SETTLING).await;
    system
        .ask(&Request::Pace {
            n,
            per_s,
            delay_ms: DELAY_MS,
        })
        .await?;
    let reply = system.drain(n, PATIENCE, true).await?;
    let measured = &mut system.measured;
    let lateness = if per_s == 10 {
        &mut measured.lateness_10
    } else {
        &mut measured.lateness
    };
    lateness.add(&reply.late_us);
    system.close().await
}
