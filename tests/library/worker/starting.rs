//! Starting before there is anything to do, and while nothing may be done.

use std::time::Duration;

use anyhow::Result;
use dueq::{Delivery, Message};

use crate::support::{HOUR, Running, acking, seen, setup, stats_until};

/// The first message of a queue is announced to workers that were there before the queue was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_is_older_than_its_queue_gets_the_first_message_in_time() -> Result<()> {
    for delay in [Duration::ZERO, Duration::from_millis(50), Duration::from_millis(1_500)] {
        let setup = setup().await?;
        let (sender, mut seen) = seen();
        let handler = move |delivery: Delivery| {
            let _ = sender.send(delivery.lateness());
            async {}
        };
        let worker = Running::start(setup.queue.worker(), handler);
        // It listens: now a push is announced to it.
        let channel = ["PUBSUB", "SHARDNUMSUB", "dueq:{orders}:notice"];
        let mut redis = setup.redis().await?;
        crate::support::until(
            "the subscription",
            async || crate::support::command::<(String, u64)>(&mut redis, &channel).await,
            |(_, subscribers)| *subscribers == 1,
        )
        .await?;
        setup.queue.push(Message::new("").due(delay)).await?;
        let lateness = seen.next().await?;
        assert!(lateness < Duration::from_secs(5), "due after {delay:?}, {lateness:?} late");
        worker.stop().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_due_long_before_the_worker_started_is_handled_at_once() -> Result<()> {
    let setup = setup().await?;
    setup.queue.push(Message::new("").id("overdue").due(std::time::SystemTime::now() - HOUR)).await?;
    let (worker, mut seen) = acking(setup.queue.worker());
    assert_eq!(seen.next().await?, "overdue");
    worker.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_waits_while_its_queue_is_paused_and_goes_on_when_it_is_resumed() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    queue.pause().await?;
    // One at a time, so that they are handled in the order of their claims.
    let (worker, mut seen) = acking(queue.worker().concurrency(1));
    stats_until(queue, "a live worker", |stats| stats.nodes == 1).await?;
    queue.push(Message::new("").id("due").due(Duration::ZERO)).await?;
    queue.push(Message::new("").id("soon").due(Duration::from_millis(100))).await?;
    // Until the second one is due too, and so could have been handled.
    stats_until(queue, "both due", |stats| stats.due == 2).await?;
    assert_eq!(seen.rest(), Vec::<String>::new());
    assert_eq!(queue.stats().await?.claimed, 0);
    queue.resume().await?;
    assert_eq!(seen.take(2).await?, ["due", "soon"]);
    queue.push(Message::new("").id("after")).await?;
    assert_eq!(seen.next().await?, "after");
    worker.stop().await
}

/// A pause while a handler runs keeps neither it nor its settlement from ending.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_lets_what_is_being_handled_end() -> Result<()> {
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
    setup.queue.push(Message::new("")).await?;
    seen.next().await?;
    setup.queue.pause().await?;
    go.notify_one();
    stats_until(&setup.queue, "the ack", |stats| stats.acked == 1).await?;
    worker.stop().await
}
