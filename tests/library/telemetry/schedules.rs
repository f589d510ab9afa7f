//! The counts of schedules, each checked against the calls that change it.

use std::time::{Duration, UNIX_EPOCH};

use anyhow::Result;
use dueq::metrics::Counter;
use dueq::schedules::{Schedule, TriggerOutcome};
use dueq::{Client, Delivery, Queue, QueueLimits};

use crate::support::{Setup, reporting, seen, setup, until, within};

const HOUR: Duration = Duration::from_secs(3_600);

/// The counters ticks, triggered, refilled, found_dry and refill_refused.
fn counted(queue: &Queue) -> [u64; 5] {
    let metrics = queue.metrics();
    [
        Counter::Ticks,
        Counter::Triggered,
        Counter::Refilled,
        Counter::FoundDry,
        Counter::RefillRefused,
    ]
    .map(|count| metrics.count(count))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tick_counter_grows_when_a_handler_gets_a_tick() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let beat = Schedule::every(Duration::from_millis(50)).name("beat");
    queue.schedules("hearts").apply([beat.limit(3)]).await?;
    queue.push("").id("no tick").await?;
    let (worker, mut handled) = reporting(queue.worker(), |delivery| delivery.tick().is_some());
    let handled = handled.take(4).await?;
    worker.stop().await?;
    assert_eq!(handled.iter().filter(|is_tick| **is_tick).count(), 3);
    assert_eq!(counted(queue), [3, 0, 0, 0, 0]);
    assert_eq!(queue.metrics().count(Counter::Claimed), 4);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_tick_by_hand_counts_as_triggered() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let set = || ["a", "b"].map(|name| Schedule::every(HOUR).name(name));
    let apply = async |is_dry| {
        let now = queue.schedules("billing").fire_now(true).dry_run(is_dry);
        now.apply(set()).await
    };
    apply(true).await?;
    assert_eq!(counted(queue)[1], 0, "a dry run");
    apply(false).await?;
    apply(false).await?;
    assert_eq!(counted(queue)[1], 2, "of those that the call created");
    assert_eq!(queue.schedule("c").trigger().await?, TriggerOutcome::Gone);
    while !matches!(
        queue.schedule("a").trigger().await?,
        TriggerOutcome::Created(_)
    ) {}
    assert_eq!(counted(queue)[1], 3);
    let from = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    for _ in 0..2 {
        let _ = queue.schedule("a").backfill(from, from + 5 * HOUR).await?;
    }
    assert_eq!(counted(queue), [0, 8, 0, 0, 0], "each tick once");
    Ok(())
}

#[cfg(feature = "schedules")]
mod crons {
    use super::*;
    use crate::schedules::{apply_raw, now_ms};
    use crate::support::{acking, until};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn refills_and_dry_lists_are_counted() -> Result<()> {
        let setup = setup().await?;
        let queue = &setup.queue;
        let first = now_ms() / 1_000 * 1_000 + 1_000;
        let (dry, low) = (
            format!("2020a 0\n{first}"),
            format!("2020a 0\n{}", first + 3_600_000),
        );
        apply_raw(&setup, "second", "zone=UTC", "* * * * * *", &dry).await?;
        apply_raw(&setup, "hour", "zone=UTC", "0 * * * *", &low).await?;
        let delivery = crate::support::claim_one(queue).await?;
        let _ = delivery.ack().await?;
        assert_eq!(counted(queue), [1, 0, 0, 0, 0]);
        assert_eq!(queue.refill_schedules().await?.lists, 2);
        assert_eq!(counted(queue), [1, 0, 2, 1, 0]);
        assert_eq!(queue.refill_schedules().await?.lists, 0);
        assert_eq!(counted(queue), [1, 0, 2, 1, 0], "nothing to do");
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn refused_refills_are_counted() -> Result<()> {
        let setup = setup().await?;
        let queue = &setup.queue;
        // A cron whose pattern another client wrote, and which this program cannot compute.
        let fires = format!("2020a 0\n{}", now_ms() + 3_600_000);
        apply_raw(&setup, "odd", "zone=Mars/Base", "0 * * * *", &fires).await?;
        let refilled = queue.refill_schedules().await?;
        assert_eq!((refilled.lists, refilled.failed.len()), (0, 1));
        assert_eq!(counted(queue), [0, 0, 0, 0, 1]);
        // The leader tries the refill again and again.
        let (worker, _) = acking(queue.worker());
        let more = async || Ok(counted(queue));
        until("a try of the leader", more, |counts| counts[4] >= 2).await?;
        worker.stop().await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_queue_of_a_worker_has_its_own_metrics() -> Result<()> {
    let Setup {
        queue,
        client,
        server,
    } = &setup().await?;
    let producer = Client::connect(&server.url()).await?;
    let counts = [("mail-a", 2), ("mail-b", 3), ("orders", 1)];
    for (name, count) in counts {
        for _ in 0..count {
            producer.queue(name)?.push("").await?;
        }
    }
    let (sender, mut seen) = seen();
    let handler = move |delivery: Delivery| {
        let _ = sender.send(delivery.queue().to_owned());
        std::future::ready(())
    };
    let worker = client
        .worker()
        .parking(Duration::from_secs(60))
        .queue(queue, handler.clone())
        .pattern(&client.pattern("mail-*")?, handler)
        .spawn()?;
    for _ in 0..6 {
        seen.next().await?;
    }
    // An exporter finds the names of the queues in the worker's health.
    let exported = async || {
        let mut exported = Vec::new();
        for (name, _) in worker.health().queues() {
            let metrics = client.queue(name)?.metrics();
            let (claimed, acked) = (
                metrics.count(Counter::Claimed),
                metrics.count(Counter::Acked),
            );
            exported.push((name.to_owned(), claimed, acked, metrics.lateness.count()));
        }
        Ok(exported)
    };
    let expected = counts.map(|(name, count)| (name.to_owned(), count, count, count));
    until("the acks", exported, |exported| *exported == expected).await?;
    within("the shutdown", worker.shutdown()).await??;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stats_say_how_long_a_parked_worker_stays_silent() -> Result<()> {
    let Setup { queue, client, .. } = &setup().await?;
    let mail = client.queue("mail-a")?;
    for queue in [queue, &mail] {
        queue.configure(QueueLimits::new().max_attempts(5)).await?;
    }
    let worker = client
        .worker()
        .parking(Duration::from_secs(60))
        .queue(queue, |_: Delivery| std::future::ready(()))
        .pattern(&client.pattern("mail-*")?, |_: Delivery| {
            std::future::ready(())
        })
        .spawn()?;
    let stats = until(
        "parked",
        async || Ok(mail.stats().await?),
        |stats| stats.parked_ms > 5_000,
    )
    .await?;
    assert!(stats.parked_ms <= 60_000 && stats.nodes == 1, "{stats:?}");
    let named = until(
        "a node",
        async || Ok(queue.stats().await?),
        |stats| stats.nodes == 1,
    )
    .await?;
    assert_eq!(named.parked_ms, 0);
    within("the shutdown", worker.shutdown()).await??;
    Ok(())
}
