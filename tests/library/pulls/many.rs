//! Many pulls at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use dueq::claims::{DeliveryHandle, Puller};
use dueq::outcomes::SettleOutcome;
use dueq::{Client, Delivery, Message, Queue};
use dueq_testkit::Stopwatch;
use dueq_testkit::cluster::Cluster;
use tokio::task::JoinSet;

use super::MS;
use crate::faults::signal;
use crate::support::{
    HOUR, LIMIT, LONG, Setup, acking, ids, messages, push_all, seen, setup, stats_until, within,
};

/// Makes pulls of up to `max` messages until `count` messages were pulled in all.
async fn pull_all(
    puller: Puller,
    max: usize,
    count: usize,
    pulled: Arc<AtomicUsize>,
) -> Result<Vec<Delivery>> {
    let mut own = Vec::new();
    while pulled.load(Ordering::SeqCst) < count {
        let deliveries = puller.pull(max, LONG, 50 * MS).await?;
        assert!(deliveries.len() <= max);
        pulled.fetch_add(deliveries.len(), Ordering::SeqCst);
        own.extend(deliveries);
    }
    Ok(own)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_pulls_get_each_message_once() -> Result<()> {
    let Setup { queue, .. } = &setup().await?;
    let (puller, pulled) = (queue.puller(), Arc::default());
    let mut pulls = JoinSet::new();
    for _ in 0..64 {
        pulls.spawn(pull_all(puller.clone(), 10, 1_000, Arc::clone(&pulled)));
    }
    push_all(queue, messages(1_000)).await?;
    let mut all = Vec::new();
    while let Some(own) = within("the pulls", pulls.join_next()).await? {
        all.extend(own??);
    }
    let mut seen: Vec<_> = all
        .iter()
        .map(|delivery| delivery.id().into_owned())
        .collect();
    seen.sort_unstable();
    assert_eq!(seen, ids(1_000));
    assert!(all.iter().all(|delivery| delivery.attempt() == 1));
    let stats = queue.stats().await?;
    assert_eq!(
        (stats.claimed, stats.leased, stats.released),
        (1_000, 1_000, 0)
    );
    Ok(puller.shutdown().await?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_of_512_waiting_pulls_gets_a_message() -> Result<()> {
    let Setup { queue, .. } = &setup().await?;
    let puller = queue.puller();
    let mut pulls = JoinSet::new();
    for _ in 0..512 {
        let puller = puller.clone();
        pulls.spawn(async move { puller.pull(1, LONG, LIMIT).await });
    }
    let due = messages(512)
        .into_iter()
        .map(|message| message.due(300 * MS));
    push_all(queue, due.collect()).await?;
    let (mut seen, mut latest) = (Vec::new(), std::time::Duration::ZERO);
    while let Some(pulled) = within("the pulls", pulls.join_next()).await? {
        let [delivery] = &pulled??[..] else {
            anyhow::bail!("not one message");
        };
        latest = latest.max(delivery.lateness());
        seen.push(delivery.id().into_owned());
    }
    println!("the last of 512 is {latest:?} late");
    seen.sort_unstable();
    assert_eq!(seen, ids(512));
    Ok(puller.shutdown().await?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_pullers_beside_a_worker_share_a_queue() -> Result<()> {
    let Setup { queue, server, .. } = &setup().await?;
    let (sender, mut pulled) = seen();
    let mut pullers = Vec::new();
    for _ in 0..2 {
        let client = Client::connect(&server.url()).await?;
        let puller = client.queue("orders")?.puller();
        let (own, sender) = (puller.clone(), sender.clone());
        let task = tokio::spawn(async move {
            // This puller runs until the shutdown.
            while let Ok(deliveries) = own.pull(7, LONG, LIMIT).await {
                for delivery in deliveries {
                    let _ = delivery.ack().await?;
                    let _ = sender.send(delivery.id().into_owned());
                }
            }
            Ok::<_, dueq::Error>(())
        });
        pullers.push((puller, task));
    }
    let (worker, mut handled) = acking(queue.worker().concurrency(4));
    let soon = messages(600).into_iter().enumerate();
    let soon = soon.map(|(n, message)| message.due(MS * (n as u32 % 10) * 50));
    push_all(queue, soon.collect()).await?;
    let stats = stats_until(queue, "all acked", |stats| stats.acked == 600).await?;
    assert_eq!(
        (stats.claimed - stats.released, stats.crashed, stats.leased),
        (600, 0, 0)
    );
    for (puller, task) in pullers {
        within("the shutdown", puller.shutdown()).await??;
        within("its pulls", task).await???;
    }
    worker.stop().await?;
    let (by_worker, by_pulls) = (handled.rest(), pulled.rest());
    println!(
        "{} by the worker, {} by pulls",
        by_worker.len(),
        by_pulls.len()
    );
    let mut all = [by_worker, by_pulls].concat();
    all.sort_unstable();
    assert_eq!(all, ids(600));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_puller_without_waiting_pulls_takes_no_messages() -> Result<()> {
    let Setup { queue, .. } = &setup().await?;
    let puller = queue.puller();
    // Redis counts a node once the queue exists.
    queue.push("").due(HOUR).await?;
    stats_until(queue, "the node", |stats| stats.nodes == 1).await?;
    let (worker, mut handled) = acking(queue.worker());
    for (number, id) in ids(50).into_iter().enumerate() {
        let delay = MS * (number as u32 % 3) * 20;
        queue.push("").id(&id).due(delay).await?;
        assert_eq!(handled.next().await?, id);
    }
    let stats = stats_until(queue, "all acked", |stats| stats.acked == 50).await?;
    assert_eq!((stats.claimed, stats.released), (50, 0));
    worker.stop().await?;
    Ok(puller.shutdown().await?)
}

/// Pulls all messages of [`ids`]. Returns their handles.
async fn pulled_all(puller: &Puller, count: usize) -> Result<Vec<DeliveryHandle>> {
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

/// Acks all deliveries from a client that has not read the queue's map.
async fn ack_all(url: &str, handles: Vec<DeliveryHandle>) -> Result<()> {
    let queue = Client::connect(url).await?.queue("orders")?;
    for handle in handles {
        assert_eq!(queue.delivery(handle).ack().await?, SettleOutcome::Done);
    }
    Ok(())
}

async fn serves_all(queue: &Queue, url: &str) -> Result<()> {
    let puller = queue.puller();
    let soon = messages(120).into_iter().enumerate();
    let soon = soon.map(|(n, message)| message.due(Duration::from_millis(n as u64 % 3 * 200)));
    push_all(queue, soon.collect()).await?;
    let handles = pulled_all(&puller, 120).await?;
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
    // Repeats until the node attends all partitions.
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
async fn a_node_leaves_a_queue_with_partitions_after_its_pulls() -> Result<()> {
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

/// Without this rule, each partition would take the time limit of a reply, one after another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pull_of_a_silent_server_ends_after_one_claim() -> Result<()> {
    let setup = setup().await?;
    setup.queue.partition_into(8).await?;
    let puller = setup.queue.puller();
    assert!(puller.pull(1, LONG, 300 * MS).await?.is_empty());
    signal("-STOP", setup.server.pid())?;
    let start = Stopwatch::start();
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
