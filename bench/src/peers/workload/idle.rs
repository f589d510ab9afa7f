//! Measures what a worker asks of Redis while nothing is due.

use std::time::Duration;

use anyhow::Result;
use dueq_bench_driver::Request;

use super::push::in_an_hour;
use crate::peers::systems::System;

/// How long a worker has to settle in.
const SETTLING: Duration = Duration::from_secs(2);
const LENGTH: Duration = Duration::from_secs(10);

/// One message waits, and is due in an hour.
pub(crate) async fn run(system: &mut System) -> Result<()> {
    system.open().await?;
    let push = Request::Push {
        n: 1,
        concurrency: 1,
        due: in_an_hour(),
    };
    system.ask(&push).await?;
    system.ask(&Request::Work { concurrency: 0 }).await?;
    tokio::time::sleep(SETTLING).await;
    let before = system.server.requests().await?;
    tokio::time::sleep(LENGTH).await;
    if let (Some(before), Some(after)) = (before, system.server.requests().await?) {
        // One is the count itself.
        let requests = after - before - 1.0;
        let figure = &mut system.measured.idle_requests_per_s;
        figure.add(requests / LENGTH.as_secs_f64());
    }
    system.close().await
}
