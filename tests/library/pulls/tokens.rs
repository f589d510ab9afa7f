//! Pulls whose tokens their callers choose.

use std::time::Duration;

use anyhow::Result;
use dueq::claims::LeaseToken;
use dueq::outcomes::SettleOutcome;
use dueq::{Client, Delivery, Error, ErrorKind, Message};
use tokio_util::sync::CancellationToken;

use super::{MS, begin};
use crate::support::proxy::Proxy;
use crate::support::{LIMIT, LONG, setup, stats_until, until, within};

const CLAIM: &str = include_str!("../../../lua/dist/claim.lua");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_pull_learns_at_once_that_its_token_is_held() -> Result<()> {
    for partitions in [1, 3] {
        let setup = setup().await?;
        setup.queue.partition_into(partitions).await?;
        let (puller, token) = (setup.queue.puller(), LeaseToken::random());
        setup.queue.push("").id("id").await?;
        let pull = || puller.pull_with_token(token, 9, LONG, LIMIT);
        let granted = within("the pull", pull()).await??;
        assert_eq!(granted[0].lease_token(), token);
        drop(granted);
        let before = setup.queue.stats().await?;
        let held = within("its repetition", pull()).await?.expect_err("held");
        assert_eq!(
            (held.kind(), held.code()),
            (ErrorKind::InvalidInput, Some("HELD"))
        );
        assert_eq!(setup.queue.stats().await?.claimed, before.claimed);
        // Other pulls continue.
        setup.queue.push("").id("other").await?;
        let other = within("another", puller.pull(9, LONG, LIMIT)).await??;
        assert_eq!(other[0].id(), "other");
        let held = setup.queue.held(&token).await?.deliveries;
        assert_eq!(held[0].ack().await?, SettleOutcome::Done);
        puller.shutdown().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pull_repeated_after_a_lost_reply_reports_held() -> Result<()> {
    let setup = setup().await?;
    let proxy = Proxy::start(setup.server.port()).await?;
    let queue = Client::connect(&proxy.url()).await?.queue("orders")?;
    let (puller, token) = (queue.puller(), LeaseToken::random());
    let mut pull = Box::pin(puller.pull_with_token(token, 1, LONG, LIMIT));
    begin(&mut pull).await;
    // When this later pull is answered, the claim of the first one has been answered too.
    assert!(puller.pull(1, LONG, Duration::ZERO).await?.is_empty());
    proxy.cut_reply_of(CLAIM);
    let message = Message::new("").id("id").due(20 * MS);
    setup.queue.push_message(message).await?;
    let outcome = within("the pull", pull).await?;
    match outcome {
        // The reply to the granting claim was lost, or that of a claim before it.
        Err(error) => assert_eq!(error.code(), Some("HELD")),
        Ok(granted) => assert_eq!(granted[0].id(), "id"),
    }
    let held = queue.held(&token).await?.deliveries;
    assert_eq!(held.len(), 1);
    assert_eq!(held[0].ack().await?, SettleOutcome::Done);
    Ok(puller.shutdown().await?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_two_pulls_with_a_token_knows_all_its_grants() -> Result<()> {
    let setup = setup().await?;
    let other = Client::connect(&setup.server.url()).await?;
    for round in 0..10 {
        let name = format!("orders-{round}");
        let queue = setup.client.queue(&name)?;
        queue.partition_into(3).await?;
        let (puller, elsewhere) = (queue.puller(), other.queue(&name)?.puller());
        let token = LeaseToken::random();
        let mut pulls = [&puller, &elsewhere]
            .map(|puller| Box::pin(puller.pull_with_token(token, 2, LONG, LIMIT)));
        for pull in &mut pulls {
            begin(pull).await;
        }
        stats_until(&queue, "both nodes", |stats| stats.nodes == 2).await?;
        // Each partition has some of these messages.
        let messages = (0..12).map(|id| Message::new("").id(id.to_string()));
        for receipt in queue.push_many(messages).await {
            receipt?;
        }
        let [one, two] = pulls;
        let (one, two) = within("the pulls", async { tokio::join!(one, two) }).await?;
        let held = queue.held(&token).await?.deliveries.len();
        let knows_all = |granted: std::result::Result<Vec<Delivery>, Error>| match granted {
            Ok(granted) => granted.len() == held,
            Err(error) => error.code() == Some("HELD"),
        };
        assert!(knows_all(one) || knows_all(two), "{held} are held");
        puller.shutdown().await?;
        elsewhere.shutdown().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_pull_frees_its_token() -> Result<()> {
    let setup = setup().await?;
    let (puller, token) = (setup.queue.puller(), LeaseToken::random());
    let mut pull = Box::pin(puller.pull_with_token(token, 1, LONG, LIMIT));
    begin(&mut pull).await;
    setup.queue.push("").id("id").await?;
    stats_until(&setup.queue, "the grant", |stats| stats.leased == 1).await?;
    drop(pull);
    stats_until(&setup.queue, "the release", |stats| stats.leased == 0).await?;
    let again = puller.pull_with_token(token, 1, LONG, LIMIT);
    let again = within("the pull", again).await??;
    assert_eq!((&*again[0].id(), again[0].attempt()), ("id", 1));
    Ok(puller.shutdown().await?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pull_ended_during_its_claim_returns_the_grant() -> Result<()> {
    let setup = setup().await?;
    let proxy = Proxy::start(setup.server.port()).await?;
    let queue = Client::connect(&proxy.url()).await?.queue("orders")?;
    let puller = queue.puller();
    for round in 0.. {
        let (token, end) = (LeaseToken::random(), CancellationToken::new());
        let pull = puller.pull_until(Some(token), 1, LONG, end.cancelled());
        let mut pull = Box::pin(pull);
        begin(&mut pull).await;
        // When this later pull is answered, the claim of the first one has been answered too.
        assert!(puller.pull(1, LONG, Duration::ZERO).await?.is_empty());
        let stalls = proxy.stalls();
        proxy.stall_calls_of(CLAIM);
        let id = round.to_string();
        setup.queue.push("").id(&id).await?;
        until(
            "the claim",
            async || Ok(proxy.stalls()),
            |now| *now > stalls,
        )
        .await?;
        end.cancel();
        begin(&mut pull).await;
        proxy.end_stall();
        let granted = within("the pull", pull).await??;
        if let [delivery] = &granted[..] {
            assert_eq!(delivery.lease_token(), token);
            // The delivery was not released: it can be acked.
            assert_eq!(delivery.ack().await?, SettleOutcome::Done);
            break;
        }
        // The node gave up the claim before the stall ended. What the claim granted was released.
        let next = super::pull_one(&puller).await?;
        assert_eq!((&*next.id(), next.attempt()), (&*id, 1));
        assert_eq!(next.ack().await?, SettleOutcome::Done);
    }
    Ok(puller.shutdown().await?)
}
