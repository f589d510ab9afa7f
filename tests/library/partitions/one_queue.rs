//! A queue of several partitions is one queue to its callers.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Result;
use dueq::outcomes::{
    CancelOutcome, PushOutcome, RequeueOutcome, RescheduleOutcome, RunNowOutcome, SettleOutcome,
};
use dueq::{Client, Due, ErrorKind, Message, MessageState, OnConflict, QueueLimits};

use crate::support::{HOUR, LONG, ids, messages, setup};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_verb_finds_an_id_in_its_partition() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    queue.partition_into(12).await?;
    for id in ids(40) {
        let receipt = queue.push("payload").id(&id).delay(HOUR).await?;
        assert_eq!(receipt.outcome(), PushOutcome::Created);
        let again = queue.push("payload").id(&id).delay(HOUR).await?;
        assert_eq!(
            again.outcome(),
            PushOutcome::Exists(MessageState::Scheduled)
        );
        let moved = queue.push("payload").id(&id).delay(2 * HOUR);
        let moved = moved.on_conflict(OnConflict::Reschedule).await?;
        assert_eq!(moved.outcome(), PushOutcome::Moved);
        let due_ms = 2_000_000_000_000;
        let outcome = queue.reschedule(&id, Due::at_ms(due_ms)).await?;
        assert_eq!(outcome, RescheduleOutcome::Moved(due_ms));
        let stored = queue.get(&id).await?.expect("it waits");
        assert_eq!(
            (stored.time_ms, &*stored.payload),
            (due_ms, &b"payload"[..])
        );
        let keys = queue.keys_of(&id).await?;
        let found: String = setup.command(&["HGET", &keys[4], &id]).await?;
        assert_eq!(found, "payload");
    }
    assert_eq!(queue.stats().await?.scheduled, 40);
    for id in ids(20) {
        assert_eq!(queue.cancel(&id).await?, CancelOutcome::Cancelled);
        assert_eq!(queue.get(&id).await?, None);
    }
    for id in ids(40).split_off(20) {
        assert_eq!(queue.run_now(&id).await?, RunNowOutcome::Moved);
    }
    let mut claimed = BTreeSet::new();
    while claimed.len() < 20 {
        for delivery in queue.claim(7, LONG).await? {
            claimed.insert(delivery.id().into_owned());
            assert_eq!(delivery.bury("refused").await?, SettleOutcome::Done);
        }
    }
    assert_eq!(queue.stats().await?.dead, 20);
    for id in &claimed {
        assert_eq!(queue.requeue(id).await?, RequeueOutcome::Requeued);
    }
    assert_eq!(queue.stats().await?.dead, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_without_the_map_learns_it_from_a_refusal() -> Result<()> {
    let setup = setup().await?;
    let other = Client::connect(&setup.server.url())
        .await?
        .queue(setup.queue.name())?;
    // This client assumes a single partition.
    assert_eq!(other.stats().await?.pushed, 0);
    setup.queue.partition_into(5).await?;
    for receipt in other.push_many(messages(500)).await {
        assert_eq!(receipt?.outcome(), PushOutcome::Created);
    }
    for receipt in setup.queue.push_many(messages(500)).await {
        assert_eq!(
            receipt?.outcome(),
            PushOutcome::Exists(MessageState::Scheduled)
        );
    }
    let partitions = setup.queue.partitions().await?;
    let held: Vec<u64> = partitions.iter().map(|one| one.stats.scheduled).collect();
    assert_eq!(held.iter().sum::<u64>(), 500);
    assert!(held.iter().all(|held| *held > 50), "{held:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pushes_with_ids_of_the_library_share_calls() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    queue.partition_into(12).await?;
    setup.command::<()>(&["CONFIG", "RESETSTAT"]).await?;
    let unnamed = (0..256).map(|_| Message::new("").due(HOUR));
    for receipt in queue.push_many(unnamed).await {
        assert_eq!(receipt?.outcome(), PushOutcome::Created);
    }
    let stats: String = setup.command(&["INFO", "commandstats"]).await?;
    let calls = stats
        .lines()
        .find(|line| line.starts_with("cmdstat_evalsha"));
    assert!(
        calls.is_some_and(|line| line.contains("calls=1,")),
        "{calls:?}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_are_merged_by_time_over_all_partitions() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    queue.partition_into(7).await?;
    let due = |n: u64| Due::at_ms(2_000_000_000_000 + n / 3);
    let pushes = (0..300).map(|n| Message::new("").id(format!("order:{n}")).due(due(n)));
    for receipt in queue.push_many(pushes).await {
        receipt?;
    }
    for limit in [1, 7, 100, 300, 1_000] {
        let (mut cursor, mut listed) = (None, Vec::new());
        loop {
            let page = queue
                .list(MessageState::Scheduled, cursor.as_ref(), limit)
                .await?;
            assert!(page.messages.len() <= limit);
            listed.extend(page.messages.into_iter().map(|one| (one.time_ms, one.id)));
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(listed.len(), 300, "limit {limit}");
        assert!(listed.is_sorted(), "limit {limit}");
    }
    let cursor = queue.list(MessageState::Scheduled, None, 10).await?.next;
    queue.purge(MessageState::Scheduled).await?;
    assert_eq!(queue.stats().await?.scheduled, 0);
    let page = queue
        .list(MessageState::Scheduled, cursor.as_ref(), 10)
        .await?;
    assert_eq!((page.messages.len(), page.next), (0, None));
    let wrong = dueq::inspect::MessageCursor::from_bytes("1/2");
    let error = queue.list(MessageState::Scheduled, Some(&wrong), 10).await;
    assert_eq!(
        error.expect_err("a wrong cursor").kind(),
        ErrorKind::InvalidInput
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operators_calls_reach_every_partition() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    queue.partition_into(4).await?;
    // This client does not know the map yet.
    let fresh = Client::connect(&setup.server.url())
        .await?
        .queue(queue.name())?;
    fresh.pause().await?;
    assert!(queue.partitions().await?.iter().all(|one| one.stats.paused));
    for receipt in queue.push_many(messages(100)).await {
        receipt?;
    }
    assert!(queue.claim(100, LONG).await?.is_empty());
    queue.resume().await?;
    assert!(!queue.stats().await?.paused);

    let limits = QueueLimits::new().max_messages(Some(1_001)).max_attempts(3);
    queue.configure(limits).await?;
    for partition in queue.partitions().await? {
        let stats = partition.stats;
        assert_eq!((stats.max_messages, stats.max_attempts), (251, 3));
    }
    assert_eq!(queue.stats().await?.max_messages, 1_004);

    let mut dead = 0;
    while dead < 100 {
        for delivery in queue.claim(100, LONG).await? {
            assert_eq!(delivery.bury("refused").await?, SettleOutcome::Done);
            dead += 1;
        }
    }
    let fresh = Client::connect(&setup.server.url())
        .await?
        .queue(queue.name())?;
    assert_eq!(fresh.requeue_all().await?, 100);
    assert_eq!(queue.purge(MessageState::Scheduled).await?, 100);
    assert!(queue.delete().await?);
    assert!(!queue.exists().await?);
    let left: Vec<String> = setup.command(&["KEYS", "*"]).await?;
    assert_eq!(left, [] as [String; 0]);
    // A queue that is created again has one partition.
    assert!(
        fresh
            .push("")
            .id("a")
            .delay(Duration::ZERO)
            .await?
            .is_created()
    );
    assert_eq!(queue.partitions().await?.len(), 1);
    Ok(())
}
