//! Measures pushes of messages due in an hour, single and in bulk; and the memory of such a
//! message.

use anyhow::Result;
use dueq_bench_driver::{Dues, Request, unix_us};

use super::enough_for;
use crate::peers::systems::System;

/// The length of a round, in seconds.
const LENGTH_S: f64 = 0.8;

/// 64 callers, each of which awaits its answer before its next call.
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

/// All messages have one due time, because some systems cannot push different times in one call.
pub(crate) fn in_an_hour() -> Dues {
    Dues {
        at_ms: unix_us() / 1_000 + 3_600_000,
        ..Dues::default()
    }
}

/// The number of waiting messages, unless pushing them takes too long. The unused part of hash
/// tables depends on the number: with this one they are three quarters full.
const WAITING: u64 = 100_000;
const LONGEST_S: f64 = 15.0;

/// The server's memory for a waiting message with a payload of 100 bytes. The system chooses the
/// id.
pub(crate) async fn bytes(system: &mut System) -> Result<()> {
    let n = WAITING.min(enough_for(
        system.measured.push_bulk_per_s.about(),
        LONGEST_S,
    ));
    system.open().await?;
    let before = system.server.data_bytes().await?;
    system
        .ask(&Request::Bulk {
            n,
            batch: 0,
            due: in_an_hour(),
        })
        .await?;
    let after = system.server.data_bytes().await?;
    system
        .measured
        .bytes_per_message
        .add((after - before) / n as f64);
    system.close().await
}
