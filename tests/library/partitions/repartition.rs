//! Changing the number of partitions.

use std::time::Duration;

use anyhow::Result;
use dueq::outcomes::CancelOutcome;
use dueq::{ErrorKind, OnConflict, QueueLimits};
use tokio::task::JoinSet;

use crate::support::{HOUR, Setup, ids, messages, setup};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_number_of_partitions_out_of_range_is_refused() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    for count in [0, 257] {
        let error = queue.partition_into(count).await.expect_err("out of range");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_and_pause_are_kept_by_a_repartition() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    queue
        .configure(QueueLimits::new().max_messages(Some(1_000)).max_crashes(2))
        .await?;
    queue.pause().await?;
    queue.pause_for(HOUR).await?;
    queue.partition_into(4).await?;
    let each = |stats: &dueq::QueueStats| {
        assert!(stats.closed_ms > 3_500_000, "{}", stats.closed_ms);
        (stats.max_messages, stats.max_crashes, stats.paused)
    };
    for partition in queue.partitions().await? {
        assert_eq!(
            each(&partition.stats),
            (250, 2, true),
            "{}",
            partition.index
        );
    }
    queue.partition_into(10).await?;
    for partition in queue.partitions().await? {
        assert_eq!(
            each(&partition.stats),
            (100, 2, true),
            "{}",
            partition.index
        );
    }
    queue.partition_into(1).await?;
    assert_eq!(each(&queue.stats().await?), (1_000, 2, true));
    let keys: Vec<String> = setup.command(&["KEYS", "dueq:{*/*"]).await?;
    assert_eq!(keys, [] as [String; 0], "emptied partitions are removed");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_change_only_after_ended_ids_are_forgotten() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    queue.push("").id("a").delay(HOUR).await?;
    assert_eq!(queue.cancel("a").await?, CancelOutcome::Cancelled);
    let time = queue.end_of("a").await?.expect("it was cancelled");
    queue.partition_into(3).await?;
    // Otherwise a repeated push could store its message a second time.
    let after_ms = setup.client.server_time().await?.now_ms() - time.ended_at_ms;
    assert!(after_ms >= 12_000, "{after_ms} ms after the cancel");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rate_and_max_leased_are_divided_among_new_partitions() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let second = Duration::from_secs(1);
    let limits = QueueLimits::new().rate(103, second).burst(9).max_leased(9);
    queue.configure(limits.max_throttle(5 * second)).await?;
    let all = async || -> Result<_> {
        let stats = queue.stats().await?;
        let rate = stats.rate.expect("a rate");
        assert_eq!((rate.window, stats.max_throttle_ms), (second, 5_000));
        Ok((rate.starts, rate.burst, stats.max_leased))
    };
    assert_eq!(all().await?, (103, 9, 9));
    queue.partition_into(4).await?;
    for partition in queue.partitions().await? {
        let (stats, rate) = (&partition.stats, partition.stats.rate.expect("a rate"));
        assert_eq!((rate.starts, rate.burst, stats.max_leased), (25, 2, 2));
    }
    assert_eq!(all().await?, (100, 8, 8));
    let error = queue.partition_into(9).await.expect_err("max_leased is 8");
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    assert_eq!(queue.partitions().await?.len(), 4);
    queue.partition_into(2).await?;
    assert_eq!(all().await?, (100, 8, 8));
    queue.partition_into(1).await?;
    assert_eq!(all().await?, (100, 8, 8));
    queue
        .configure(QueueLimits::new().no_rate().no_max_leased())
        .await?;
    queue.partition_into(3).await?;
    let stats = queue.stats().await?;
    assert_eq!((stats.rate, stats.max_leased), (None, 0));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn throttle_closes_every_partition_of_the_queue() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    queue.partition_into(4).await?;
    for receipt in queue.push_many(messages(100)).await {
        assert!(receipt?.is_created());
    }
    let deliveries = queue.claim(64, HOUR).await?;
    let before = script_calls(&setup).await?;
    let mut throttles = JoinSet::new();
    for (n, delivery) in deliveries.into_iter().enumerate() {
        let seconds = if n == 17 { 60 } else { 30 };
        throttles.spawn(async move { delivery.throttle(Duration::from_secs(seconds)).await });
    }
    for throttled in throttles.join_all().await {
        assert!(matches!(
            throttled?,
            dueq::outcomes::ThrottleOutcome::Until(_)
        ));
    }
    let calls = script_calls(&setup).await? - before;
    println!("64 throttles took {calls} calls");
    assert!(calls < 64, "{calls} calls");
    for partition in queue.partitions().await? {
        let closed_ms = partition.stats.closed_ms;
        assert!(
            closed_ms > 50_000,
            "partition {}: {closed_ms}",
            partition.index
        );
    }
    assert!(queue.claim(10, HOUR).await?.is_empty());
    queue.resume().await?;
    let again = queue.claim(10, HOUR).await?;
    assert!(!again.is_empty() && again.iter().all(|one| one.attempt() == 1));
    Ok(())
}

/// How many script calls the server has executed.
async fn script_calls(setup: &Setup) -> Result<u64> {
    let stats: String = setup.command(&["INFO", "commandstats"]).await?;
    let line = stats
        .lines()
        .find(|line| line.starts_with("cmdstat_evalsha"));
    let calls = line.and_then(|line| line.split(['=', ',']).nth(1));
    Ok(calls.and_then(|calls| calls.parse().ok()).unwrap_or(0))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn layout_3_and_its_limits_are_kept_by_a_repartition() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let limits = QueueLimits::new().layout3().max_remembered(1_000);
    queue.configure(limits).await?;
    for (count, each) in [(4, 250), (2, 500), (1, 1_000)] {
        queue.partition_into(count).await?;
        for partition in queue.partitions().await? {
            assert_eq!(partition.stats.max_remembered, each, "{count}");
        }
        assert_eq!(queue.stats().await?.max_remembered, 1_000);
    }
    queue.partition_into(3).await?;
    for id in ids(20) {
        let push = queue.push("").id(&id).delay(HOUR);
        assert!(push.on_conflict(OnConflict::Next).await?.is_created());
    }
    Ok(())
}
