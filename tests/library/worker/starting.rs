//! Workers on a paused queue. `peer_failures` tests their start before and after the queue exists.

use std::time::Duration;

use anyhow::Result;
use dueq::{ErrorKind, Message};

use crate::support::{HOUR, Running, acking, reporting, seen, setup, stats_until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_waits_while_its_queue_is_paused() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    queue.pause().await?;
    // One handler at a time keeps the order of the claims.
    let (worker, mut seen) = acking(queue.worker().concurrency(1));
    stats_until(queue, "a live worker", |stats| stats.nodes == 1).await?;
    queue.push("").id("due").due(Duration::ZERO).await?;
    queue
        .push("")
        .id("soon")
        .due(Duration::from_millis(100))
        .await?;
    // Wait until the second message is due as well.
    stats_until(queue, "both due", |stats| stats.due == 2).await?;
    assert_eq!(seen.rest(), Vec::<String>::new());
    assert_eq!(queue.stats().await?.claimed, 0);
    queue.resume().await?;
    assert_eq!(seen.take(2).await?, ["due", "soon"]);
    queue.push("").id("after").await?;
    assert_eq!(seen.next().await?, "after");
    worker.stop().await
}

/// A worker needs no call that tells it: its timer ends when the queue opens.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_queue_opens_by_itself() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let (worker, mut seen) = reporting(queue.worker().concurrency(1), |delivery| {
        (delivery.id().into_owned(), delivery.started_us())
    });
    for round in 0..3 {
        let closed_us = setup.client.server_time().await?.unix_us;
        let period = Duration::from_millis(700);
        queue.pause_for(period).await?;
        for (id, delay_ms) in [("due", 0), ("soon", 100), ("later", 900)] {
            let message = Message::new("").id(format!("{id} {round}"));
            queue
                .push_message(message.due(Duration::from_millis(delay_ms)))
                .await?;
        }
        let opens_us = closed_us + u64::try_from(period.as_micros())?;
        for expected in ["due", "soon", "later"] {
            let (id, started_us) = seen.next().await?;
            assert_eq!(id, format!("{expected} {round}"));
            assert!(started_us >= opens_us, "{id} began before the opening");
        }
    }
    assert_eq!(queue.stats().await?.closed_ms, 0);
    worker.stop().await
}

/// Resume opens a closed queue at once, and a longer closing outlasts a shorter one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resume_opens_a_closed_queue() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    for period in [Duration::ZERO, Duration::from_secs(4_000_000_000)] {
        let error = queue.pause_for(period).await.expect_err("out of range");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    }
    assert_eq!(queue.stats().await?.closed_ms, 0);
    queue.pause_for(HOUR).await?;
    queue.pause_for(Duration::from_nanos(1)).await?;
    assert!(queue.stats().await?.closed_ms > 3_500_000);
    let (worker, mut seen) = acking(queue.worker());
    stats_until(queue, "a live worker", |stats| stats.nodes == 1).await?;
    let past = std::time::SystemTime::UNIX_EPOCH;
    queue.push("").id("due").due(past).await?;
    assert_eq!(queue.claim(1, HOUR).await?.len(), 0);
    queue.resume().await?;
    assert_eq!(seen.next().await?, "due");
    worker.stop().await
}

/// A pause does not stop a running handler or its settlement.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pause_lets_running_handlers_finish() -> Result<()> {
    let setup = setup().await?;
    let go = std::sync::Arc::new(tokio::sync::Notify::new());
    let (sender, mut seen) = seen();
    let handler = {
        let go = go.clone();
        move |_| {
            let (go, sender) = (go.clone(), sender.clone());
            async move {
                let _ = sender.send(());
                go.notified().await;
            }
        }
    };
    let worker = Running::start(setup.queue.worker(), handler);
    setup.queue.push("").await?;
    seen.next().await?;
    setup.queue.pause().await?;
    go.notify_one();
    stats_until(&setup.queue, "the ack", |stats| stats.acked == 1).await?;
    worker.stop().await
}
