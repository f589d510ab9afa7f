//! Pushes of messages due in an hour, by single calls and in bulk.

use anyhow::Result;
use dueq_bench_driver::{Dues, Request, unix_us};

use super::enough_for;
use crate::peers::systems::System;

/// How long a round takes, in seconds.
const LENGTH_S: f64 = 0.8;

/// 64 callers, each waiting for its answer before its next call.
pub(crate) async fn single(system: &mut System) -> Result<()> {
    let n = enough_for(system.measured.push_c64_per_s.about(), LENGTH_S);
    system.open().await?;
    let reply = system
        .ask(&Request::Push {
            n,
            concurrency: 64,
            due: in_an_hour(),
        })
        .await?;
    system
        .measured
        .push_c64_per_s
        .add(n as f64 / reply.seconds());
    system.close().await
}

pub(crate) async fn bulk(system: &mut System) -> Result<()> {
    let n = enough_for(system.measured.push_bulk_per_s.about(), LENGTH_S);
    system.open().await?;
    let reply = system
        .ask(&Request::Bulk {
            n,
            batch: 0,
            due: in_an_hour(),
        })
        .await?;
    system
        .measured
        .push_bulk_per_s
        .add(n as f64 / reply.seconds());
    system.close().await
}

/// All with one due time: some systems cannot push messages with different times in one call.
pub(crate) fn in_an_hour() -> Dues {
    Dues {
        at_ms: unix_us() / 1_000 + 3_600_000,
        ..Dues::default()
    }
}
