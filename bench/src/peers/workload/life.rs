//! Measures messages that are handled: a steady stream that is due at once, a steady rate of
//! delayed ones, and a burst in one instant.

use std::time::Duration;

use anyhow::{Result, bail};
use dueq_bench_driver::{Dues, Request, unix_us};

use super::{PATIENCE, enough_for, until};
use crate::peers::systems::System;

/// The length of a round, in seconds.
const LENGTH_S: f64 = 1.2;

/// Measures from push to acknowledgement: messages due at once are pushed in bulk, while one worker
/// process handles and acknowledges them.
pub(crate) async fn life(system: &mut System) -> Result<()> {
    let n = enough_for(system.measured.life_per_s.about(), LENGTH_S);
    system.open().await?;
    system.forget_peak()?;
    system.ask(&Request::Work { concurrency: 0 }).await?;
    let push = system
        .ask(&Request::Bulk {
            n,
            batch: 0,
            due: Dues::default(),
        })
        .await?;
    let drain = system.drain(n, PATIENCE, false).await?;
    system
        .measured
        .life_per_s
        .add(n as f64 * 1e6 / (drain.to_us - push.from_us) as f64);
    let peak_bytes = system.peak_bytes()?;
    system.measured.client_peak_bytes.add(peak_bytes as f64);
    system.close().await
}

/// How far ahead the delayed messages are pushed.
const DELAY_MS: u64 = 1_000;
/// How long a worker has to settle in.
const SETTLING: Duration = Duration::from_millis(300);

/// Measures the lateness: the time from the due time of a message to the start of its handler, at a
/// steady rate.
pub(crate) async fn lateness(system: &mut System, per_s: u64, seconds: u64) -> Result<()> {
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

const BURST: u64 = 50_000;
/// A system that needs longer than this to push or deliver the burst gets only one round.
const LONG_S: f64 = 10.0;
const BURST_PATIENCE: Duration = Duration::from_secs(120);
/// The worker starts this long before the burst is due.
const WORKER_BEFORE_MS: u64 = 600;
/// The factors on the expected time of pushing: at the first try, and at further ones.
const MARGINS: [f64; 3] = [2.0, 4.0, 8.0];

/// 50,000 messages due in one instant: the time until the last acknowledgement.
pub(crate) async fn burst(system: &mut System) -> Result<()> {
    let expected_ms = 1_000.0 * BURST as f64 / system.measured.push_bulk_per_s.about();
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

/// Measures one burst. `None` if it became due before all messages were pushed.
async fn one(system: &mut System, push_ms: u64) -> Result<Option<f64>> {
    // A whole second, because some systems have no finer times.
    let at_ms = (unix_us() / 1_000 + push_ms + 2_000).next_multiple_of(1_000);
    system.open().await?;
    let push = system
        .ask(&Request::Bulk {
            n: BURST,
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
    let drain = system.drain(BURST, BURST_PATIENCE, false).await?;
    system.close().await?;
    Ok(Some(drain.to_us.saturating_sub(at_ms * 1_000) as f64 / 1e6))
}
