//! Every error is a problem document.

use anyhow::Result;

use crate::assert_refused;
use crate::instance::Instance;

#[tokio::test(flavor = "multi_thread")]
async fn unknown_paths_and_methods_are_problems() -> Result<()> {
    let instance = Instance::open().await?;
    for line in ["GET /v1", "POST /v1/queues/orders/nothing", "GET /\u{9b}"] {
        let answer = instance.call(line).await?;
        assert!(matches!(answer.status, 400 | 404), "{line}: {answer:?}");
        assert!(!answer.body.contains('\u{9b}'), "{answer:?}");
    }
    assert_refused!(instance.call("GET /nothing").await?, 404, "not_found");
    let answer = instance.call("DELETE /v1/queues").await?;
    assert_refused!(&answer, 405, "method_not_allowed");
    assert_eq!(answer.header("allow"), Some("GET,HEAD"));
    assert_refused!(
        instance.call("POST /healthz").await?,
        405,
        "method_not_allowed"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn response_headers_forbid_other_sites_to_embed_it() -> Result<()> {
    let instance = Instance::open().await?;
    for path in ["/healthz", "/v1/queues", "/nothing"] {
        let answer = instance.call(&format!("GET {path}")).await?;
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
async fn problem_says_that_a_call_refused_by_redis_was_not_applied() -> Result<()> {
    let instance = Instance::open().await?;
    instance.redis.command(&["SET", "dueq:{wrong}:meta", "x"])?;
    let answer = instance.call("GET /v1/queues/wrong").await?;
    assert_refused!(&answer, 502, "redis_error");
    assert_eq!(answer.json()?["applied"], "no", "{answer:?}");
    Ok(())
}
