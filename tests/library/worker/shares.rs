//! Shares of the queues of one worker. Each handler waits for a permit of the test, so the test
//! decides which handler ends next.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use dueq::{Delivery, ErrorKind, Share};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::UnboundedSender;

use crate::support::{LONG, Setup, messages, push_all, seen, setup, stats_until, until};

/// A handler that reports its queue, and then waits for a permit.
fn gated(
    sender: &UnboundedSender<String>,
    gate: &Arc<Semaphore>,
) -> impl Fn(Delivery) -> Handled + Clone + Send + Sync + 'static {
    let (sender, gate) = (sender.clone(), Arc::clone(gate));
    move |delivery: Delivery| {
        let gate = Arc::clone(&gate);
        let _ = sender.send(delivery.queue().to_owned());
        Box::pin(async move {
            if let Ok(permit) = gate.acquire().await {
                permit.forget();
            }
        })
    }
}

type Handled = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

fn gate() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(0))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reserve_is_served_while_all_other_handlers_are_busy() -> Result<()> {
    let Setup { queue, client, .. } = &setup().await?;
    let bulk = client.queue("bulk")?;
    push_all(&bulk, messages(20)).await?;
    let ((of_bulk, mut bulk_seen), (of_orders, mut orders_seen)) = (seen(), seen());
    let (held, open) = (gate(), Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)));
    let worker = client
        .worker()
        .lease(LONG)
        .concurrency(4)
        .queue(&bulk, gated(&of_bulk, &held))
        .queue_with(queue, Share::weight(1).reserve(1), gated(&of_orders, &open))
        .spawn()?;
    bulk_seen.take(3).await?;
    for round in 0..50_u64 {
        let due = Duration::from_millis(round % 2 * 5);
        queue.push("").due(due).await?;
        assert_eq!(orders_seen.next().await?, "orders");
    }
    stats_until(queue, "settled", |stats| stats.acked == 50).await?;
    assert_eq!(bulk_seen.rest().len(), 0, "no handler of the reserve");
    assert_eq!(bulk.stats().await?.leased, 3);
    held.add_permits(20);
    bulk_seen.take(17).await?;
    stats_until(&bulk, "settled", |stats| stats.acked == 20).await?;
    Ok(worker.shutdown().await?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strict_order_serves_the_first_queue_until_it_is_empty() -> Result<()> {
    let Setup { client, .. } = &setup().await?;
    let (high, low) = (client.queue("high")?, client.queue("low")?);
    for queue in [&low, &high] {
        push_all(queue, messages(20)).await?;
    }
    let (sender, mut seen) = seen();
    let open = Arc::new(Semaphore::new(Semaphore::MAX_PERMITS));
    // The worker starts later than the messages are due, so the node assumes that they may have
    // waited for up to a day.
    let worker = client
        .worker()
        .lease(LONG)
        .concurrency(1)
        .strict(Duration::from_secs(7 * 86_400))
        .queue(&high, gated(&sender, &open))
        .queue(&low, gated(&sender, &open))
        .spawn()?;
    let order = seen.take(40).await?;
    assert_eq!(order, [["high"; 20], ["low"; 20]].concat());
    Ok(worker.shutdown().await?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overdue_queues_take_turns_with_the_first_queue() -> Result<()> {
    const MAX_WAIT: Duration = Duration::from_secs(1);
    let Setup { client, .. } = &setup().await?;
    let (high, low) = (client.queue("high")?, client.queue("low")?);
    // The messages of the low queue arrive while the node runs, so that it knows how long they
    // wait. For messages from before its start it would assume up to a day.
    push_all(&high, messages(20)).await?;
    stats_until(&high, "overdue", |stats| stats.overdue_ms > 100).await?;
    let (sender, mut seen) = seen();
    let held = gate();
    let worker = client
        .worker()
        .lease(LONG)
        .concurrency(1)
        .strict(MAX_WAIT)
        .queue(&high, gated(&sender, &held))
        .queue(&low, gated(&sender, &held))
        .spawn()?;
    assert_eq!(seen.next().await?, "high");
    let since_beat = async || {
        let health = worker.health();
        Ok(health.queue("low").and_then(dueq::QueueHealth::since_beat))
    };
    until("a beat", since_beat, Option::is_some).await?;
    push_all(&low, messages(3)).await?;
    let pushed = Instant::now();
    // Some milliseconds more than the limit, because the node only estimates Redis's clock.
    stats_until(&low, "overdue", |stats| stats.overdue_ms > 1_200).await?;
    let is_later = |since: &Option<Duration>| since.is_some_and(|since| since < pushed.elapsed());
    until("a beat after the push", since_beat, is_later).await?;
    let mut order = Vec::new();
    for _ in 0..12 {
        held.add_permits(1);
        order.push(seen.next().await?);
    }
    // Both queues are overdue: each has one turn, and then one handler goes by rank.
    let turns = [["high", "low", "high"]; 3].concat();
    assert_eq!(order, [turns, vec!["high"; 3]].concat());
    worker.abort();
    Ok(worker.wait().await?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn adding_a_queue_with_an_invalid_share_changes_nothing() -> Result<()> {
    let Setup { queue, client, .. } = &setup().await?;
    let mails = client.queue("mails")?;
    let (sender, mut seen) = seen();
    let handler = gated(&sender, &Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)));
    let reserve = Share::weight(1).reserve(3);
    let worker = client.worker().concurrency(4);
    let worker = worker.queue_with(queue, reserve, handler.clone()).spawn()?;
    for (share, expected) in [
        (Share::weight(0), "weight 0"),
        (Share::weight(1).max(0), "a maximum of 0"),
        (Share::weight(1).reserve(2).max(1), "its reserve of 2"),
        (Share::weight(1).reserve(2), "the reserves are 5 handlers"),
        (Share::weight(1).reserve(5), "a reserve of 5"),
    ] {
        let refused = worker.add_with(&mails, share, handler.clone()).await;
        let error = refused.expect_err(expected);
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        let text = error.to_string();
        assert!(text.contains("mails") && text.contains(expected), "{text}");
    }
    let reserve = Share::weight(1).reserve(1);
    worker.add_with(&mails, reserve, handler).await?;
    for queue in [queue, &mails] {
        queue.push("").await?;
        assert_eq!(seen.next().await?, queue.name());
    }
    Ok(worker.shutdown().await?)
}
