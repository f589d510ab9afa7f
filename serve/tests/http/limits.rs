//! Limits of requests and connections.

use std::time::Duration;

use anyhow::Result;
use tokio::io::AsyncReadExt;

use crate::assert_refused;
use crate::instance::Instance;

#[tokio::test(flavor = "multi_thread")]
async fn each_caller_has_its_own_rate_limit() -> Result<()> {
    let instance = Instance::with_tokens_and(|config| config.rate_limit = Some(1)).await?;
    let mut refused = 0;
    for _ in 0..20 {
        let answer = instance.ask_as("viewer", "GET /openapi.json", "").await?;
        if answer.status == 429 {
            assert_refused!(&answer, 429, "rate_limited");
            refused += 1;
        }
    }
    assert!(refused > 0, "20 requests within a second");
    assert_eq!(
        instance
            .ask_as("operator", "GET /openapi.json", "")
            .await?
            .status,
        200
    );
    // A stranger spends nobody's requests, and health has no limit.
    for _ in 0..20 {
        assert_eq!(instance.ask("GET /v1/queues", &[], "").await?.status, 401);
        assert_eq!(instance.ask("GET /healthz", &[], "").await?.status, 200);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_beyond_the_limit_waits() -> Result<()> {
    let instance = Instance::start(|config, _| {
        config.max_connections = 2;
        Ok(Vec::new())
    })
    .await?;
    let (first, mut second) = (instance.connect().await?, instance.connect().await?);
    let waiting = instance.ask("GET /healthz", &[], "");
    let mut waiting = std::pin::pin!(waiting);
    let early = tokio::time::timeout(Duration::from_millis(300), &mut waiting).await;
    assert!(early.is_err(), "the third connection was served: {early:?}");
    drop(first);
    assert_eq!(waiting.await?.status, 200);
    // The second one is still open.
    let closed = tokio::time::timeout(Duration::from_millis(10), second.read(&mut [0])).await;
    assert!(closed.is_err(), "{closed:?}");
    Ok(())
}
