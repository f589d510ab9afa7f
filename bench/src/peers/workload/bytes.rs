//! The server's memory for a waiting message, with a payload of 100 bytes and an id of the system's
//! own.

use anyhow::Result;
use dueq_bench_driver::Request;

use super::enough_for;
use super::push::in_an_hour;
use crate::peers::systems::System;

/// The number of messages, unless that takes too long.
/// The waste of hash tables depends on the number: here they are three quarters full.
const N: u64 = 100_000;
const LONGEST_S: f64 = 15.0;

pub(crate) async fn run(system: &mut System) -> Result<()> {
    let n = N.min(enough_for(
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
