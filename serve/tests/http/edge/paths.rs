//! Unusual spellings of paths, which must not reach another route or queue.

use anyhow::Result;

use crate::assert_refused;
use crate::instance::Instance;

#[tokio::test(flavor = "multi_thread")]
async fn unusual_spellings_of_a_path_are_not_found() -> Result<()> {
    let instance = Instance::with_tokens().await?;
    let queue = instance.queue("orders").await?;
    for path in [
        "//v1/queues/orders/pause",
        "/v1//queues/orders/pause",
        "/v1/queues//pause",
        "/v1/queues/orders//pause",
        "/v1/queues/orders/pause/",
        "/V1/queues/orders/pause",
        "/v1/Queues/orders/pause",
        "/v1/queues/orders/Pause",
        "/v1/queues/orders/%70ause",
        "/v1/%71ueues/orders/pause",
        "/v1/queues/./orders/pause",
        "/v1/x/../queues/orders/pause",
        "/healthz/../v1/queues/orders/pause",
        "/healthz/%2e%2e/v1/queues/orders/pause",
        "/v1/queues/orders/pause;x=1",
        "/v1/queues/orders\\pause",
        "/v1/queues/orders%2Fpause",
    ] {
        let answer = instance
            .ask_as("operator", &format!("PUT {path}"), "")
            .await?;
        assert!(
            matches!(answer.status, 400 | 404 | 405),
            "{path}: {answer:?}"
        );
        answer.code()?;
    }
    assert!(!queue.stats().await?.paused);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn no_path_spelling_reaches_a_queue_of_another_caller() -> Result<()> {
    let instance = Instance::with_tokens().await?;
    let queue = instance.queue("orders").await?;
    for segment in [
        "orders",
        "%6frders",
        "%6Frders",
        "%6f%72%64%65%72%73",
        "~b3JkZXJz",
        "other-1/../orders",
        "other-1%2F..%2Forders",
        "other-1/%2e%2e/orders",
    ] {
        let line = format!("PUT /v1/queues/{segment}/pause");
        let answer = instance.ask_as("foreigner", &line, "").await?;
        assert!(
            matches!(answer.status, 400 | 403 | 404),
            "{line}: {answer:?}"
        );
        answer.code()?;
    }
    assert!(!queue.stats().await?.paused);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn dots_in_a_segment_are_part_of_a_queue_name() -> Result<()> {
    let instance = Instance::with_tokens().await?;
    let queue = instance.queue("..").await?;
    for segment in ["%2e%2e", "~Li4"] {
        let line = format!("PUT /v1/queues/{segment}/pause");
        assert_refused!(
            instance.ask_as("foreigner", &line, "").await?,
            403,
            "foreign_queue"
        );
        let answer = instance.ask_as("operator", &line, "").await?;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert!(queue.stats().await?.paused);
        queue.resume().await?;
    }
    Ok(())
}
