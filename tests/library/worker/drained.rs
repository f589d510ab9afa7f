//! Nodes that an operator drained: they take nothing new, and go on with what they have.

use std::time::Duration;

use anyhow::{Context, Result};
use dueq::outcomes::DrainOutcome;
use dueq::{Client, Queue};

use crate::support::{
    Running, Seen, Setup, acking, holding, messages, push_all, setup, stats_until, until,
};

/// A worker with connections of its own, and the id of its node.
async fn another(setup: &Setup) -> Result<(Running, Seen<String>, String)> {
    let known = setup.queue.nodes().await?;
    let queue = Client::connect(&setup.server.url())
        .await?
        .queue("orders")?;
    let (worker, seen) = acking(queue.worker());
    Ok((worker, seen, new_node(&setup.queue, known.len()).await?))
}

/// The id of the node that joins the queue, which has `known` nodes so far.
async fn new_node(queue: &Queue, known: usize) -> Result<String> {
    let nodes = async || Ok(queue.nodes().await?);
    let found = until("another node", nodes, |nodes| nodes.len() > known).await?;
    // Ids of nodes begin with the time of their start.
    let newest = found.into_iter().map(|node| node.id).max();
    newest.context("a node")
}

/// Waits for two more beats of the node. It sends the second one after the reply to the first.
async fn beats_twice(setup: &Setup, node: &str) -> Result<()> {
    for _ in 0..2 {
        let score = ["ZSCORE", "dueq:{orders}:nodes", node];
        let beat = async || setup.command::<f64>(&score).await;
        let before = beat().await?;
        until("a beat", beat, |beat| *beat > before).await?;
    }
    Ok(())
}

async fn drain(setup: &Setup, node: &str) -> Result<()> {
    let drained = setup.queue.drain_nodes(&[node]).await?;
    assert_eq!(drained, [DrainOutcome::Done]);
    beats_twice(setup, node).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drained_worker_of_two_takes_nothing_until_it_is_resumed() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let gone = [DrainOutcome::Gone];
    assert_eq!(queue.drain_nodes(&["nobody"]).await?, gone);
    queue.pause().await?;
    let (one, mut by_one, first) = another(&setup).await?;
    let (two, mut by_two, second) = another(&setup).await?;
    queue.resume().await?;
    // The first worker leads: it goes on to promote.
    drain(&setup, &first).await?;
    let stats = queue.stats().await?;
    assert_eq!((stats.nodes, stats.drained_nodes), (2, 1));
    push_all(queue, messages(200)).await?;
    by_two.take(200).await?;
    assert_eq!(by_one.rest(), Vec::<String>::new());
    let nodes = queue.nodes().await?;
    let drained = nodes.iter().filter(|node| node.is_drained);
    assert!(drained.map(|node| &node.id).eq([&first]), "{nodes:?}");

    assert_eq!(queue.resume_nodes(&[&first]).await?, [DrainOutcome::Done]);
    beats_twice(&setup, &first).await?;
    drain(&setup, &second).await?;
    queue.push("").id("resumed").await?;
    assert_eq!(by_one.next().await?, "resumed");
    assert_eq!(by_two.rest(), Vec::<String>::new());
    // The end of a worker is the end of its drain.
    two.stop().await?;
    stats_until(queue, "no drained node", |stats| stats.drained_nodes == 0).await?;
    assert_eq!(queue.drain_nodes(&[&second]).await?, gone);
    one.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drain_of_the_only_worker_keeps_messages_waiting_and_says_why() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let (worker, mut held) = holding(queue.worker().lease(Duration::from_secs(1)));
    queue.push("").id("has").await?;
    let delivery = held.next().await?;
    let node = new_node(queue, 0).await?;
    drain(&setup, &node).await?;
    push_all(queue, messages(10)).await?;
    let codes = async || {
        let findings = queue.examine_briefly().await?.findings;
        Ok(findings
            .iter()
            .map(|finding| finding.code)
            .collect::<Vec<_>>())
    };
    until("the finding", codes, |codes| codes.contains(&"drained")).await?;
    // It has kept the lease of what it has.
    let stats = queue.stats().await?;
    assert_eq!(
        (stats.leased, stats.crashed, stats.due + stats.ready),
        (1, 0, 10)
    );
    let _ = delivery.ack().await?;
    stats_until(queue, "its ack", |stats| stats.acked == 1).await?;
    assert_eq!(queue.resume_nodes(&[&node]).await?, [DrainOutcome::Done]);
    held.take(10).await?;
    worker.abort().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drained_puller_ends_its_pulls_without_messages() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    queue.push("").id("1").await?;
    let puller = queue.puller();
    let node = new_node(queue, 0).await?;
    drain(&setup, &node).await?;
    let (lease, wait) = (Duration::from_secs(30), Duration::from_millis(50));
    assert!(puller.pull(1, lease, wait).await?.is_empty());
    queue.resume_nodes(&[&node]).await?;
    beats_twice(&setup, &node).await?;
    assert_eq!(puller.pull(1, lease, wait).await?.len(), 1);
    Ok(puller.shutdown().await?)
}

/// The home alone tells its nodes, by the roster.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drain_holds_in_all_partitions_of_a_queue() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    queue.pause().await?;
    queue.partition_into(4).await?;
    let (one, mut by_one, first) = another(&setup).await?;
    let (two, mut by_two, _) = another(&setup).await?;
    assert_eq!(queue.drain_nodes(&[&first]).await?, [DrainOutcome::Done]);
    let watches = format!("\u{1}{first}");
    for _ in 0..2 {
        let score = ["ZSCORE", "dueq:{orders}:nodes", &watches];
        let watch = async || setup.command::<f64>(&score).await;
        let before = watch().await?;
        until("a watch", watch, |watch| *watch < before).await?;
    }
    queue.resume().await?;
    push_all(queue, messages(200)).await?;
    by_two.take(200).await?;
    assert_eq!(by_one.rest(), Vec::<String>::new());
    assert_eq!(queue.stats().await?.drained_nodes, 1);
    one.stop().await?;
    stats_until(queue, "no drained node", |stats| stats.drained_nodes == 0).await?;
    two.stop().await
}
