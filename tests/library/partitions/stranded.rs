//! Batches of messages that nobody moves any more, because the process that moved them died.

use anyhow::Result;
use dueq::admin::{AclRole, BulkEnd};
use dueq::outcomes::PushOutcome;
use dueq::{Delivery, ErrorKind, MessageState};
use tokio::sync::mpsc::unbounded_channel;

use super::live::has_all;
use super::traffic::{due, group};
use super::{call, remap};
use crate::lifecycle::rights::queue_of;
use crate::support::{HOUR, Running, Setup, push_all, setup, until, within};

/// A batch that is on its way to partition 5.
struct Batch {
    number: String,
    ids: Vec<String>,
    bytes: Vec<u8>,
}

/// Begins a change from 1 to 3 partitions.
async fn begin(setup: &Setup) -> Result<Vec<String>> {
    let ids = group("far", 60);
    push_all(&setup.queue, due(&ids, |_| HOUR)).await?;
    remap(setup, "-", &["close", "0", "7|-|- 5 9"]).await?;
    for tag in ["5", "9"] {
        remap(setup, tag, &["forward", "7|-|- 5 9"]).await?;
    }
    Ok(ids)
}

/// Takes the first messages that belong to partition 5 out of the home.
async fn strand(setup: &Setup, ids: &[String]) -> Result<Batch> {
    let mut args: Vec<&[u8]> = [&b"m7"[..], b"", b"0", b"5", b"5000"].to_vec();
    let mut gone = Vec::new();
    for id in ids {
        if gone.len() < 5 && setup.queue.keys_of(id).await?[0].contains("/5}") {
            gone.push(id.clone());
        }
    }
    args.extend(gone.iter().map(String::as_bytes));
    let (_, number, _, _, bytes): (redis::Value, i64, String, u64, Vec<u8>) =
        call(setup, "-", "dueq_depart", &args).await?;
    assert_eq!(setup.queue.stats().await?.moving, gone.len() as u64);
    Ok(Batch {
        number: number.to_string(),
        ids: gone,
        bytes,
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_on_a_message_that_nobody_moves_name_the_remedy() -> Result<()> {
    let setup = setup().await?;
    let ids = begin(&setup).await?;
    let batch = strand(&setup, &ids).await?;
    let pushed = setup.queue.push("").id(&batch.ids[0]).await;
    let error = pushed.expect_err("it is on its way");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let remedy = format!("dueq partitions {} 3", setup.queue.name());
    assert!(error.to_string().contains(&remedy), "{error}");
    setup.queue.partition_into(3).await?;
    has_all(&setup.queue, &ids, 3).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_ends_the_batch_of_a_process_that_died() -> Result<()> {
    let setup = setup().await?;
    let ids = begin(&setup).await?;
    // The rights of a consumer suffice.
    let consumer = queue_of(&setup, "consumer", AclRole::Consumer).await?;
    let worker = Running::start(consumer.worker(), |_: Delivery| async {});
    let ended = async || {
        let stats = async || Ok(setup.queue.stats().await?);
        until("the end of the batch", stats, |stats| stats.moving == 0).await
    };
    let batch = strand(&setup, &ids).await?;
    let pushed = setup.queue.push("").id(&batch.ids[0]).await?;
    let exists = PushOutcome::Exists(MessageState::Scheduled);
    assert_eq!(pushed.outcome(), exists, "a caller waits for it");
    ended().await?;
    // The process was only slow: its batch came back, and arrives no more.
    let number = batch.number.as_bytes();
    let arrive: [&[u8]; 4] = [b"m7", b"-", number, &batch.bytes];
    let late = call::<(redis::Value, String)>(&setup, "5", "dueq_arrive", &arrive).await?;
    assert_eq!(late.1, format!("VOID {}", batch.number));

    let batch = strand(&setup, &ids).await?;
    let arrive: [&[u8]; 4] = [b"m7", b"-", batch.number.as_bytes(), &batch.bytes];
    let arrived = call::<(redis::Value, String)>(&setup, "5", "dueq_arrive", &arrive).await?;
    assert_eq!(arrived.1, format!("APPLIED {}", batch.ids.len()));
    ended().await?;
    worker.stop().await?;
    for id in &ids {
        assert!(setup.queue.get(id).await?.is_some(), "{id}");
    }
    assert_eq!(setup.queue.stats().await?.scheduled, ids.len() as u64);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_purge_misses_no_message_that_is_on_its_way() -> Result<()> {
    for has_arrived in [false, true] {
        let setup = setup().await?;
        let ids = begin(&setup).await?;
        setup.queue.partitions().await?; // it knows the map
        let batch = strand(&setup, &ids).await?;
        let arrive: [&[u8]; 4] = [b"m7", b"-", batch.number.as_bytes(), &batch.bytes];
        if has_arrived {
            call::<redis::Value>(&setup, "5", "dueq_arrive", &arrive).await?;
        }
        let purged = setup.queue.purge(MessageState::Scheduled).await?;
        assert_eq!(purged, ids.len() as u64);
        let late = call::<(redis::Value, String)>(&setup, "5", "dueq_arrive", &arrive).await?;
        assert_ne!(late.1, format!("APPLIED {}", batch.ids.len()));
        let stats = setup.queue.stats().await?;
        assert_eq!((stats.scheduled, stats.moving), (0, 0));
    }
    Ok(())
}

/// Purges a queue while its messages move to one partition.
async fn purge_a_moving_queue(in_steps: bool) -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    queue.partition_into(3).await?;
    let ids = group("far", 5_000);
    push_all(queue, due(&ids, |_| HOUR)).await?;
    let (sender, mut moved) = unbounded_channel();
    let mover = queue.clone();
    let change = tokio::spawn(async move {
        let change = mover.partition_into(1);
        let change = change.on_progress(move |now| _ = sender.send(now.moved));
        change.await
    });
    while within("moved messages", moved.recv())
        .await?
        .is_some_and(|moved| moved == 0)
    {}
    let purged = if in_steps {
        let mut steps = queue.purge_steps(MessageState::Scheduled, u64::MAX)?;
        while steps.step(100).await?.end.is_none() {}
        assert_eq!(steps.step(100).await?.end, Some(BulkEnd::Complete));
        steps.done()
    } else {
        queue.purge(MessageState::Scheduled).await?
    };
    assert_eq!(purged, ids.len() as u64, "in steps: {in_steps}");
    within("the change", change).await???;
    has_all(queue, &[], 1).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn purges_during_a_change_leave_no_message() -> Result<()> {
    tokio::try_join!(purge_a_moving_queue(false), purge_a_moving_queue(true))?;
    Ok(())
}
