//! Without notices every message still fires, late by at most the fallback interval.

use std::time::Duration;

use anyhow::Result;
use dueq::{Client, Delivery, Message};
use dueq_testkit::cluster::Cluster;

use crate::support::proxy::Proxy;
use crate::support::{Seen, command, lateness, seen, server_us, setup, until, within};

/// The fallback interval is 1 s; the rest allows for a slow machine.
const FALLBACK_LIMIT: Duration = Duration::from_secs(1 + 9);

/// Pushes one message after another. Each becomes the head and would normally cause a notice.
async fn fires(queue: &dueq::Queue, seen: &mut Seen<Duration>) -> Result<()> {
    for delay in [0, 20, 150, 300, 1_200, 5, 40] {
        queue.push("").due(Duration::from_millis(delay)).await?;
        let late = seen.next().await?;
        assert!(late < FALLBACK_LIMIT, "due after {delay} ms, {late:?} late");
    }
    Ok(())
}

/// The connection is open but silent, as after a firewall drops its state. The worker must detect
/// this and subscribe again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_subscription_is_renewed() -> Result<()> {
    let setup = setup().await?;
    let proxy = Proxy::start(setup.server.port()).await?;
    let queue = Client::connect(&proxy.url()).await?.queue("orders")?;
    let (worker, mut seen) = lateness(&queue);
    let mut redis = setup.redis().await?;
    let mut subscriber = async || {
        let clients: String = command(&mut redis, &["CLIENT", "LIST", "TYPE", "pubsub"]).await?;
        Ok(clients.split_once(' ').map(|(id, _)| id.to_owned()))
    };
    let first = crate::support::until("a subscriber", &mut subscriber, Option::is_some).await?;
    proxy.forsake_open_connections();
    crate::support::until("another subscriber", &mut subscriber, |other| {
        other.is_some() && *other != first
    })
    .await?;
    fires(&queue, &mut seen).await?;
    worker.stop().await
}

/// The connection stays and the subscription ends, as when a cluster moves the slot.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_resubscribes_after_the_server_unsubscribes_it() -> Result<()> {
    let cluster = Cluster::start(1).await?;
    let queue = Client::connect(&cluster.url()).await?.queue("orders")?;
    let (worker, mut seen) = lateness(&queue);
    let subscribers = async || {
        let channel = ["PUBSUB", "SHARDNUMSUB", "dueq:{orders}:notice"];
        Ok(cluster.command::<(String, u64)>(0, &channel).await?.1)
    };
    crate::support::until("a subscriber", subscribers, |count| *count == 1).await?;
    let slot = cluster.place("orders").await?.0.to_string();
    for change in ["DELSLOTS", "ADDSLOTS"] {
        let words = ["CLUSTER", change, &slot];
        cluster.command::<()>(0, &words).await?;
    }
    crate::support::until("a subscriber", subscribers, |count| *count == 1).await?;
    fires(&queue, &mut seen).await?;
    worker.stop().await
}

/// Any user with the right to publish can send any bytes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forged_notices_change_nothing() -> Result<()> {
    let setup = setup().await?;
    let (worker, mut seen) = lateness(&setup.queue);
    let mut redis = setup.redis().await?;
    setup
        .queue
        .push("")
        .id("far")
        .due(crate::support::HOUR)
        .await?;
    for forged in [
        "0",
        "1",
        "-1",
        "18446744073709551615",
        "99999999999999999999",
        "x",
        "",
        "\u{1f600}",
        "1e3",
    ] {
        command::<u64>(&mut redis, &["SPUBLISH", "dueq:{orders}:notice", forged]).await?;
    }
    fires(&setup.queue, &mut seen).await?;
    let stats = setup.queue.stats().await?;
    assert_eq!(
        (stats.claimed, stats.scheduled),
        (7, 1),
        "nothing fired early"
    );
    worker.stop().await
}

/// A message is written to Redis without a notice and without wake-up tokens. The next beat finds
/// it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parked_queue_fires_within_its_parking_time_without_hints() -> Result<()> {
    let setup = setup().await?;
    let (sender, mut seen) = seen();
    let parking = Duration::from_secs(3);
    let far = Message::new("").id("far").due(Duration::from_secs(3_600));
    setup.queue.push_message(far).await?;
    let worker = setup
        .client
        .worker()
        .parking(parking)
        .pattern(
            &setup.client.pattern("order?")?,
            move |delivery: Delivery| {
                let _ = sender.send(delivery.lateness());
                std::future::ready(())
            },
        )
        .spawn()?;
    let is_parked = |health: &dueq::WorkerHealth| {
        let queue = health.queue("orders");
        queue.is_some_and(dueq::QueueHealth::is_parked)
    };
    let mut redis = setup.redis().await?;
    for number in 0..3 {
        let _ = until("a parked queue", async || Ok(worker.health()), is_parked).await?;
        let (id, due) = (number.to_string(), server_us(&mut redis).await? / 1_000);
        let words = ["HSET", "dueq:{orders}:messages", &id, ""];
        command::<i64>(&mut redis, &words).await?;
        let words = ["ZADD", "dueq:{orders}:scheduled", &due.to_string(), &id];
        command::<i64>(&mut redis, &words).await?;
        let late = seen.next().await?;
        println!("{late:?} late");
        assert!(late < parking + FALLBACK_LIMIT, "{late:?} late");
    }
    within("the shutdown", worker.shutdown()).await??;
    Ok(())
}
