//! A node extends leases while handlers run, and handles the loss of leases.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use dueq::metrics::Counter;
use dueq::outcomes::SettleOutcome;
use dueq::{Client, Delivery, Message, Queue};

use crate::support::proxy::Proxy;
use crate::support::{
    Running, Setup, acking, claim_for, holding, messages, push_all, push_and_claim, seen,
    server_us, setup, stats_until, steal, until,
};

/// A lease that is extended every 6 s. It does not run out if the machine stands still for 12 s.
const STEADY: Duration = Duration::from_secs(18);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_is_extended_while_its_handler_runs() -> Result<()> {
    let setup = setup().await?;
    let (worker, mut seen) = holding(setup.queue.worker().lease(STEADY));
    push_all(&setup.queue, messages(20)).await?;
    let held = seen.take(20).await?;
    // A second worker, which would claim the message if its lease were lost.
    let (other, mut taken) = acking(setup.queue.worker());
    let mut redis = setup.redis().await?;
    let last_ms = held.iter().map(Delivery::deadline_ms).max().unwrap_or(0);
    until(
        "the first deadlines",
        async || server_us(&mut redis).await,
        |us| us / 1_000 > last_ms,
    )
    .await?;
    let stats = setup.queue.stats().await?;
    assert_eq!((stats.leased, stats.crashed), (20, 0));
    assert!(held.iter().all(|delivery| !delivery.is_lost()));
    assert_eq!(taken.rest(), Vec::<String>::new());
    for delivery in &held {
        assert_eq!(delivery.ack().await?, SettleOutcome::Done);
    }
    other.stop().await?;
    worker.abort().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handler_learns_of_a_lost_lease_and_cannot_settle() -> Result<()> {
    let setup = setup().await?;
    let (sender, mut seen) = seen();
    let handler = move |delivery: Delivery| {
        let sender = sender.clone();
        async move {
            let _ = sender.send((delivery.clone(), None));
            delivery.lost().await;
            let settled = delivery.ack().await;
            let _ = sender.send((delivery, Some(settled)));
            anyhow::Ok(())
        }
    };
    let worker = Running::start(
        setup
            .queue
            .worker()
            .lease(Duration::from_secs(3))
            .concurrency(1),
        handler,
    );
    setup.queue.push("").id("id").await?;
    let (delivery, _) = seen.next().await?;
    assert!(!delivery.is_lost());
    let stolen = steal(&setup, &delivery).await?;
    let (delivery, settled) = seen.next().await?;
    assert!(delivery.is_lost());
    assert_eq!(
        settled.expect("the reply to the settlement")?,
        SettleOutcome::Lost
    );
    assert_eq!(
        setup
            .command::<String>(&["HGET", "dueq:{orders}:claims", "id"])
            .await?,
        stolen
    );
    assert_eq!(setup.queue.stats().await?.acked, 0);
    worker.abort().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handler_learns_that_its_message_was_flushed() -> Result<()> {
    let setup = setup().await?;
    let (worker, mut seen) = holding(setup.queue.worker().lease(Duration::from_secs(3)));
    setup.queue.push("").await?;
    let delivery = seen.next().await?;
    setup.command::<()>(&["FLUSHALL"]).await?;
    crate::support::within("the loss", delivery.lost()).await?;
    assert_eq!(delivery.ack().await?, SettleOutcome::Gone);
    worker.abort().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handler_learns_that_an_operator_ended_its_lease() -> Result<()> {
    let setup = setup().await?;
    let (worker, mut seen) = holding(setup.queue.worker().lease(Duration::from_secs(3)));
    setup.queue.push("").id("id").await?;
    let delivery = seen.next().await?;
    let stored = setup.queue.get("id").await?.context("a message")?;
    let lease = stored.lease.context("a lease")?;
    let nodes = setup.queue.nodes().await?;
    let node = lease.node.context("its node")?;
    ensure!(
        nodes[0]
            .id
            .split('#')
            .next()
            .is_some_and(|id| id.ends_with(&node))
    );
    let ended = setup.queue.end_lease("id", &lease.name).await?;
    ensure!(
        matches!(ended, dueq::outcomes::RetryOutcome::Scheduled(_)),
        "{ended:?}"
    );
    let next = seen.next().await?;
    ensure!(next.attempt() == 2 && !next.is_lost());
    crate::support::within("the loss", delivery.lost()).await?;
    assert_eq!(delivery.ack().await?, SettleOutcome::Lost);
    assert_eq!(next.ack().await?, SettleOutcome::Done);
    worker.abort().await
}

/// Only workers reap leases.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expired_lease_is_reaped_only_when_a_worker_runs() -> Result<()> {
    let setup = setup().await?;
    setup.queue.push("").id("id").await?;
    let first = claim_for(&setup.queue, Duration::from_millis(1)).await?;
    let mut redis = setup.redis().await?;
    let over = |us: &u64| us / 1_000 > first.deadline_ms() + 100;
    until("the deadline", async || server_us(&mut redis).await, over).await?;
    assert_eq!(setup.queue.claim(1, Duration::from_secs(1)).await?.len(), 0);
    assert_eq!(setup.queue.stats().await?.leased, 1);
    let (worker, mut seen) = acking(setup.queue.worker());
    assert_eq!(seen.next().await?, "id");
    worker.stop().await?;
    assert_eq!(first.ack().await?, SettleOutcome::Gone);
    assert_eq!(setup.queue.stats().await?.crashed, 1);
    Ok(())
}

/// A queue behind a proxy, on a server that has the script of ack.
async fn proxied() -> Result<(Setup, Proxy, Queue)> {
    let setup = setup().await?;
    let proxy = Proxy::start(setup.server.port()).await?;
    let queue = Client::connect(&proxy.url()).await?.queue("orders")?;
    let _ = push_and_claim(
        &queue,
        Message::new("").id("loads the script on the server"),
    )
    .await?
    .ack()
    .await?;
    Ok((setup, proxy, queue))
}

/// Only the connection for acks stalls. The worker claims up to a limit, and extends the leases of
/// handled messages.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unsettled_deliveries_are_bounded_and_extended() -> Result<()> {
    const MESSAGES: u64 = 1_500;
    const HELD: u64 = 4 + 512;
    let (setup, proxy, queue) = proxied().await?;
    push_all(&setup.queue, messages(1_500)).await?;
    proxy.stall_calls_of(include_str!("../../../lua/dist/ack.lua"));
    let (worker, mut seen) = acking(queue.worker().concurrency(4).lease(STEADY));
    let extended = async || {
        let stats = setup.queue.stats().await?;
        assert!(stats.leased <= HELD, "{} are held", stats.leased);
        assert_eq!((stats.crashed, stats.acked), (0, 1));
        anyhow::Ok(queue.metrics().count(Counter::LeaseExtended))
    };
    until("extensions", extended, |extended| *extended >= HELD).await?;
    proxy.end_stall();
    seen.take(1_500).await?;
    let stats = stats_until(&setup.queue, "all acked", |stats| {
        stats.acked == 1 + MESSAGES
    })
    .await?;
    assert_eq!((stats.crashed, stats.claimed), (0, 1 + MESSAGES));
    assert_eq!(queue.metrics().count(Counter::LeaseLost), 0);
    worker.stop().await?;
    assert_eq!(seen.rest(), Vec::<String>::new());
    Ok(())
}

/// Redis answers all calls but acks, for longer than a producer's call is repeated. The handler
/// must not run again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_settlement_is_repeated_until_redis_answers() -> Result<()> {
    let (setup, proxy, queue) = proxied().await?;
    proxy.stall_calls_of(include_str!("../../../lua/dist/ack.lua"));
    let (worker, mut seen) = acking(queue.worker().lease(STEADY));
    push_all(&setup.queue, messages(3)).await?;
    seen.take(3).await?;
    let failed = async || anyhow::Ok(queue.metrics().count(Counter::SettleFailed));
    until("failed settlements", failed, |failed| *failed >= 3).await?;
    proxy.end_stall();
    let stats = stats_until(&setup.queue, "all acked", |stats| stats.acked == 1 + 3).await?;
    assert_eq!((stats.crashed, stats.leased), (0, 0));
    worker.stop().await?;
    assert_eq!(seen.rest(), Vec::<String>::new());
    Ok(())
}

