//! Tests how the server attends and leaves queues.

use std::sync::Arc;
use std::time::Duration;

use dueq::Client;
use dueq::claims::Puller;
use dueq_testkit::Server;
use tokio::time::Instant;

use super::attended::{Attended, Attention};
use super::{Claims, MAX_CLAIMS};
use crate::edge::Gauge;

const LONG: Duration = Duration::from_secs(3_600);
/// Far longer than any awaited event takes.
const LIMIT: Duration = Duration::from_secs(60);

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

async fn client() -> Result<(Server, Client)> {
    let server = Server::start(&[])?;
    let client = Client::connect(&server.url()).await?;
    Ok((server, client))
}

/// An attention to the queue, as a claim holds one.
fn attention(attended: &Arc<Attended>, name: &str) -> Result<Attention> {
    let attention = attended.attention(name);
    Ok(attention.map_err(|error| format!("{error:?}"))?)
}

async fn puller(attention: &Attention, client: &Client, name: &str) -> Result<Puller> {
    let puller = attention.puller(&client.queue(name)?).await;
    Ok(puller.map_err(|error| format!("{error:?}"))?)
}

/// One claim of the queue, which does not wait for messages.
async fn claim(attended: &Arc<Attended>, client: &Client, name: &str) -> Result<usize> {
    let attention = attention(attended, name)?;
    let puller = puller(&attention, client, name).await?;
    Ok(puller.pull(1, LONG, Duration::ZERO).await?.len())
}

