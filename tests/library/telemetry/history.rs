//! The history of a queue counts what several workers did, across their restarts.

use std::time::Duration;

use anyhow::{Context, Result};
use dueq::inspect::{HistoryPoint, HistoryResolution};
use dueq::{Client, Delivery, Queue, QueueLimits};

use crate::support::{Running, Setup, messages, push_all, seen, setup, stats_until, until, within};

/// Waits until the partition with this base has a first record of its history.
async fn begun(setup: &Setup, base: &str) -> Result<()> {
    let meta = format!("{base}:meta");
    let words = ["HEXISTS", &meta, "history"];
    let begun = async || setup.command::<bool>(&words).await;
    until("the first report", begun, |begun| *begun).await?;
    Ok(())
}

/// The sum of all points of the history. The test may span two days.
async fn sum(queue: &Queue) -> Result<HistoryPoint> {
    let history = queue.history(HistoryResolution::Days).await?;
    history.sum(0..u64::MAX).context("no history")
}

fn sleeping(queue: &Queue, concurrency: usize) -> Running {
    let handler = |_: Delivery| tokio::time::sleep(Duration::from_millis(3));
    Running::start(queue.worker().concurrency(concurrency), handler)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn history_adds_up_workers_and_their_restarts() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    queue.configure(QueueLimits::new().max_attempts(9)).await?;
    let history = queue.history(HistoryResolution::Minutes).await?;
    assert_eq!(history.points, [], "no worker has run");
    let other = Client::connect(&setup.server.url()).await?;
    let other = other.queue("orders")?;
    for round in 1..=2 {
        let workers = [sleeping(queue, 4), sleeping(&other, 4)];
        begun(&setup, "dueq:{orders}").await?;
        push_all(queue, messages(50)).await?;
        let acked = 50 * round;
        stats_until(queue, "all acked", |stats| stats.acked == acked).await?;
        // A node that stops reports its remaining counts.
        for worker in workers {
            worker.stop().await?;
        }
        let sum = sum(queue).await?;
        assert_eq!((sum.pushed, sum.claimed, sum.acked), (acked, acked, acked));
        assert_eq!((sum.lateness.count(), sum.handling.count()), (acked, acked));
        assert_eq!(
            (sum.scheduled, sum.ready, sum.leased, sum.dead),
            (0, 0, 0, 0)
        );
        let handled_us = sum.handling.quantile_us(0.01).context("a time")?;
        assert!(handled_us >= 3_000, "{handled_us}");
    }
    for resolution in [HistoryResolution::Minutes, HistoryResolution::Hours] {
        let history = queue.history(resolution).await?;
        let all = history.sum(0..u64::MAX).context("no history")?;
        assert_eq!(all.lateness.count(), 100, "{history:?}");
    }
    queue.delete().await?;
    assert_eq!(queue.history(HistoryResolution::Days).await?.points, []);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn history_percentiles_match_the_metrics_within_a_bucket() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    queue.configure(QueueLimits::new().max_attempts(9)).await?;
    let (sender, mut seen) = seen();
    let handler = move |delivery: Delivery| {
        let _ = sender.send(delivery.id().into_owned());
        let ms = own_ms(&delivery);
        tokio::time::sleep(Duration::from_millis(ms))
    };
    let worker = Running::start(queue.worker().concurrency(20), handler);
    begun(&setup, "dueq:{orders}").await?;
    push_all(queue, messages(100)).await?;
    for _ in 0..100 {
        seen.next().await?;
    }
    stats_until(queue, "all acked", |stats| stats.acked == 100).await?;
    worker.stop().await?;
    let (sum, metrics) = (sum(queue).await?, queue.metrics());
    for part in [0.01, 0.5, 0.9, 0.99, 1.0] {
        for (coarse, fine) in [
            (&sum.lateness, &metrics.lateness),
            (&sum.handling, &metrics.handling),
        ] {
            assert_eq!(coarse.count(), fine.count());
            let (coarse, fine) = (coarse.quantile_us(part), fine.quantile_us(part));
            let (coarse, fine) = (coarse.context("none")?, fine.context("none")?);
            // The fine bound is at most an eighth too high, the coarse one at most by the root of
            // two.
            let most = (fine as f64 * 1.4143 + 1.0).max(128.0);
            assert!(
                coarse as f64 * 1.13 >= fine as f64 && coarse as f64 <= most,
                "{part}: {coarse} for {fine}"
            );
        }
    }
    Ok(())
}

/// A handling time of 0 to 30 ms that the id decides.
fn own_ms(delivery: &Delivery) -> u64 {
    delivery
        .id()
        .bytes()
        .fold(7, |sum, byte| (sum * 31 + u64::from(byte)) % 31)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn history_of_a_queue_adds_up_its_partitions() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    queue.partition_into(3).await?;
    let worker = sleeping(queue, 8);
    for partition in queue.partitions().await? {
        let base = match partition.tag.as_str() {
            "-" => "dueq:{orders}".to_owned(),
            tag => format!("dueq:{{orders/{tag}}}"),
        };
        begun(&setup, &base).await?;
    }
    push_all(queue, messages(60)).await?;
    stats_until(queue, "all acked", |stats| stats.acked == 60).await?;
    within("the stop", worker.stop()).await??;
    let sum = sum(queue).await?;
    assert_eq!((sum.pushed, sum.acked, sum.lateness.count()), (60, 60, 60));
    Ok(())
}
