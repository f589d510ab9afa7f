//! The stop of the server while claims wait.

use anyhow::Result;
use tokio::io::AsyncReadExt;

use super::{LIMIT, WAITS, begin, push_large, until, waiting};
use crate::instance::{Answer, Instance, to_end};

#[tokio::test(flavor = "multi_thread")]
async fn waiting_claims_end_without_messages_at_the_stop() -> Result<()> {
    let mut instance = Instance::open().await?;
    let queue = instance.queue("orders").await?;
    let repeatable = r#"{"wait_ms": 50000, "claim_id": "a"}"#;
    let mut claims = Vec::new();
    for body in [WAITS, repeatable] {
        claims.push(begin(&instance, &[], body).await?);
    }
    waiting(&instance, 2).await?;
    // The claims would wait longer than the grace period, and then get no answer.
    instance.stop.cancel();
    for mut claim in claims {
        let answer = Answer::parse(&to_end(&mut claim).await?)?;
        assert_eq!((answer.status, &*answer.body), (204, ""), "{answer:?}");
    }
    instance.stopped().await?;
    assert_eq!(queue.nodes().await?.len(), 0, "the node has left the queue");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn unreceived_messages_are_released_at_the_stop() -> Result<()> {
    let mut instance = Instance::open().await?;
    let queue = instance.client.queue("orders")?;
    push_large(&queue).await?;
    let mut stream = begin(&instance, &[], WAITS).await?;
    stream.read_exact(&mut [0; 100]).await?;
    assert_eq!(queue.stats().await?.leased, 1);
    instance.stop.cancel();
    // The caller does not read, and stays connected.
    instance.stopped().await?;
    let stats = until(&queue, "the release", |stats| stats.leased == 0).await?;
    assert_eq!(stats.claimed, 1);
    let taken = queue.claim(1, LIMIT).await?;
    assert_eq!((taken[0].attempt(), taken[0].crashes()), (1, 0));
    drop(stream);
    Ok(())
}
