//! Each counter and histogram, checked against the calls that change it.

use std::time::Duration;

use anyhow::Result;
use dueq::metrics::{Counter, Metrics};
use dueq::outcomes::{PushOutcome, SettleOutcome};
use dueq::{Client, Delivery, Due, Message, OnConflict, Queue, QueueLimits, Retry, Settlement};

use crate::support::{
    HOUR, LONG, Running, acking, command, holding, messages, push_all, push_and_claim, seen,
    server_us, setup, steal, until,
};

async fn metrics_until(
    queue: &Queue,
    what: &str,
    good: impl Fn(&Metrics) -> bool,
) -> Result<Metrics> {
    until(what, async || Ok(queue.metrics()), good).await
}

/// The counters that are not zero.
fn counted(metrics: &Metrics) -> Vec<(&'static str, u64)> {
    metrics
        .counts()
        .filter(|(_, value)| *value > 0)
        .map(|(count, value)| (count.name(), value))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_answer_to_a_producer_is_counted_once() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    assert_eq!(counted(&queue.metrics()), []);
    let message = |id: &str| Message::new("").id(id).due(HOUR);
    for id in ["a", "b", "c"] {
        assert_eq!(queue.push_message(message(id)).await?, PushOutcome::Created);
    }
    queue.push_message(message("a")).await?;
    queue
        .push_message(message("a").on_conflict(OnConflict::Reschedule))
        .await?;
    let _ = queue.cancel("a").await?;
    assert_eq!(
        queue.push_message(message("a")).await?,
        PushOutcome::Created
    );
    let _ = queue.cancel("a").await?;
    let _ = queue.cancel("unknown").await?;
    let _ = queue.reschedule("b", HOUR * 2).await?;
    // The library rejects one of the messages, the queue the other.
    assert!(queue.push_message(message("")).await.is_err());
    queue
        .configure(QueueLimits::new().max_messages(Some(2)))
        .await?;
    let results = queue
        .push_many([message("d"), message("\n"), message("b")])
        .await;
    assert_eq!(results.iter().filter(|result| result.is_err()).count(), 2);
    let expected = [
        ("push_created", 4),
        ("push_existing", 2),
        ("push_moved", 1),
        ("push_refused", 3),
        ("cancelled", 2),
        ("rescheduled", 1),
    ];
    assert_eq!(counted(&queue.metrics()), expected);
    assert_eq!(
        counted(&setup.client.queue("orders")?.metrics()),
        expected,
        "all handles of a client share the counts of a queue"
    );
    assert_eq!(
        counted(&queue.clone().metrics()),
        expected,
        "a clone is the same handle"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_settlement_is_counted_and_timed_once() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let handler = |delivery: Delivery| async move {
        match &*delivery.id() {
            "again" => Settlement::again(HOUR),
            "retry" | "die" => Settlement::retry("failed"),
            "bury" => Settlement::bury("hopeless"),
            "by hand" => {
                assert_eq!(
                    delivery.bury("hopeless").await.ok(),
                    Some(SettleOutcome::Done)
                );
                Settlement::Ack
            }
            "panic" => panic!("in a handler"),
            "slow" => {
                std::future::pending::<()>().await;
                Settlement::Ack
            }
            _ => Settlement::Ack,
        }
    };
    let worker = queue.worker().lease(LONG).retry(Retry::fixed(HOUR));
    let running = Running::start(worker.clone(), handler);
    let ids = ["ack", "again", "retry", "bury", "by hand", "panic"];
    push_all(
        queue,
        ids.iter().map(|id| Message::new("").id(id)).collect(),
    )
    .await?;
    queue.push("").id("die").max_attempts(1).await?;
    let ends = |metrics: &Metrics| {
        let ends = [
            Counter::Acked,
            Counter::Repeated,
            Counter::Retried,
            Counter::Died,
            Counter::Buried,
        ];
        ends.iter()
            .map(|end| metrics.count(*end))
            .sum::<u64>()
            .min(metrics.handling.count())
    };
    metrics_until(queue, "seven ends", |metrics| ends(metrics) == 7).await?;
    running.stop().await?;
    // A second worker handles only this message: on a slow machine the seven handlers above could
    // exceed 50 ms.
    let running = Running::start(worker.time_limit(Duration::from_millis(50)), handler);
    queue.push("").id("slow").await?;
    let metrics = metrics_until(queue, "the eighth end", |metrics| ends(metrics) == 8).await?;
    let expected = [
        ("push_created", 8),
        ("claimed", 8),
        ("acked", 1),
        ("repeated", 1),
        ("retried", 3),
        ("died", 1),
        ("buried", 2),
        ("handler_panicked", 1),
        ("handler_timed_out", 1),
    ];
    // Whether the claim finds the message scheduled or already promoted depends on timing.
    let counts: Vec<_> = counted(&metrics)
        .into_iter()
        .filter(|(name, _)| *name != "promoted")
        .collect();
    assert_eq!(counts, expected);
    assert_eq!(
        (
            metrics.lateness.count(),
            metrics.handling.count(),
            metrics.handlers_running
        ),
        (8, 8, 0)
    );
    assert!(
        metrics.handling.quantile_us(1.0) >= Some(50_000),
        "one was dropped after 50 ms"
    );
    let stats = queue.stats().await?;
    assert_eq!(
        (stats.claimed, stats.acked, stats.retried, stats.died),
        (8, 1, 3, 3),
        "as Redis counts"
    );
    running.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_returned_at_a_stop_count_as_released() -> Result<()> {
    let setup = setup().await?;
    let (worker, mut seen) = holding(setup.queue.worker().concurrency(3).grace(Duration::ZERO));
    push_all(&setup.queue, messages(5)).await?;
    seen.take(3).await?;
    assert_eq!(setup.queue.metrics().handlers_running, 3);
    worker.stop().await?;
    let metrics = setup.queue.metrics();
    assert_eq!(
        (
            metrics.handlers_running,
            metrics.count(Counter::Claimed),
            metrics.count(Counter::Released)
        ),
        (0, 3, 3)
    );
    assert_eq!((metrics.lateness.count(), metrics.handling.count()), (3, 3));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_due_while_handlers_are_busy_count_as_promoted() -> Result<()> {
    let setup = setup().await?;
    let (worker, mut seen) = holding(setup.queue.worker().concurrency(1).grace(Duration::ZERO));
    push_all(&setup.queue, messages(1)).await?;
    seen.take(1).await?;
    let soon = |id: &str| Message::new("").id(id).due(Duration::from_millis(100));
    push_all(&setup.queue, ["a", "b", "c"].map(soon).into()).await?;
    // The first message may have been promoted, or claimed while it was scheduled.
    let metrics = metrics_until(&setup.queue, "three promoted", |metrics| {
        metrics.count(Counter::Promoted) >= 3
    })
    .await?;
    assert_eq!(metrics.count(Counter::Claimed), 1);
    worker.stop().await?;
    let stats = setup.queue.stats().await?;
    assert_eq!(
        (stats.scheduled + stats.ready, stats.claimed),
        (4, 1),
        "{stats:?}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn running_handler_count_is_zero_after_a_worker_is_dropped() -> Result<()> {
    let setup = setup().await?;
    let (worker, mut seen) = holding(setup.queue.worker());
    push_all(&setup.queue, messages(2)).await?;
    seen.take(2).await?;
    worker.abort().await?;
    metrics_until(&setup.queue, "no handler", |metrics| {
        metrics.handlers_running == 0
    })
    .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lateness_counts_from_the_due_time_by_the_servers_clock() -> Result<()> {
    let setup = setup().await?;
    let now_ms = server_us(&mut setup.redis().await?).await? / 1_000;
    let message = Message::new("").id("late").due(Due::at_ms(now_ms - 60_000));
    let delivery = push_and_claim(&setup.queue, message).await?;
    let lateness = setup.queue.metrics().lateness;
    let exact_us = u64::try_from(delivery.lateness().as_micros())?;
    assert!(exact_us >= 60_000_000, "{exact_us}");
    assert_eq!((lateness.count(), lateness.sum_us()), (1, exact_us));
    let told_us = lateness.quantile_us(0.5).unwrap_or(0);
    assert!(
        told_us >= exact_us && told_us <= exact_us + exact_us / 8 + 1,
        "{told_us} for {exact_us}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_lease_counts_once_and_each_late_settlement_too() -> Result<()> {
    let setup = setup().await?;
    let delivery = push_and_claim(&setup.queue, Message::new("").id("id")).await?;
    steal(&setup, &delivery).await?;
    let _ = delivery.ack().await?;
    let _ = delivery.ack().await?;
    let metrics = setup.queue.metrics();
    let counts = [Counter::LeaseLost, Counter::SettledLate, Counter::Acked]
        .map(|count| metrics.count(count));
    assert_eq!(counts, [1, 2, 0]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reaping_worker_counts_the_crashed_deliveries() -> Result<()> {
    let setup = setup().await?;
    let long_due = messages(3)
        .into_iter()
        .map(|message| message.due(Due::at_ms(1)))
        .collect();
    push_all(&setup.queue, long_due).await?;
    // A consumer in another process claims the messages and dies.
    let other = Client::connect(&setup.server.url()).await?;
    let crashed = other.queue("orders")?;
    assert_eq!(crashed.claim(3, Duration::from_millis(1)).await?.len(), 3);
    let (worker, mut seen) = acking(setup.queue.worker());
    seen.take(3).await?;
    worker.stop().await?;
    let metrics = setup.queue.metrics();
    let counts =
        [Counter::Reaped, Counter::Claimed, Counter::Acked].map(|count| metrics.count(count));
    assert_eq!(counts, [3, 3, 3]);
    assert_eq!(crashed.metrics().count(Counter::Claimed), 3);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_calls_and_new_connections_are_counted() -> Result<()> {
    let setup = setup().await?;
    let before = setup.client.connections_opened();
    setup.queue.push("").due(HOUR).await?;
    let after = setup.client.connections_opened();
    assert_eq!(after, before + 1, "one for pushes");
    let mut redis = setup.redis().await?;
    let killed: u64 = command(
        &mut redis,
        &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"],
    )
    .await?;
    assert!(killed >= 2, "{killed}");
    assert_eq!(setup.queue.push("").due(HOUR).await?, PushOutcome::Created);
    let metrics = setup.queue.metrics();
    assert!(
        metrics.count(Counter::CallFailed) > 0,
        "{:?}",
        counted(&metrics)
    );
    assert_eq!(metrics.count(Counter::PushCreated), 2);
    assert!(setup.client.connections_opened() > after);

    // The script fails because another program uses one of its keys.
    setup
        .command::<()>(&["SET", "dueq:{other}:messages", "mine"])
        .await?;
    let other = setup.client.queue("other")?;
    assert!(other.push("").due(HOUR).await.is_err());
    let delivery = push_and_claim(&setup.queue, Message::new("")).await?;
    setup
        .command::<()>(&["DEL", "dueq:{orders}:claims"])
        .await?;
    setup
        .command::<()>(&["SET", "dueq:{orders}:claims", "mine"])
        .await?;
    assert!(delivery.ack().await.is_err());
    assert_eq!(
        counted(&other.metrics()),
        [("push_failed", 1), ("call_failed", 1), ("server_error", 1)]
    );
    let metrics = setup.queue.metrics();
    assert_eq!(
        (
            metrics.count(Counter::SettleFailed),
            metrics.count(Counter::ServerError)
        ),
        (1, 1)
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_reads_of_metrics_lose_no_count() -> Result<()> {
    let setup = setup().await?;
    let (sender, mut done) = seen();
    let handler = move |_: Delivery| {
        let _ = sender.send(());
        async {}
    };
    let worker = Running::start(setup.queue.worker().concurrency(200), handler);
    let reader = tokio::spawn({
        let queue = setup.queue.clone();
        async move {
            let mut earlier = queue.metrics();
            loop {
                let now = queue.metrics();
                assert!(
                    now.counts()
                        .zip(earlier.counts())
                        .all(|((_, now), (_, then))| now >= then),
                    "counts only grow"
                );
                let between = now.lateness.since(&earlier.lateness);
                assert_eq!(
                    between.count(),
                    now.lateness.count() - earlier.lateness.count()
                );
                earlier = now;
                tokio::task::yield_now().await;
            }
        }
    });
    push_all(&setup.queue, messages(2_000)).await?;
    done.take(2_000).await?;
    worker.stop().await?;
    assert!(
        !reader.is_finished(),
        "the reader found a count that shrank"
    );
    reader.abort();
    let metrics = setup.queue.metrics();
    assert_eq!(
        (
            metrics.count(Counter::Acked),
            metrics.lateness.count(),
            metrics.handling.count()
        ),
        (2_000, 2_000, 2_000)
    );
    Ok(())
}