async fn until(what: &str, is_so: impl AsyncFn() -> Result<bool>) -> Result<()> {
    let end = Instant::now() + LIMIT;
    while !is_so().await? {
        assert!(Instant::now() < end, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_queue_is_left_and_attended_again() -> Result<()> {
    let (_server, client) = client().await?;
    let attended = Attended::with_limits(client.clone(), Duration::from_millis(50), 10, LIMIT);
    let queue = client.queue("orders")?;
    queue.push("x").delay(LONG).await?;
    for _ in 0..3 {
        assert_eq!(claim(&attended, &client, "orders").await?, 0);
        until("the node leaves", async || {
            Ok(!attended.knows("orders") && queue.nodes().await?.is_empty())
        })
        .await?;
    }
    // While a claim waits, the queue is in use, however long it takes.
    let attention = attention(&attended, "orders")?;
    let puller = puller(&attention, &client, "orders").await?;
    let wait = Duration::from_millis(300);
    assert!(puller.pull(1, LONG, wait).await?.is_empty());
    assert!(attended.knows("orders") && queue.nodes().await?.len() == 1);
    drop(attention);
    attended.end().await;
    assert!(attended.attention("orders").is_err());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn queue_beyond_the_limit_replaces_an_idle_one() -> Result<()> {
    let (_server, client) = client().await?;
    let attended = Attended::with_limits(client.clone(), LONG, 2, LIMIT);
    client.queue("b")?.push("x").delay(LONG).await?;
    for name in ["a", "b", "a", "c"] {
        claim(&attended, &client, name).await?;
    }
    until("b is left", async || Ok(!attended.knows("b"))).await?;
    assert!(attended.knows("a") && attended.knows("c"));
    assert!(client.queue("b")?.nodes().await?.is_empty());
    // The next claim makes the server attend the queue again.
    client.queue("b")?.push("x").await?;
    until("a message of b", async || {
        Ok(claim(&attended, &client, "b").await? == 1)
    })
    .await?;
    attended.end().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_during_the_leave_of_its_queue_gets_messages() -> Result<()> {
    let (_server, client) = client().await?;
    let attended = Attended::with_limits(client.clone(), Duration::from_millis(1), 2, LIMIT);
    let mut claims = tokio::task::JoinSet::new();
    for number in 0..8 {
        let (attended, client) = (Arc::clone(&attended), client.clone());
        claims.spawn(async move {
            for round in 0..20 {
                let name = ["a", "b", "c"][(number + round) % 3];
                let claimed = claim(&attended, &client, name).await;
                claimed.map_err(|error| error.to_string())?;
                tokio::time::sleep(Duration::from_millis((number % 3) as u64)).await;
            }
            Ok::<_, String>(())
        });
    }
    while let Some(ended) = claims.join_next().await {
        ended??;
    }
    attended.end().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn node_that_has_ended_is_replaced() -> Result<()> {
    let (_server, client) = client().await?;
    let attended = Attended::with_limits(client.clone(), LONG, 10, LIMIT);
    let end_node = async || {
        let attention = attention(&attended, "a")?;
        let puller = puller(&attention, &client, "a").await?;
        Ok::<_, Box<dyn std::error::Error>>(puller.shutdown().await?)
    };
    end_node().await?;
    // The handler of a failed claim checks whether the node has ended.
    assert!(claim(&attended, &client, "a").await.is_err());
    attended.check_node();
    assert_eq!(claim(&attended, &client, "a").await?, 0);
    // The first claim of another queue checks it too.
    end_node().await?;
    for name in ["b", "a"] {
        client.queue(name)?.push("x").await?;
        until("a message", async || {
            Ok(claim(&attended, &client, name).await? == 1)
        })
        .await?;
    }
    attended.end().await;
    Ok(())
}

/// Sends a signal to the process of the Redis server.
fn signal(signal: &str, server: &Server) -> Result<()> {
    let pid = server.pid().to_string();
    let status = std::process::Command::new("kill")
        .args([signal, &pid])
        .status()?;
    assert!(status.success());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn node_that_does_not_leave_its_queue_in_time_is_replaced() -> Result<()> {
    let (server, client) = client().await?;
    let (idle, limit) = (Duration::from_millis(50), Duration::from_secs(3));
    let attended = Attended::with_limits(client.clone(), idle, 10, limit);
    let other = attention(&attended, "other")?;
    let old = puller(&other, &client, "other").await?;
    claim(&attended, &client, "orders").await?;
    signal("-STOP", &server)?;
    // Leaving the queue needs an answer of the Redis server, which is stopped.
    until("the node is replaced", async || {
        Ok(!attended.knows("orders"))
    })
    .await?;
    let again = attention(&attended, "orders")?;
    let new = puller(&again, &client, "orders").await?;
    signal("-CONT", &server)?;
    client.queue("orders")?.push("x").await?;
    assert_eq!(new.pull(1, LONG, LIMIT).await?.len(), 1);
    // The claims of the replaced node go on, and it ends with the last of them.
    client.queue("other")?.push("x").await?;
    assert_eq!(old.pull(1, LONG, LIMIT).await?.len(), 1);
    drop((old, other, again));
    until("one node", async || {
        Ok(client.queue("other")?.nodes().await?.is_empty())
    })
    .await?;
    attended.end().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn queue_of_a_new_node_is_left_when_idle() -> Result<()> {
    let (_server, client) = client().await?;
    let idle = Duration::from_millis(50);
    let attended = Attended::with_limits(client.clone(), idle, 10, LIMIT);
    let (first, second) = (attention(&attended, "a")?, attention(&attended, "b")?);
    let old = puller(&first, &client, "a").await?;
    old.shutdown().await?;
    // The new node starts for an attention that is older than the end of the first node.
    let node = puller(&second, &client, "b").await?.pullers().clone();
    puller(&first, &client, "a").await?;
    drop((first, second));
    until("the node leaves", async || {
        let knows = ["a", "b"].map(|name| attended.knows(name));
        Ok(knows == [false, false] && node.health().queues().next().is_none())
    })
    .await?;
    assert!(node.health().is_running());
    attended.end().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn queue_of_a_disconnected_claim_is_left_when_idle() -> Result<()> {
    let (_server, client) = client().await?;
    let idle = Duration::from_millis(50);
    let attended = Attended::with_limits(client.clone(), idle, 10, LIMIT);
    let other = attention(&attended, "other")?;
    let node = puller(&other, &client, "other").await?.pullers().clone();
    for round in 0..20 {
        let left = attention(&attended, "orders")?;
        let queue = client.queue("orders")?;
        // The caller disconnects as soon as the claim waits for the node.
        tokio::select! {
            biased;
            _ = left.puller(&queue) => {}
            () = std::future::ready(()) => {}
        }
        drop(left);
        // The node handles its commands in order, so by now it attends the first queue.
        let next = format!("next-{round}");
        claim(&attended, &client, &next).await?;
        until("the node leaves", async || {
            let knows = ["orders", &next].map(|name| attended.knows(name));
            Ok(knows == [false, false] && node.health().queues().count() == 1)
        })
        .await?;
    }
    drop(other);
    attended.end().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_after_the_end_starts_no_node() -> Result<()> {
    let (_server, client) = client().await?;
    let attended = Attended::with_limits(client.clone(), LONG, 10, LIMIT);
    let late = attention(&attended, "orders")?;
    attended.end().await;
    let refused = late.puller(&client.queue("orders")?).await;
    assert!(refused.is_err_and(|problem| problem.code == crate::edge::problem::Code::Stopping));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn number_of_waiting_claims_is_bounded() -> Result<()> {
    let (_server, client) = client().await?;
    let (claims, gauge) = (Claims::new(client), Gauge::default());
    let all: Vec<_> = (0..MAX_CLAIMS).map(|_| claims.begin(&gauge)).collect();
    assert!(all.iter().all(std::result::Result::is_ok));
    assert!(claims.begin(&gauge).is_err());
    drop(all);
    assert!(claims.begin(&gauge).is_ok());
    Ok(())
}
