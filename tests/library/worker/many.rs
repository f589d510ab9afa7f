//! One worker for many queues, and the worker's handle.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use dueq::{Delivery, ErrorKind, QueueSettings, Share, in_batches};
use tokio::sync::Semaphore;

use crate::support::{HOUR, LONG, Setup, seen, setup, stats_until, until, within};

async fn ack(_: Delivery) {}

/// A worker of the setup's queue that sends ids to `sender`.
fn reports(
    sender: &tokio::sync::mpsc::UnboundedSender<String>,
) -> impl Fn(Delivery) -> std::future::Ready<()> + Send + Sync + 'static {
    let sender = sender.clone();
    move |delivery: Delivery| {
        let _ = sender.send(delivery.id().into_owned());
        std::future::ready(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_worker_handles_the_messages_of_its_queues() -> Result<()> {
    let Setup { queue, client, .. } = &setup().await?;
    let mails = client.queue("mails")?;
    let (sender, mut seen) = seen();
    let worker = client
        .worker()
        .queue(queue, reports(&sender))
        .queue_with(&mails, Share::weight(3).max(4), reports(&sender))
        .spawn()?;
    queue.push("").id("order").await?;
    mails.push("").id("mail").await?;
    let mut ids = seen.take(2).await?;
    ids.sort();
    assert_eq!(ids, ["mail", "order"]);
    within("the shutdown", worker.shutdown()).await??;
    assert!(!worker.health().is_running());
    assert_eq!(queue.stats().await?.nodes, 0);
    within("a second shutdown", worker.shutdown()).await??;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queues_are_added_to_and_removed_from_a_running_worker() -> Result<()> {
    let Setup { queue, client, .. } = &setup().await?;
    let mails = client.queue("mails")?;
    let (sender, mut seen) = seen();
    let worker = client.worker().queue(queue, ack).spawn()?;
    worker.add(&mails, reports(&sender)).await?;
    mails.push("").id("first").await?;
    assert_eq!(seen.take(1).await?, ["first"]);
    let twice = worker.add(&mails, ack).await.expect_err("refused");
    assert_eq!(twice.kind(), ErrorKind::InvalidInput);
    assert!(twice.to_string().contains("mails"), "{twice}");
    within("the removal", worker.remove("mails")).await??;
    assert!(worker.health().queue("mails").is_none());
    assert_eq!(mails.stats().await?.nodes, 0, "the node left the queue");
    let absent = worker.remove("mails").await.expect_err("refused");
    assert_eq!(absent.kind(), ErrorKind::InvalidInput);
    within("the shutdown", worker.shutdown()).await??;
    let ended = worker.add(&mails, ack).await.expect_err("refused");
    assert_eq!(ended.kind(), ErrorKind::Unavailable);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removal_waits_only_for_handlers_of_its_queue() -> Result<()> {
    let Setup { queue, client, .. } = &setup().await?;
    let mails = client.queue("mails")?;
    let (sender, mut seen) = seen();
    let gate = Arc::new(Semaphore::new(0));
    let held = {
        let (gate, sender) = (Arc::clone(&gate), sender.clone());
        move |delivery: Delivery| {
            let gate = Arc::clone(&gate);
            let _ = sender.send(delivery.id().into_owned());
            async move { drop(gate.acquire().await) }
        }
    };
    // With one handler no claim of the queue is under way while that handler runs.
    let worker = client.worker().lease(LONG).queue(queue, reports(&sender));
    let worker = worker.queue_with(&mails, Share::default().max(1), held);
    let worker = worker.spawn()?;
    mails.push("").id("held").await?;
    assert_eq!(seen.next().await?, "held");
    let removal = {
        let worker = worker.clone();
        tokio::spawn(async move { worker.remove("mails").await })
    };
    let refused = async || {
        Ok(worker
            .add(&mails, ack)
            .await
            .err()
            .map(|error| error.to_string()))
    };
    let leaving =
        |error: &Option<String>| error.as_ref().is_some_and(|text| text.contains("leaving"));
    until("the removal's start", refused, leaving).await?;
    // The removed queue keeps its messages, and the other queue continues.
    mails.push("").id("left").await?;
    queue.push("").id("order").await?;
    assert_eq!(seen.next().await?, "order");
    assert!(!removal.is_finished());
    gate.add_permits(1);
    within("the removal", removal).await???;
    let stats = mails.stats().await?;
    assert_eq!((stats.acked, stats.leased, stats.nodes), (1, 0, 0));
    assert_eq!(stats.scheduled + stats.ready, 1);
    worker.add(&mails, reports(&sender)).await?;
    assert_eq!(seen.next().await?, "left");
    Ok(worker.shutdown().await?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_aborted_worker_releases_its_messages() -> Result<()> {
    let Setup { queue, client, .. } = &setup().await?;
    let (sender, mut seen) = seen();
    let handler = move |delivery: Delivery| {
        let _ = sender.send(delivery.id().into_owned());
        std::future::pending::<()>()
    };
    let worker = client.worker().grace(HOUR).queue(queue, handler).spawn()?;
    queue.push("").id("held").await?;
    seen.take(1).await?;
    worker.abort();
    within("the end", worker.wait()).await??;
    let stats = queue.stats().await?;
    assert_eq!((stats.leased, stats.released, stats.crashed), (0, 1, 0));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropping_the_handle_does_not_stop_the_worker() -> Result<()> {
    let Setup { queue, client, .. } = &setup().await?;
    drop(client.worker().queue(queue, ack).spawn()?);
    queue.push("").await?;
    stats_until(queue, "acked", |stats| stats.acked == 1).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn health_names_the_queues_and_their_leader() -> Result<()> {
    let Setup { queue, client, .. } = &setup().await?;
    queue.push("").await?;
    let worker = client.worker().queue(queue, ack).spawn()?;
    let leads = || {
        let health = worker.health();
        health.is_ready() && health.queue("orders").is_some_and(|one| one.is_leader())
    };
    let ready = async {
        while !leads() {
            tokio::task::yield_now().await;
        }
    };
    within("leadership", ready).await?;
    assert_eq!(worker.health().queues().count(), 1);
    worker.shutdown().await?;
    assert!(!worker.health().is_ready());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spawn_refuses_wrong_settings_and_names_the_queue() -> Result<()> {
    let Setup { queue, client, .. } = &setup().await?;
    let mails = client.queue("mails")?;
    let other = dueq::Client::connect(&setup().await?.server.url()).await?;
    let foreign = other.queue("orders")?;
    let worker = || client.worker().concurrency(4);
    let with = |share: Share| worker().queue_with(queue, share, ack);
    async fn many(_: dueq::Batch<Vec<u8>>) {}
    let lingering = |max, linger| worker().queue(queue, in_batches(max, linger, many));
    let cases = [
        (worker(), "no queue"),
        (worker().concurrency(0).queue(queue, ack), "concurrency 0"),
        (with(Share::weight(0)), "queue orders: weight 0"),
        (
            with(Share::default().max(0)),
            "queue orders: a maximum of 0",
        ),
        (with(Share::default().reserve(3).max(2)), "its reserve of 3"),
        (
            with(Share::default().reserve(5)),
            "queue orders: a reserve of 5",
        ),
        (
            with(Share::default().reserve(3)).queue_with(&mails, Share::default().reserve(2), ack),
            "queue mails: a reserve of 2 handlers is not in the range from 0 to 1",
        ),
        (
            worker().queue(queue, ack).queue(queue, ack),
            "queue orders: it was added twice",
        ),
        (
            worker().queue(&foreign, ack),
            "queue orders: it was made by another client",
        ),
        (
            worker().lease(Duration::ZERO).queue(queue, ack),
            "queue orders",
        ),
        (
            worker().time_limit(Duration::ZERO).queue(queue, ack),
            "queue orders: a time limit of 0ns ends a handler at its first await; without a call \
             of `time_limit` there is no limit",
        ),
        (
            worker().queue_with(queue, QueueSettings::new().time_limit(Duration::ZERO), ack),
            "queue orders: a time limit of 0ns",
        ),
        (
            lingering(0, Duration::ZERO),
            "queue orders: a batch of at most 0",
        ),
        (lingering(9, Duration::from_secs(11)), "from 0 to 10s"),
    ];
    for (worker, expected) in cases {
        let error = worker.spawn().expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
    let error = queue.worker().concurrency(0).spawn(ack);
    let error = error.expect_err("the short form refuses it too");
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    assert_eq!(queue.stats().await?.nodes, 0);
    Ok(())
}
