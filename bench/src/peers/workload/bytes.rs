//! What a message that waits takes in the server's memory, with a payload of 100 bytes and an id of the system's own.

use anyhow::Result;
use dueq_bench_driver::Request;

use super::push::in_an_hour;
use crate::peers::systems::System;

const N: u64 = 100_000;

pub(super) async fn run(system: &mut System) -> Result<()> {
    system.open().await?;
    let before = system.server.data_bytes().await?;
    system.ask(&Request::Bulk { n: N, batch: 0, due: in_an_hour() }).await?;
    let after = system.server.data_bytes().await?;
    system.measured.bytes_per_message.add((after - before) / N as f64);
    system.close().await
}
