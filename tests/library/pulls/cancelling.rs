//! A pull that is dropped at any stage loses no message and charges none.

use std::time::Duration;

use anyhow::{Context, Result};
use dueq::claims::Puller;
use dueq::{Client, Queue, QueueStats};

use super::{MS, begin, pull_one};
use crate::support::proxy::Proxy;
use crate::support::{HOUR, LIMIT, LONG, Setup, claim_one, setup, stats_until, until};

const CLAIM: &str = include_str!("../../../lua/dist/claim.lua");

/// A message that has failed once, due in an hour.
async fn failed_once(queue: &Queue) -> Result<()> {
    queue.push("").id("id").await?;
    let _ = claim_one(queue)
        .await?
        .retry(HOUR, "the bank is closed")
        .await?;
    Ok(())
}

/// Checks that the message was released unchanged, and that the next pull gets it.
async fn is_released(
    queue: &Queue,
    puller: &Puller,
    before: &QueueStats,
    releases: u64,
) -> Result<()> {
    let stats = stats_until(queue, "the release", |stats| stats.leased == 0).await?;
    assert_eq!(stats.released - before.released, releases);
    assert_eq!((stats.crashed, stats.retried), (0, 1));
    let stored = queue.get("id").await?.context("the message")?;
    assert_eq!((stored.failures, stored.crashes), (1, 0));
    let delivery = pull_one(puller).await?;
    assert_eq!((&*delivery.id(), delivery.attempt()), ("id", 2));
    let _ = delivery.ack().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pull_dropped_before_its_claim_grants_nothing() -> Result<()> {
    let Setup { queue, .. } = &setup().await?;
    let puller = queue.puller();
    failed_once(queue).await?;
    let mut pulls: Vec<_> = (0..20)
        .map(|_| Box::pin(puller.pull(9, LONG, LIMIT)))
        .collect();
    for pull in &mut pulls {
        begin(pull).await;
    }
    drop(pulls);
    // This pull is answered, so the node has seen all earlier ones.
    assert!(puller.pull(1, LONG, Duration::ZERO).await?.is_empty());
    let before = queue.stats().await?;
    let _ = queue.run_now("id").await?;
    stats_until(queue, "it is promoted", |stats| stats.ready == 1).await?;
    let stats = queue.stats().await?;
    assert_eq!((stats.claimed, stats.leased), (before.claimed, 0));
    is_released(queue, &puller, &before, 0).await?;
    Ok(puller.shutdown().await?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pull_dropped_during_its_claim_releases_its_grant() -> Result<()> {
    let setup = setup().await?;
    let proxy = Proxy::start(setup.server.port()).await?;
    let queue = Client::connect(&proxy.url()).await?.queue("orders")?;
    let puller = queue.puller();
    failed_once(&setup.queue).await?;
    assert!(puller.pull(1, LONG, Duration::ZERO).await?.is_empty());
    let before = setup.queue.stats().await?;
    let mut pull = Box::pin(puller.pull(1, LONG, LIMIT));
    begin(&mut pull).await;
    // When this later pull is answered, the claim of the first one has been answered too.
    assert!(puller.pull(1, LONG, Duration::ZERO).await?.is_empty());
    proxy.stall_calls_of(CLAIM);
    let _ = setup.queue.run_now("id").await?;
    until(
        "the claim",
        async || Ok(proxy.stalls()),
        |stalls| *stalls > 0,
    )
    .await?;
    drop(pull);
    proxy.end_stall();
    let claimed = before.claimed + 1;
    stats_until(&setup.queue, "the claim", |stats| stats.claimed == claimed).await?;
    is_released(&setup.queue, &puller, &before, 1).await?;
    Ok(puller.shutdown().await?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_of_a_dropped_pull_go_to_the_next_pull() -> Result<()> {
    let setup = setup().await?;
    let proxy = Proxy::start(setup.server.port()).await?;
    let queue = Client::connect(&proxy.url()).await?.queue("orders")?;
    let puller = queue.puller();
    let mut dropped = Box::pin(puller.pull(1, LONG, LIMIT));
    begin(&mut dropped).await;
    assert!(puller.pull(1, LONG, Duration::ZERO).await?.is_empty());
    proxy.stall_calls_of(CLAIM);
    setup.queue.push("").id("id").await?;
    until(
        "the claim",
        async || Ok(proxy.stalls()),
        |stalls| *stalls > 0,
    )
    .await?;
    let mut next = Box::pin(puller.pull(1, LONG, LIMIT));
    begin(&mut next).await;
    drop(dropped);
    proxy.end_stall();
    assert_eq!(next.await?[0].id(), "id");
    let stats = setup.queue.stats().await?;
    assert_eq!((stats.claimed, stats.released, stats.leased), (1, 0, 1));
    Ok(puller.shutdown().await?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pull_dropped_with_an_unread_answer_releases_it() -> Result<()> {
    let Setup { queue, .. } = &setup().await?;
    let puller = queue.puller();
    failed_once(queue).await?;
    let mut pull = Box::pin(puller.pull(1, LONG, LIMIT));
    begin(&mut pull).await;
    let before = queue.stats().await?;
    let _ = queue.run_now("id").await?;
    stats_until(queue, "the grant", |stats| stats.leased == 1).await?;
    // The answer normally arrives within this time. If not, the drop finds the claim in flight,
    // which must have the same effect.
    tokio::time::sleep(20 * MS).await;
    drop(pull);
    is_released(queue, &puller, &before, 1).await?;
    Ok(puller.shutdown().await?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_releases_messages_that_no_caller_received() -> Result<()> {
    let Setup { queue, .. } = &setup().await?;
    let puller = queue.puller();
    let mut unread = Box::pin(puller.pull(1, LONG, LIMIT));
    begin(&mut unread).await;
    queue.push("").id("id").await?;
    stats_until(queue, "the grant", |stats| stats.leased == 1).await?;
    puller.shutdown().await?;
    // The caller could still read the answer, but drops the pull.
    drop(unread);
    let stats = stats_until(queue, "the release", |stats| stats.leased == 0).await?;
    assert_eq!((stats.released, stats.crashed, stats.nodes), (1, 0, 0));
    Ok(())
}
