//! Push to acknowledgement: messages due at once are pushed in bulk while one worker process
//! handles and acknowledges them.

use anyhow::Result;
use dueq_bench_driver::{Dues, Request};

use super::{PATIENCE, enough_for};
use crate::peers::systems::System;

/// How long a round takes, in seconds.
const LENGTH_S: f64 = 1.2;

pub(crate) async fn run(system: &mut System) -> Result<()> {
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
