//! Every error is a problem document.

use anyhow::Result;

use crate::assert_refused;
use crate::instance::Instance;

#[tokio::test(flavor = "multi_thread")]
async fn unknown_paths_and_methods_are_problems() -> Result<()> {
    let instance = Instance::open().await?;
    for line in ["GET /v1", "POST /v1/queues/orders/nothing", "GET /\u{9b}"] {
        let answer = instance.ask(line, &[], "").await?;
        assert!(matches!(answer.status, 400 | 404), "{line}: {answer:?}");
        assert!(!answer.body.contains('\u{9b}'), "{answer:?}");
    }
    assert_refused!(
        instance.ask("GET /nothing", &[], "").await?,
        404,
        "not_found"
    );
    let answer = instance.ask("DELETE /v1/queues", &[], "").await?;
    assert_refused!(&answer, 405, "method_not_allowed");
    assert_eq!(answer.header("allow"), Some("GET,HEAD"));
    assert_refused!(
        instance.ask("POST /healthz", &[], "").await?,
        405,
        "method_not_allowed"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn responses_cannot_be_read_or_framed_elsewhere() -> Result<()> {
    let instance = Instance::open().await?;
    for path in ["/healthz", "/v1/queues", "/nothing"] {
        let answer = instance.ask(&format!("GET {path}"), &[], "").await?;
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("cache-control", "no-store"),
            ("cross-origin-resource-policy", "same-origin"),
            (
                "content-security-policy",
                "default-src 'none'; frame-ancestors 'none'",
            ),
        ] {
            assert_eq!(answer.header(name), Some(value), "{path}: {answer:?}");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_of_redis_say_whether_they_applied() -> Result<()> {
    let mut instance = Instance::open().await?;
    instance.queue("orders").await?;
    instance.redis.command(&["SET", "dueq:{wrong}:meta", "x"])?;
    let answer = instance.ask("GET /v1/queues/wrong", &[], "").await?;
    assert_refused!(&answer, 502, "redis_error");
    assert_eq!(answer.json()?["applied"], "no", "{answer:?}");
    instance.redis.kill()?;
    let (read, change, ready) = tokio::join!(
        instance.ask("GET /v1/queues/orders", &[], ""),
        instance.ask("PUT /v1/queues/orders/pause", &[], ""),
        instance.ask("GET /readyz", &[], ""),
    );
    for answer in [read?, change?] {
        assert!(matches!(answer.status, 503 | 504), "{answer:?}");
        answer.code()?;
        assert_eq!(answer.json()?["retryable"], true, "{answer:?}");
    }
    assert_refused!(ready?, 503, "redis_unavailable");
    assert_eq!(instance.ask("GET /healthz", &[], "").await?.status, 200);
    Ok(())
}