/// A handler settles its message while the lease keeper extends it. The node must not report that
/// lease as lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn short_leases_and_quick_handlers_lose_no_lease() -> Result<()> {
    let setup = setup().await?;
    let (sender, mut seen) = seen();
    let handler = move |delivery: Delivery| {
        let sender = sender.clone();
        async move {
            let settled = delivery.ack().await;
            let _ = sender.send(settled);
        }
    };
    let worker = Running::start(
        setup
            .queue
            .worker()
            .lease(Duration::from_secs(20))
            .concurrency(200),
        handler,
    );
    push_all(&setup.queue, messages(1_000)).await?;
    for settled in seen.take(1_000).await? {
        assert_eq!(settled?, SettleOutcome::Done);
    }
    worker.stop().await?;
    let stats = setup.queue.stats().await?;
    assert_eq!(
        (stats.acked, stats.claimed, stats.crashed),
        (1_000, 1_000, 0)
    );
    Ok(())
}

/// The maximum time limit means no limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn maximum_time_limits_mean_no_limit() -> Result<()> {
    let setup = setup().await?;
    let worker = setup
        .queue
        .worker()
        .time_limit(Duration::MAX)
        .grace(Duration::MAX)
        .lease(STEADY);
    let (worker, mut seen) = holding(worker);
    setup.queue.push("").id("id").await?;
    let delivery = seen.next().await?;
    // The node is alive: it continues to extend the lease.
    let later = |stored: &Option<dueq::StoredMessage>| {
        stored
            .as_ref()
            .is_some_and(|stored| stored.time_ms > delivery.deadline_ms())
    };
    until(
        "extensions",
        async || Ok(setup.queue.get("id").await?),
        later,
    )
    .await?;
    assert_eq!(
        stats_until(&setup.queue, "a live worker", |stats| stats.nodes == 1)
            .await?
            .crashed,
        0
    );
    worker.abort().await
}
