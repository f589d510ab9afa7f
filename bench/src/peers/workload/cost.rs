//! Measures Redis's CPU time for push, delivery and acknowledgement, in batches of a hundred.
//!
//! First all messages are pushed, then all are delivered, so that every batch is full. The time in
//! between is not counted.

use std::time::Duration;

use anyhow::Result;
use dueq_bench_driver::{Dues, Request};

use super::{PATIENCE, Plan, enough_for, until};
use crate::peers::systems::System;

const BATCH: usize = 100;
/// How far ahead messages are due: more than the 10 s for which dueq remembers a push.
const AHEAD: Duration = Duration::from_secs(12);
/// The worker and the count start this long before the due time.
const WORKER_BEFORE_MS: u64 = 600;
const COUNT_BEFORE_MS: u64 = 20;

fn number(system: &System) -> u64 {
    enough_for(system.measured.life_per_s.about(), 1.5)
        .min(20_000)
        .min(system.kind.most_due)
}

/// Messages that are due at once.
pub(crate) async fn immediate(system: &mut System) -> Result<()> {
    let n = number(system);
    system.open().await?;
    let before = system.server.cpu_us().await?;
    system
        .ask(&Request::Bulk {
            n,
            batch: BATCH,
            due: Dues::default(),
        })
        .await?;
    system.ask(&Request::Work { concurrency: BATCH }).await?;
    system.drain(n, PATIENCE, false).await?;
    if let (Some(before), Some(after)) = (before, system.server.cpu_us().await?) {
        system
            .measured
            .redis_us_per_life
            .add((after - before) / n as f64);
    }
    system.close().await
}

/// The first half: pushes delayed messages, for each system with another due time.
pub(crate) async fn push_delayed(system: &mut System, plan: &mut Plan) -> Result<()> {
    let n = number(system);
    let delivery =
        Duration::from_secs_f64(1.0 + 2.0 * n as f64 / system.measured.life_per_s.about());
    let push = Duration::from_secs_f64(2.0 * n as f64 / system.measured.push_bulk_per_s.about());
    let at_ms = plan.reserve_ms(AHEAD + push, delivery)?;
    system.open().await?;
    let before = system.server.cpu_us().await?;
    system
        .ask(&Request::Bulk {
            n,
            batch: BATCH,
            due: Dues {
                at_ms,
                ..Dues::default()
            },
        })
        .await?;
    let after = system.server.cpu_us().await?;
    let spent_us = before.zip(after).map(|(before, after)| after - before);
    system.measured.delayed = Some((n, at_ms, spent_us));
    Ok(())
}

/// The second half: delivers the delayed messages.
pub(crate) async fn deliver_delayed(system: &mut System) -> Result<()> {
    let Some((n, at_ms, pushing_us)) = system.measured.delayed.take() else {
        return Ok(());
    };
    until(at_ms - WORKER_BEFORE_MS).await;
    system.ask(&Request::Work { concurrency: BATCH }).await?;
    until(at_ms - COUNT_BEFORE_MS).await;
    let before = system.server.cpu_us().await?;
    system.drain(n, PATIENCE, false).await?;
    let after = system.server.cpu_us().await?;
    if let (Some(pushing_us), Some(before), Some(after)) = (pushing_us, before, after) {
        system
            .measured
            .redis_us_per_delayed_life
            .add((pushing_us + after - before) / n as f64);
    }
    system.close().await
}
