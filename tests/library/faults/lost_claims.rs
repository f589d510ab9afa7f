//! Claims of workers and pullers whose reply is lost. The leases outlast the tests: a message that
//! is delivered was found by the token of its claim.

use std::time::Duration;

use anyhow::{Context, Result};
use dueq::{Message, MessageState};

use super::proxied::{CLAIM, proxied};
use crate::support::proxy::Proxy;
use crate::support::{
    LIMIT, LONG, Setup, acking, ids, push_all, reporting, stats_until, until, within,
};

const HELD: &str = include_str!("../../../lua/dist/held.lua");

/// Loses the reply of the claim that grants this message. A claim that finds nothing may be under way
/// before.
async fn lose_a_grant(setup: &Setup, proxy: &Proxy, id: &str) -> Result<()> {
    let cuts = proxy.cuts();
    proxy.cut_reply_with(CLAIM, &format!("\r\n{id}\r\n"));
    setup.queue.push("").id(id).await?;
    until("a lost reply", async || Ok(proxy.cuts()), |now| *now > cuts).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_finds_the_grant_of_a_lost_reply() -> Result<()> {
    let (setup, proxy, queue) = proxied().await?;
    let (worker, mut attempts) = reporting(queue.worker().lease(LONG), |delivery| {
        (delivery.id().into_owned(), delivery.attempt())
    });
    setup.command::<String>(&["SCRIPT", "LOAD", HELD]).await?;
    for (number, id) in ids(10).into_iter().enumerate() {
        if number % 2 == 1 {
            proxy.cut_reply_of(HELD); // the look-up also loses a reply
        }
        lose_a_grant(&setup, &proxy, &id).await?;
        assert_eq!(attempts.next().await?, (id, 1));
    }
    stats_until(&setup.queue, "all acked", |stats| stats.acked == 11).await?;
    worker.stop().await
}

/// Much of the lease is over when Redis is back, so the node extends it before the handler starts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn found_grant_is_extended_before_its_handler_starts() -> Result<()> {
    let (setup, proxy, queue) = proxied().await?;
    let lease = Duration::from_secs(12);
    let (worker, mut held) = crate::support::holding(queue.worker().lease(lease));
    // After this message the connection for claims is open.
    setup.queue.push("").id("first").await?;
    assert_eq!(
        held.next().await?.ack().await?,
        dueq::outcomes::SettleOutcome::Done
    );
    setup.command::<String>(&["SCRIPT", "LOAD", HELD]).await?;
    proxy.stall_calls_of(HELD);
    lose_a_grant(&setup, &proxy, "id").await?;
    tokio::time::sleep(lease / 3).await; // the part of the lease that is over
    proxy.end_stall();
    let delivery = held.next().await?;
    let until_ms = setup
        .queue
        .get("id")
        .await?
        .context("it is leased")?
        .time_ms;
    assert!(until_ms > delivery.deadline_ms(), "not extended");
    assert_eq!(delivery.ack().await?, dueq::outcomes::SettleOutcome::Done);
    worker.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopping_worker_releases_the_grant_of_a_lost_reply() -> Result<()> {
    let (setup, proxy, queue) = proxied().await?;
    let (worker, mut handled) = acking(queue.worker().lease(LONG));
    setup.queue.push("").id("first").await?;
    handled.next().await?;
    proxy.shut();
    lose_a_grant(&setup, &proxy, "id").await?;
    worker.ask_to_stop();
    proxy.let_in();
    worker.stop().await?;
    let stored = setup.queue.get("id").await?;
    let Some(stored) = stored else {
        // The worker found the message before the stop.
        assert_eq!(handled.next().await?, "id");
        return Ok(());
    };
    assert!(
        stored.state != MessageState::Leased && stored.crashes == 0,
        "{stored:?}"
    );
    Ok(())
}

/// The lost claim reaches Redis only after the node has looked for its grant, together with the
/// repeated one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claim_that_redis_executes_late_grants_no_message_twice() -> Result<()> {
    let (setup, proxy, queue) = proxied().await?;
    let (worker, mut handled) = acking(queue.worker().lease(LONG));
    for round in 0..5 {
        push_all(
            &setup.queue,
            vec![Message::new("").id(format!("warm-{round}"))],
        )
        .await?;
        handled.next().await?;
        stats_until(&setup.queue, "the ack", |stats| stats.leased == 0).await?;
        let stalls = proxy.stalls();
        proxy.stall_calls_of(CLAIM);
        setup.queue.push("").id(format!("{round}")).await?;
        // The first claim was given up; the second has the same token.
        until(
            "two claims",
            async || Ok(proxy.stalls()),
            |now| *now >= stalls + 2,
        )
        .await?;
        proxy.end_stall();
        assert_eq!(handled.next().await?, format!("{round}"));
    }
    stats_until(&setup.queue, "all acked", |stats| stats.acked == 11).await?;
    worker.stop().await?;
    assert_eq!(handled.rest(), Vec::<String>::new());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pull_gets_the_grant_of_a_lost_reply() -> Result<()> {
    let (setup, proxy, queue) = proxied().await?;
    let puller = queue.puller();
    for id in ids(5) {
        let pull = tokio::spawn({
            let puller = puller.clone();
            async move { puller.pull(1, LONG, LIMIT).await }
        });
        lose_a_grant(&setup, &proxy, &id).await?;
        let pulled = within("the pull", pull).await???;
        assert_eq!(
            (pulled.len(), &*pulled[0].id(), pulled[0].attempt()),
            (1, &*id, 1)
        );
        let _ = pulled[0].ack().await?;
    }
    Ok(puller.shutdown().await?)
}

/// No pull waits that could take the message, so another consumer gets it at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grant_of_a_lost_reply_is_released_if_no_pull_waits() -> Result<()> {
    let (setup, proxy, queue) = proxied().await?;
    let puller = queue.puller();
    setup.queue.push("").id("first").await?;
    let first = within("a pull", puller.pull(1, LONG, LIMIT)).await??;
    let _ = first[0].ack().await?;
    let pull = tokio::spawn({
        let puller = puller.clone();
        async move { puller.pull(1, LONG, LIMIT).await.map(drop) }
    });
    proxy.shut();
    lose_a_grant(&setup, &proxy, "id").await?;
    pull.abort();
    let _ = pull.await;
    proxy.let_in();
    stats_until(&setup.queue, "the release", |stats| stats.leased == 0).await?;
    let stored = setup.queue.get("id").await?.context("it is there")?;
    assert!(
        stored.state != MessageState::Leased && stored.crashes == 0,
        "{stored:?}"
    );
    Ok(puller.shutdown().await?)
}
