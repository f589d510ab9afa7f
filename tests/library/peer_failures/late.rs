//! Replies that arrive long after the server sent them.

use std::time::Duration;

use anyhow::Result;
use dueq::{Client, Count, Message};

use super::held::Holding;
use crate::support::{HOUR, LONG, acking, setup, stats_until, until};

const CLAIM: &str = include_str!("../../../lua/dist/claim.lua");

/// A claim's reply is in flight while the store is emptied and a new queue is created. The late
/// reply names the old incarnation, which must not count as a second change.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_reply_of_the_old_queue_reports_no_change() -> Result<()> {
    let setup = setup().await?;
    setup.queue.push("").id("far").due(HOUR).await?;
    // The server now has the script; otherwise the held reply could be a NOSCRIPT error.
    assert!(setup.queue.claim(1, LONG).await?.is_empty());
    let proxy = Holding::start(setup.server.port(), CLAIM).await?;
    let queue = Client::connect(&proxy.url()).await?.queue("orders")?;
    let (worker, mut seen) = acking(queue.worker());
    stats_until(&setup.queue, "a live worker", |stats| stats.nodes == 1).await?;
    let (held, pushed) = tokio::join!(
        proxy.hold(),
        setup.queue.push_message(Message::new("").id("old"))
    );
    held?;
    pushed?;
    setup.command::<()>(&["FLUSHALL"]).await?;
    setup.queue.push("").id("new").due(HOUR).await?;
    let emptied = || queue.metrics().count(Count::StoreEmptied);
    until(
        "an event that reports the emptied store",
        async || Ok(emptied()),
        |count| *count == 1,
    )
    .await?;
    proxy.let_go();
    setup
        .queue
        .push("")
        .id("last")
        .due(Duration::from_millis(50))
        .await?;
    while seen.next().await? != "last" {}
    // The node beats in the new queue after the late reply.
    let beats = async || {
        setup
            .command::<u64>(&["HGET", "dueq:{orders}:meta", "last_beat"])
            .await
    };
    for _ in 0..2 {
        let before = beats().await?;
        until("another beat", beats, |seen| *seen != before).await?;
    }
    assert_eq!(emptied(), 1);
    worker.stop().await
}
