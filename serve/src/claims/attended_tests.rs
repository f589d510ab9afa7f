//! Tests of the attention to queues.

use std::sync::Arc;
use std::time::Duration;

use dueq::Client;
use dueq_testkit::Server;
use tokio::time::Instant;

use super::attended::Attended;
use super::{Claims, MAX_CLAIMS};
use crate::metrics::Gauge;

const LONG: Duration = Duration::from_secs(3_600);
/// Far longer than anything takes.
const LIMIT: Duration = Duration::from_secs(60);

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

async fn client() -> Result<(Server, Client)> {
    let server = Server::start(&[])?;
    let client = Client::connect(&server.url()).await?;
    Ok((server, client))
}

/// One claim of the queue, which does not wait.
async fn claim(attended: &Arc<Attended>, client: &Client, name: &str) -> Result<usize> {
    let queue = client.queue(name)?;
    let attention = attended
        .attention(name)
        .map_err(|error| format!("{error:?}"))?;
    let puller = attention.puller(&queue).await;
    let puller = puller.map_err(|error| format!("{error:?}"))?;
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
    // A claim that waits is a use, however long.
    let attention = attended
        .attention("orders")
        .map_err(|error| format!("{error:?}"))?;
    let puller = attention.puller(&queue).await;
    let puller = puller.map_err(|error| format!("{error:?}"))?;
    let wait = Duration::from_millis(300);
    assert!(puller.pull(1, LONG, wait).await?.is_empty());
    assert!(attended.knows("orders") && queue.nodes().await?.len() == 1);
    drop(attention);
    attended.end().await;
    assert!(attended.attention("orders").is_err());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn queues_beyond_the_limit_take_the_place_of_idle_ones() -> Result<()> {
    let (_server, client) = client().await?;
    let attended = Attended::with_limits(client.clone(), LONG, 2, LIMIT);
    client.queue("b")?.push("x").delay(LONG).await?;
    for name in ["a", "b", "a", "c"] {
        claim(&attended, &client, name).await?;
    }
    until("b is left", async || Ok(!attended.knows("b"))).await?;
    assert!(attended.knows("a") && attended.knows("c"));
    assert!(client.queue("b")?.nodes().await?.is_empty());
    // It is attended again when it is claimed from.
    client.queue("b")?.push("x").await?;
    until("a message of b", async || {
        Ok(claim(&attended, &client, "b").await? == 1)
    })
    .await?;
    attended.end().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_during_the_end_of_attention_find_their_queue() -> Result<()> {
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
async fn number_of_claims_is_bounded() -> Result<()> {
    let (_server, client) = client().await?;
    let (claims, gauge) = (Claims::new(client), Gauge::default());
    let all: Vec<_> = (0..MAX_CLAIMS).map(|_| claims.begin(&gauge)).collect();
    assert!(all.iter().all(std::result::Result::is_ok));
    assert!(claims.begin(&gauge).is_err());
    drop(all);
    assert!(claims.begin(&gauge).is_ok());
    Ok(())
}
