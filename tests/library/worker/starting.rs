//! Workers on a paused queue. `peer_failures` tests their start before and after the queue exists.

use std::time::Duration;

use anyhow::Result;
use dueq::Message;

use crate::support::{Running, acking, seen, setup, stats_until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_waits_while_its_queue_is_paused() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    queue.pause().await?;
    // One handler at a time keeps the order of the claims.
    let (worker, mut seen) = acking(queue.worker().concurrency(1));
    stats_until(queue, "a live worker", |stats| stats.nodes == 1).await?;
    queue
        .push_message(Message::new("").id("due").due(Duration::ZERO))
        .await?;
    queue
        .push_message(Message::new("").id("soon").due(Duration::from_millis(100)))
        .await?;
    // Wait until the second message is due as well.
    stats_until(queue, "both due", |stats| stats.due == 2).await?;
    assert_eq!(seen.rest(), Vec::<String>::new());
    assert_eq!(queue.stats().await?.claimed, 0);
    queue.resume().await?;
    assert_eq!(seen.take(2).await?, ["due", "soon"]);
    queue.push_message(Message::new("").id("after")).await?;
    assert_eq!(seen.next().await?, "after");
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
    setup.queue.push_message(Message::new("")).await?;
    seen.next().await?;
    setup.queue.pause().await?;
    go.notify_one();
    stats_until(&setup.queue, "the ack", |stats| stats.acked == 1).await?;
    worker.stop().await
}
