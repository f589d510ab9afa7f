//! The audit log of changes that dashboard pages make.

use std::time::Duration;

use anyhow::{Context, Result};

use crate::dashboard::look::submit;
use crate::instance::Instance;

const HOUR: Duration = Duration::from_secs(3_600);

#[tokio::test]
async fn audit_log_has_every_change_made_by_a_page() -> Result<()> {
    let instance = Instance::with_tokens().await?;
    let queue = instance.client.queue("orders")?;
    for id in ["1", "2", "3"] {
        queue.push("x".repeat(1 << 20)).id(id).due(HOUR).await?;
    }
    let own = "/queues/orders/messages/1";
    let of_message = "/v1/queues/orders/messages/1";
    for (role, page, form, call) in [
        (
            "producer",
            own,
            "action=reschedule&when=2h",
            ("PATCH", of_message),
        ),
        ("producer", own, "action=cancel", ("DELETE", of_message)),
        ("producer", own, "action=undo", ("PUT", of_message)),
        ("operator", own, "action=cancel", ("DELETE", of_message)),
        ("operator", own, "action=undo", ("PUT", of_message)),
        ("operator", own, "action=run_now", ("PATCH", of_message)),
        (
            "producer",
            "/queues/orders/messages",
            "action=cancel&id=2",
            ("DELETE", "/v1/queues/orders/messages/2"),
        ),
        (
            "operator",
            "/queues/orders",
            "action=pause",
            ("PUT", "/v1/queues/orders/pause"),
        ),
    ] {
        let before = instance.audit()?.len();
        let answer = submit(&instance, Some(role), page, form).await?;
        let lines = &instance.audit()?[before..];
        let [start, end] = lines else {
            panic!("{role} {page} {form}: {answer:?} {lines:?}");
        };
        let did = (start["method"].as_str(), start["path"].as_str());
        assert_eq!(did, (Some(call.0), Some(call.1)), "{form}");
        assert_eq!(start["principal"], role);
        let peer = start["peer"].as_str().context("a peer")?;
        assert!(peer.starts_with("127.0.0.1:"), "{peer}");
        let status = end["status"].as_u64().context("a status")?;
        assert!(
            (200..300).contains(&status),
            "{form}: {end} {}",
            answer.body
        );
        assert!(start.to_string().len() < 1_000, "a payload is in the log");
    }
    Ok(())
}
