//! Requeues, purges and audits in steps, and the deletion of one given incarnation of a queue.

use std::time::Duration;

use anyhow::Result;
use dueq::admin::{BulkEnd, BulkSteps};
use dueq::outcomes::DeleteOutcome;
use dueq::{Due, Message, MessageState, Queue};

use super::selections::FAR_MS;
use crate::support::proxy::Proxy;
use crate::support::{HOUR, Setup, ids, messages, push_all, setup};

/// A queue with this many partitions and dead messages, and the time of the last death.
async fn dead(partitions: usize, count: usize) -> Result<(Setup, u64)> {
    let setup = setup().await?;
    let queue = &setup.queue;
    if partitions > 1 {
        queue.partition_into(partitions).await?;
    }
    push_all(queue, messages(count)).await?;
    bury(queue, count).await?;
    let last = queue
        .list_newest(MessageState::Dead, None, 1)
        .await?
        .messages;
    let last_ms = last[0].time_ms;
    Ok((setup, last_ms))
}

/// Buries this many of the due messages.
async fn bury(queue: &Queue, count: usize) -> Result<()> {
    let mut buried = 0;
    while buried < count {
        for delivery in queue.claim(100, HOUR).await? {
            let _ = delivery.bury("no").await?;
            buried += 1;
        }
    }
    Ok(())
}

