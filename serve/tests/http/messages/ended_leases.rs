//! Calls by which an operator ends the lease of a message, or buries one.

use std::time::Duration;

use anyhow::Result;
use serde_json::json;

use crate::assert_refused;
use crate::instance::Instance;

const AT: &str = "/v1/queues/orders/messages";
const LEASE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn repeated_call_ends_one_lease_and_is_audited() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.queue("orders").await?;
    let _ = queue.run_now("1").await?;
    let held = queue.claim(1, LEASE).await?;
    let shown = instance.read(&format!("GET {AT}/1")).await?;
    let lease = json!({ "lease": shown["lease"] }).to_string();
    let line = format!("POST {AT}/1/end-lease");
    let headers = ["Content-Type: application/json"];
    let wrong = "{\"lease\": \"0123456789abcdef\"}";
    assert_refused!(
        instance.ask(&line, &headers, wrong).await?,
        409,
        "not_leased"
    );
    assert_refused!(
        instance.ask(&line, &headers, "{\"lease\": \"x\"}").await?,
        400,
        "invalid_input"
    );
    let answer = instance.ask(&line, &headers, &lease).await?;
    assert_eq!(
        (answer.status, &answer.json()?["outcome"]),
        (200, &json!("ended"))
    );
    // The repeated call does not end the next lease.
    let next = queue.claim(1, LEASE).await?;
    assert_refused!(
        instance.ask(&line, &headers, &lease).await?,
        409,
        "not_leased"
    );
    for (delivery, settled) in held.into_iter().zip([dueq::outcomes::SettleOutcome::Lost]) {
        assert_eq!(delivery.ack().await?, settled);
    }
    for delivery in next {
        assert_eq!(
            (delivery.attempt(), delivery.ack().await?),
            (2, dueq::outcomes::SettleOutcome::Done)
        );
    }
    assert_refused!(
        instance.ask(&line, &headers, &lease).await?,
        404,
        "no_such_message"
    );
    let audit = instance.audit()?;
    assert!(
        audit
            .iter()
            .any(|line| line.to_string().contains("end-lease")),
        "{audit:?}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn buried_message_is_dead_at_once_or_when_its_lease_ends() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.queue("orders").await?;
    let _ = queue.run_now("1").await?;
    let held = queue.claim(1, LEASE).await?;
    let headers = ["Content-Type: application/json"];
    let reason = "{\"reason\": \"poison\"}";
    let line = format!("POST {AT}/1/bury");
    for _ in 0..2 {
        let answer = instance.ask(&line, &headers, reason).await?;
        assert_eq!(answer.json()?["outcome"], "marked");
    }
    let shown = instance.read(&format!("GET {AT}/1")).await?;
    assert_eq!(shown["is_to_bury"], true, "{shown}");
    assert!(
        shown["since_ms"].is_u64() && shown["holder"].is_null(),
        "{shown}"
    );
    for delivery in held {
        let released = delivery.release().await?;
        assert_eq!(released, dueq::outcomes::SettleOutcome::Done);
    }
    let answer = instance.ask(&line, &headers, reason).await?;
    assert_eq!(answer.json()?["outcome"], "dead");
    queue.push("x").id("waits").delay(LEASE).await?;
    let line = format!("POST {AT}/waits/bury");
    let answer = instance.ask(&line, &headers, reason).await?;
    assert_eq!(answer.json()?["outcome"], "buried");
    let shown = instance.read(&format!("GET {AT}/waits")).await?;
    assert_eq!(
        (&shown["state"], &shown["error"]),
        (&json!("dead"), &json!("poison"))
    );
    let line = format!("POST {AT}/none/bury");
    assert_refused!(
        instance.ask(&line, &headers, reason).await?,
        404,
        "no_such_message"
    );
    Ok(())
}
