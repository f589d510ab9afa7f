//! Changing the number of partitions.

use std::time::Duration;

use anyhow::Result;
use dueq::{Cancelled, ErrorKind, Limits, Pushed, State};

use crate::support::{HOUR, ids, messages, setup};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_with_messages_keeps_its_partitions() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    for before in [1, 3] {
        queue.partition_into(before).await?;
        for id in ids(20) {
            queue.push("").id(id).delay(HOUR).await?;
        }
        let error = queue.partition_into(5).await.expect_err("messages");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        assert!(error.to_string().contains("holds"), "{error}");
        assert_eq!(queue.partitions().await?.len(), before);
        assert_eq!(queue.stats().await?.scheduled, 20);
        // Nothing waits for the partitions.
        assert!(queue.push("").id("more").delay(HOUR).await?.is_created());
        assert_eq!(queue.purge(State::Scheduled).await?, 21);
    }
    for count in [0, 257] {
        let error = queue.partition_into(count).await.expect_err("out of range");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_and_pause_follow_a_queue_to_its_partitions() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    queue
        .configure(Limits::new().max_messages(Some(1_000)).max_crashes(2))
        .await?;
    queue.pause().await?;
    queue.pause_for(HOUR).await?;
    queue.partition_into(4).await?;
    let each = |stats: &dueq::Stats| {
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
async fn what_ended_is_remembered_before_partitions_change() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    queue.push("").id("a").delay(HOUR).await?;
    assert_eq!(queue.cancel("a").await?, Cancelled::Cancelled);
    let began = std::time::Instant::now();
    queue.partition_into(3).await?;
    // A repetition of the push might otherwise store the message a second time.
    assert!(
        began.elapsed() > Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn producers_wait_while_the_partitions_change() -> Result<()> {
    let setup = setup().await?;
    let queue = setup.queue.clone();
    queue.pause().await?;
    for count in [4, 9, 2, 1, 12] {
        let pushing = queue.clone();
        let pushes = tokio::spawn(async move { pushing.push_many(messages(200)).await });
        // Either the pushes come first, or the change.
        match queue.partition_into(count).await {
            Ok(()) => {}
            Err(error) => assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}"),
        }
        for receipt in pushes.await? {
            assert_eq!(receipt?.outcome(), Pushed::Created);
        }
        assert_eq!(queue.stats().await?.scheduled, 200);
        queue.delete().await?;
    }
    Ok(())
}