/// Waits until the server's clock is past this time.
async fn after(queue: &Queue, ms: u64) -> Result<()> {
    while queue.dues(&[]).await?.now_ms <= ms {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

/// Makes steps of `limit` messages until the end. Returns how many messages each step dealt with.
async fn all(steps: &mut BulkSteps, limit: usize) -> Result<(Vec<u64>, BulkEnd)> {
    let mut each = Vec::new();
    loop {
        let before = steps.done();
        let progress = steps.step(limit).await?;
        assert!(progress.done <= before + limit as u64, "{progress:?}");
        each.push(progress.done - before);
        if let Some(end) = progress.end {
            let again = steps.step(limit).await?;
            assert_eq!(again, progress, "after the end a step does nothing");
            return Ok((each, end));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requeue_in_steps_leaves_messages_that_died_later() -> Result<()> {
    for partitions in [1, 3] {
        let (setup, before_ms) = dead(partitions, 60).await?;
        let queue = &setup.queue;
        after(queue, before_ms).await?;
        push_all(queue, vec![Message::new("").id("later")]).await?;
        bury(queue, 1).await?;
        let mut steps = queue.requeue_steps(before_ms);
        assert!(steps.step(0).await.is_err() && steps.step(1_001).await.is_err());
        let first = steps.peek(5).await?;
        let progress = steps.step(5).await?;
        assert_eq!((progress.done, progress.end), (5, None));
        assert_eq!(progress.left, (partitions == 1).then_some(55));
        for id in &first {
            let stored = queue.get(id).await?.expect("it is due");
            assert_eq!(stored.state, MessageState::Scheduled);
        }
        // The messages die again, and the steps leave them dead.
        bury(queue, 5).await?;
        let (_, end) = all(&mut steps, 7).await?;
        assert_eq!((steps.done(), end), (60, BulkEnd::Complete));
        let stats = queue.stats().await?;
        assert_eq!((stats.dead, stats.requeued), (6, 60));
        // A time in the future selects the messages that are dead now.
        let mut steps = queue.requeue_steps(u64::MAX);
        let (each, _) = all(&mut steps, 1_000).await?;
        assert_eq!((steps.done(), each.len()), (6, partitions));
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn purge_in_steps_ends_while_producers_push() -> Result<()> {
    for partitions in [1, 3] {
        let setup = setup().await?;
        let queue = &setup.queue;
        if partitions > 1 {
            queue.partition_into(partitions).await?;
        }
        let due = |id: String| Message::new("").id(id).due(Due::at_ms(FAR_MS));
        push_all(queue, ids(60).into_iter().map(due).collect()).await?;
        assert!(queue.purge_steps(MessageState::Leased, 1).is_err());
        let mut steps = queue.purge_steps(MessageState::Scheduled, FAR_MS)?;
        let mut pushed = 0;
        loop {
            let progress = steps.step(10).await?;
            // As many further messages as a step removes. They are selected, too.
            push_all(
                queue,
                (0..10)
                    .map(|_| due(format!("new-{pushed}-{}", rand())))
                    .collect(),
            )
            .await?;
            pushed += 10;
            if let Some(end) = progress.end {
                assert_eq!(end, BulkEnd::Complete);
                break;
            }
            assert!(pushed < 10_000, "it does not end");
        }
        assert_eq!(queue.stats().await?.scheduled, 60 + pushed - steps.done());
        let none = queue
            .purge_steps(MessageState::Scheduled, FAR_MS - 1)?
            .step(10)
            .await?;
        assert_eq!((none.done, none.end.is_some()), (0, partitions == 1));
    }
    Ok(())
}

/// A number that differs in each run.
fn rand() -> u64 {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn steps_end_when_the_queue_is_created_again() -> Result<()> {
    let (setup, before_ms) = dead(1, 20).await?;
    let queue = &setup.queue;
    let mut steps = queue.requeue_steps(before_ms);
    assert_eq!(steps.step(5).await?.end, None);
    queue.delete().await?;
    push_all(queue, messages(1)).await?;
    let progress = steps.step(5).await?;
    assert_eq!((progress.done, progress.end), (5, Some(BulkEnd::QueueGone)));
    assert!(steps.peek(5).await?.is_empty());
    assert_eq!(steps.step(5).await?, progress);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn steps_spare_messages_of_a_recreated_queue() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let due = |id: String| Message::new("").id(id).due(Due::at_ms(FAR_MS));
    push_all(queue, ids(20).into_iter().map(due).collect()).await?;
    let mut steps = queue.purge_steps(MessageState::Scheduled, FAR_MS)?;
    assert_eq!(steps.step(5).await?.end, None);
    queue.delete().await?;
    push_all(queue, ids(3).into_iter().map(due).collect()).await?;
    let progress = steps.step(5).await?;
    assert_eq!((progress.done, progress.end), (5, Some(BulkEnd::QueueGone)));
    assert_eq!(
        queue.stats().await?.scheduled,
        3,
        "they are of another queue"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn step_with_a_lost_reply_is_not_repeated() -> Result<()> {
    let (setup, before_ms) = dead(1, 20).await?;
    let proxy = Proxy::start(setup.server.port()).await?;
    let client = dueq::Client::connect(&proxy.url()).await?;
    let mut steps = client.queue(setup.queue.name())?.requeue_steps(before_ms);
    steps.step(5).await?;
    proxy.cut_reply_of(include_str!("../../../lua/dist/requeue.lua"));
    let error = steps.step(5).await.expect_err("the reply is lost");
    assert_eq!(error.was_applied(), dueq::Applied::Unknown);
    let (_, end) = all(&mut steps, 5).await?;
    // The five messages of the lost reply were purged but not counted.
    assert_eq!((steps.done(), end), (15, BulkEnd::Complete));
    let stats = setup.queue.stats().await?;
    assert_eq!((stats.dead, stats.requeued), (0, 20));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn audit_in_steps_finds_and_repairs_as_examine_does() -> Result<()> {
    for partitions in [1, 3] {
        let setup = setup().await?;
        let queue = &setup.queue;
        if partitions > 1 {
            queue.partition_into(partitions).await?;
        }
        push_all(
            queue,
            (0..600)
                .map(|number| Message::new("").id(format!("{number}")).due(HOUR))
                .collect(),
        )
        .await?;
        for id in ["1", "2", "3"] {
            let keys = queue.keys_of(id).await?;
            let _: u64 = setup.command(&["HDEL", &keys[4], id]).await?;
        }
        let expected = queue.examine(false).await?.findings;
        assert_eq!(expected.len(), 3, "{expected:?}");
        for repair in [false, true, false] {
            let mut steps = queue.audit_steps(repair);
            assert!(steps.step(0).await.is_err());
            let (mut found, mut looked) = (Vec::new(), 0);
            loop {
                let progress = steps.step(100).await?;
                looked += progress.looked;
                found.extend(progress.findings);
                if progress.is_end {
                    break;
                }
            }
            assert!(looked >= 1_190, "{looked}");
            assert!(steps.step(100).await?.is_end);
            let left = queue.examine(false).await?.findings.len();
            let repaired = found.iter().filter(|finding| finding.repaired).count();
            match (repair, left) {
                (true, 0) => assert_eq!((found.len(), repaired), (3, 3)),
                (false, 3) => assert_eq!((found.len(), repaired), (3, 0)),
                (false, 0) => assert!(found.is_empty(), "{found:?}"),
                other => panic!("{other:?}"),
            }
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_given_incarnation_of_a_queue_is_deleted() -> Result<()> {
    for partitions in [1, 3] {
        let setup = setup().await?;
        let queue = &setup.queue;
        assert_eq!(queue.delete_incarnation("x").await?, DeleteOutcome::Absent);
        queue.partition_into(partitions).await?;
        push_all(queue, messages(30)).await?;
        let old = queue.incarnation().await?.expect("it exists");
        queue.delete().await?;
        assert_eq!(queue.delete_incarnation(&old).await?, DeleteOutcome::Absent);
        queue.partition_into(partitions).await?;
        push_all(queue, messages(30)).await?;
        assert_eq!(
            queue.delete_incarnation(&old).await?,
            DeleteOutcome::Changed
        );
        assert_eq!(queue.stats().await?.scheduled, 30, "nothing was deleted");
        let new = queue.incarnation().await?.expect("it exists");
        assert_ne!(old, new);
        assert_eq!(
            queue.delete_incarnation(&new).await?,
            DeleteOutcome::Deleted
        );
        let keys: Vec<String> = setup.command(&["KEYS", "dueq:*"]).await?;
        assert!(keys.is_empty(), "{keys:?}");
    }
    Ok(())
}

/// Another operator deletes the queue after this deletion has read the incarnation, and creates it
/// again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queue_recreated_during_a_deletion_is_kept() -> Result<()> {
    let setup = setup().await?;
    push_all(&setup.queue, messages(3)).await?;
    let old = setup.queue.incarnation().await?.expect("it exists");
    let proxy = Proxy::start(setup.server.port()).await?;
    let client = dueq::Client::connect(&proxy.url()).await?;
    let queue = client.queue(setup.queue.name())?;
    let meta = &queue.keys()[9];
    let again = ["HSET", meta, "incarnation", "another"];
    proxy.after_call_of(include_str!("../../../lua/dist/stats.lua"), &again);
    assert_eq!(
        queue.delete_incarnation(&old).await?,
        DeleteOutcome::Changed
    );
    assert_eq!(setup.queue.stats().await?.scheduled, 3);
    assert_eq!(
        queue.delete_incarnation("another").await?,
        DeleteOutcome::Deleted
    );
    Ok(())
}

/// During the deletion of the queue, one partition gets a newer map than the deleted queue has. It
/// belongs to a queue that was created again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partition_with_a_newer_map_survives_a_deletion() -> Result<()> {
    let setup = setup().await?;
    setup.queue.partition_into(3).await?;
    push_all(&setup.queue, messages(30)).await?;
    let old = setup.queue.incarnation().await?.expect("it exists");
    let home = setup.queue.keys()[9].clone();
    let all: Vec<String> = setup.command(&["KEYS", "dueq:*:meta"]).await?;
    let other = all.iter().find(|meta| **meta != home).expect("another");
    let proxy = Proxy::start(setup.server.port()).await?;
    let client = dueq::Client::connect(&proxy.url()).await?;
    let queue = client.queue(setup.queue.name())?;
    // Set after the deletion has closed the home, and before it deletes the other partitions.
    let newer = ["HSET", other, "epoch", "9000000000000000"];
    proxy.after_call_of(include_str!("../../../lua/dist/remap.lua"), &newer);
    let messages = other.replace(":meta", ":messages");
    let held: u64 = setup.command(&["HLEN", &messages]).await?;
    assert_eq!(
        queue.delete_incarnation(&old).await?,
        DeleteOutcome::Deleted
    );
    let left: u64 = setup.command(&["HLEN", &messages]).await?;
    assert!(held > 1 && left == held, "{left} of {held}");
    Ok(())
}
