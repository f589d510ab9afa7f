//! Partitions whose server lost them or their map.

use anyhow::Result;
use dueq::outcomes::PushOutcome;
use dueq::{Applied, Client, ErrorKind, MessageState, QueueLimits};

use super::{base, remap};
use crate::support::{HOUR, LONG, Setup, ids, messages, setup};

/// Deletes the keys of a partition, as if its master had come back empty.
async fn lose(setup: &Setup, tag: &str) -> Result<()> {
    let keys: Vec<String> = setup
        .command(&["KEYS", &format!("{}:*", base(setup, tag))])
        .await?;
    let mut words = vec!["DEL"];
    words.extend(keys.iter().map(String::as_str));
    setup.command::<()>(&words).await
}

async fn map_of(setup: &Setup, tag: &str) -> Result<Option<String>> {
    let meta = format!("{}:meta", base(setup, tag));
    setup.command(&["HGET", &meta, "map"]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_partition_gets_the_map_from_the_next_call() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    queue.partition_into(3).await?;
    let tags: Vec<String> = queue
        .partitions()
        .await?
        .into_iter()
        .map(|one| one.tag)
        .collect();
    for tag in &tags[1..] {
        lose(&setup, tag).await?;
    }
    // Only a call with the map creates a partition, so that no client with an old map can.
    assert_eq!(queue.stats().await?.scheduled, 0);
    assert!(queue.claim(10, LONG).await?.is_empty());
    assert_eq!(map_of(&setup, &tags[1]).await?, None);
    for receipt in queue.push_many(messages(60)).await {
        assert_eq!(receipt?.outcome(), PushOutcome::Created);
    }
    for id in ids(60) {
        assert!(queue.get(&id).await?.is_some(), "{id}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_partition_gets_the_limits_of_the_queue_again() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let limits = QueueLimits::new().max_messages(Some(300)).max_crashes(2);
    queue.configure(limits).await?;
    queue.partition_into(3).await?;
    let partitions = queue.partitions().await?;
    lose(&setup, &partitions[1].tag).await?;
    // A producer's client creates the partition, but has no right to set limits.
    for receipt in queue.push_many(messages(60)).await {
        assert!(receipt?.is_created());
    }
    lose(&setup, &partitions[2].tag).await?;
    queue.partition_into(3).await?;
    for partition in queue.partitions().await? {
        let stats = &partition.stats;
        assert_eq!(
            (stats.max_messages, stats.max_crashes),
            (100, 2),
            "{}",
            partition.index
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_partition_gets_the_pause_and_limits_again() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    queue.configure(QueueLimits::new().max_crashes(2)).await?;
    queue.partition_into(3).await?;
    queue.pause().await?;
    let tags = queue.partitions().await?;
    // If the home is lost, its state comes from another partition that still exists.
    for tag in [&tags[1].tag, "-"] {
        lose(&setup, tag).await?;
        for receipt in queue.push_many(messages(60)).await {
            receipt?;
        }
        for partition in queue.partitions().await? {
            let stats = &partition.stats;
            assert_eq!((stats.paused, stats.max_crashes), (true, 2), "{tag}");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deletion_is_refused_if_a_key_has_a_foreign_type() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    queue.partition_into(3).await?;
    for receipt in queue.push_many(messages(60)).await {
        assert!(receipt?.is_created());
    }
    let tags: Vec<String> = queue
        .partitions()
        .await?
        .into_iter()
        .map(|it| it.tag)
        .collect();
    for tag in &tags {
        let foreign = format!("{}:dead", base(&setup, tag));
        setup.command::<()>(&["RENAME", &foreign, "kept"]).await?;
        setup.command::<()>(&["SET", &foreign, "x"]).await?;
        let error = queue.delete().await.expect_err("a string");
        assert_eq!(
            (error.kind(), error.was_applied()),
            (ErrorKind::Server, Applied::No)
        );
        setup.command::<()>(&["RENAME", "kept", &foreign]).await?;
        assert_eq!(queue.stats().await?.scheduled, 60, "{tag}");
    }
    assert!(queue.delete().await?);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_home_that_lost_its_map_gets_it_from_the_others() -> Result<()> {
    for lost in ["all", "the newest map"] {
        let setup = setup().await?;
        let queue = &setup.queue;
        queue.partition_into(3).await?;
        let map = map_of(&setup, "-").await?.expect("a map");
        lose(&setup, "-").await?;
        if lost == "the newest map" {
            remap(&setup, "-", &["forward", "7|-|- 5"]).await?;
        }
        for receipt in queue.push_many(messages(60)).await {
            assert_eq!(receipt?.outcome(), PushOutcome::Created);
        }
        assert_eq!(map_of(&setup, "-").await?, Some(map));
        assert_eq!(queue.partitions().await?.len(), 3);
        let fresh = Client::connect(&setup.server.url())
            .await?
            .queue(queue.name())?;
        for id in ids(60) {
            assert!(fresh.get(&id).await?.is_some(), "{id}");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_that_lost_all_keys_has_one_partition() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    queue.partition_into(3).await?;
    setup.command::<()>(&["FLUSHALL"]).await?;
    for receipt in queue.push_many(messages(60)).await {
        assert_eq!(receipt?.outcome(), PushOutcome::Created);
    }
    assert_eq!(queue.partitions().await?.len(), 1);
    assert_eq!(queue.stats().await?.scheduled, 60);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreadable_map_is_named_and_changes_nothing() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    queue.partition_into(3).await?;
    for (wrong, reason) in [
        ("nonsense", "three parts"),
        ("7|-|- 5 5", "a tag twice"),
        ("7|5|5", "no partition 0"),
    ] {
        let meta = format!("{}:meta", base(&setup, "-"));
        setup
            .command::<()>(&["HSET", &meta, "map", wrong, "epoch", "7"])
            .await?;
        let fresh = Client::connect(&setup.server.url())
            .await?
            .queue(queue.name())?;
        let error = fresh.push("").id("a").delay(HOUR).await.expect_err(wrong);
        assert_eq!(error.kind(), ErrorKind::Server, "{error}");
        assert!(error.to_string().contains(reason), "{error}");
        let error = fresh.partition_into(5).await.expect_err(wrong);
        assert!(error.to_string().contains(reason), "{error}");
        assert_eq!(map_of(&setup, "-").await?.as_deref(), Some(wrong));
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_with_an_outdated_map_creates_no_partition() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    queue.partition_into(4).await?;
    let asleep = Client::connect(&setup.server.url())
        .await?
        .queue(queue.name())?;
    asleep.stats().await?;
    queue.partition_into(1).await?;
    for receipt in asleep.push_many(messages(40)).await {
        assert_eq!(receipt?.outcome(), PushOutcome::Created);
    }
    let left: Vec<String> = setup.command(&["KEYS", "dueq:{*/*"]).await?;
    assert_eq!(left, [] as [String; 0]);
    assert_eq!(queue.purge(MessageState::Scheduled).await?, 40);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_examines_and_repairs_every_partition() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    queue.partition_into(3).await?;
    for receipt in queue.push_many(messages(30)).await {
        receipt?;
    }
    assert_eq!(queue.examine(false).await?.findings, []);
    let tag = queue.partitions().await?.remove(1).tag;
    let key = |suffix: &str| format!("{}:{suffix}", base(&setup, &tag));
    let ids: Vec<String> = setup
        .command(&["ZRANGE", &key("scheduled"), "0", "0"])
        .await?;
    setup
        .command::<()>(&["ZREM", &key("scheduled"), &ids[0]])
        .await?;
    for repair in [false, true] {
        // This client does not know the map yet.
        let fresh = Client::connect(&setup.server.url())
            .await?
            .queue(queue.name())?;
        let findings = fresh.examine(repair).await?.findings;
        assert_eq!(findings.len(), 1, "{findings:?}");
        let found = &findings[0];
        assert_eq!((found.code, found.repaired), ("unplaced", repair));
        assert!(
            found.problem.starts_with(&format!("partition 1 ({tag}): ")),
            "{found:?}"
        );
    }
    assert_eq!(queue.stats().await?.dead, 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_writes_a_newer_map_to_the_home() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    queue.partition_into(3).await?;
    let map = map_of(&setup, "-").await?.expect("a map");
    let (_, tags) = map.split_once('|').expect("an epoch");
    lose(&setup, "-").await?;
    remap(&setup, "-", &["forward", &format!("7|{tags}")]).await?;
    for repair in [false, true] {
        let fresh = Client::connect(&setup.server.url())
            .await?
            .queue(queue.name())?;
        let findings = fresh.examine(repair).await?.findings;
        let newer = findings.iter().find(|found| found.code == "map");
        let newer = newer.expect("a finding");
        assert!(newer.problem.contains("newer than the home's"), "{newer:?}");
        assert_eq!(newer.repaired, repair);
    }
    assert_eq!(map_of(&setup, "-").await?, Some(map));
    Ok(())
}
