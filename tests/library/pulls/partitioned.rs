//! Pulls of queues with several partitions, on one server and on a cluster.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use dueq::{Client, Delivery, DeliveryHandle, Message, Puller, Queue, Settled};
use dueq_testkit::cluster::Cluster;

use super::MS;
use crate::faults::signal;
use crate::support::{LIMIT, LONG, ids, messages, push_all, setup, stats_until, within};

/// The handles of all messages of [`ids`].
async fn pull_all(puller: &Puller, count: usize) -> Result<Vec<DeliveryHandle>> {
    let (mut handles, mut seen) = (Vec::new(), Vec::new());
    while handles.len() < count {
        let pulled = within("a pull", puller.pull(10, LONG, LIMIT)).await??;
        seen.extend(pulled.iter().map(|delivery| delivery.id().into_owned()));
        handles.extend(pulled.into_iter().map(Delivery::into_handle));
    }
    seen.sort_unstable();
    assert_eq!(seen, ids(count));
    Ok(handles)
}

/// Acks by a client that has not read the queue's map.
async fn ack_all(url: &str, handles: Vec<DeliveryHandle>) -> Result<()> {
    let queue = Client::connect(url).await?.queue("orders")?;
    for handle in handles {
        assert_eq!(queue.delivery(handle).ack().await?, Settled::Done);
    }
    Ok(())
}

async fn serves_all(queue: &Queue, url: &str) -> Result<()> {
    let puller = queue.puller();
    let soon = messages(120).into_iter().enumerate();
    let soon = soon.map(|(n, message)| message.due(Duration::from_millis(n as u64 % 3 * 200)));
    push_all(queue, soon.collect()).await?;
    let handles = pull_all(&puller, 120).await?;
    assert_eq!(queue.stats().await?.leased, 120);
    ack_all(url, handles).await?;
    let stats = stats_until(queue, "all acked", |stats| stats.acked == 120).await?;
    assert_eq!((stats.claimed, stats.released, stats.crashed), (120, 0, 0));
    Ok(puller.shutdown().await?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_puller_serves_all_partitions_of_its_queue() -> Result<()> {
    let setup = setup().await?;
    setup.queue.partition_into(6).await?;
    serves_all(&setup.queue, &setup.server.url()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pull_without_a_wait_asks_each_partition() -> Result<()> {
    let setup = setup().await?;
    setup.queue.partition_into(3).await?;
    let puller = setup.queue.puller();
    // As soon as the node attends all partitions.
    let message = |number: usize| Message::new("").id(format!("first-{number}"));
    push_all(&setup.queue, (0..30).map(message).collect()).await?;
    let mut acked = 0;
    while acked < 30 {
        for delivery in puller.pull(10, LONG, LIMIT).await? {
            let _ = delivery.ack().await?;
            acked += 1;
        }
    }
    for id in ids(10) {
        let receipt = setup.queue.push("").id(&id).await?;
        let due_ms = receipt.due_ms().context("a due time")?;
        while setup.client.server_time().await?.unix_us / 1_000 <= due_ms {}
        let pulled = puller.pull(10, LONG, Duration::ZERO).await?;
        assert_eq!(
            pulled.first().map(|delivery| delivery.id().into_owned()),
            Some(id)
        );
    }
    Ok(puller.shutdown().await?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_of_partitions_is_left_after_pulls() -> Result<()> {
    let setup = setup().await?;
    setup.queue.partition_into(4).await?;
    let puller = setup.queue.puller();
    for _ in 0..3 {
        assert!(puller.pull(1, LONG, 300 * MS).await?.is_empty());
    }
    assert_eq!(setup.queue.nodes().await?.len(), 1, "it attends them");
    within("the leave", puller.leave()).await??;
    stats_until(&setup.queue, "no node", |stats| stats.nodes == 0).await?;
    Ok(puller.shutdown().await?)
}

/// Each partition would take the limit of a response, one after the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pull_of_a_silent_server_ends_after_one_claim() -> Result<()> {
    let setup = setup().await?;
    setup.queue.partition_into(8).await?;
    let puller = setup.queue.puller();
    assert!(puller.pull(1, LONG, 300 * MS).await?.is_empty());
    signal("-STOP", setup.server.pid())?;
    let start = Instant::now();
    let pull = within("the pull", puller.pull(1, LONG, Duration::ZERO)).await?;
    assert!(pull.is_err_and(|error| error.is_retryable()));
    let took = start.elapsed();
    // A claim takes up to 7 s: 2 s for a connection, and 5 s for the response.
    assert!(took < Duration::from_secs(12), "{took:?}");
    signal("-CONT", setup.server.pid())?;
    Ok(puller.shutdown().await?)
}

#[tokio::test]
async fn a_puller_serves_partitions_on_all_masters() -> Result<()> {
    let cluster = Cluster::start(3).await?;
    let queue = Client::connect(&cluster.url()).await?.queue("orders")?;
    queue.partition_into(6).await?;
    serves_all(&queue, &cluster.url()).await
}
