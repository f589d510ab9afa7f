//! The operations on all queues.

use anyhow::{Context, Result};

use crate::instance::Instance;

#[tokio::test(flavor = "multi_thread")]
async fn list_has_those_on_queues_of_the_caller() -> Result<()> {
    let instance = Instance::with_tokens().await?;
    let audit = "{\"kind\": \"audit\"}";
    for queue in ["orders", "other-1", "other 2"] {
        instance.queue(queue).await?;
        let segment = queue.replace(' ', "%20");
        let line = format!("POST /v1/queues/{segment}/operations");
        let begun = instance.ask_as("operator", &line, audit).await?;
        assert_eq!(begun.status, 202, "{begun:?}");
    }
    for (name, expected) in [
        ("viewer", &["other 2", "other-1", "orders"][..]),
        ("foreigner", &["other 2", "other-1"]),
    ] {
        let list = instance.ask_as(name, "GET /v1/operations", "").await?;
        let list = list.json()?;
        let list = list["operations"].as_array().context("a list")?;
        let queues: Vec<_> = list.iter().map(|one| one["queue"].as_str()).collect();
        let expected: Vec<_> = expected.iter().copied().map(Some).collect();
        assert_eq!(queues, expected, "{name}: the newest first");
        for one in list {
            let href = one["href"].as_str().context("an address")?;
            let read = instance.ask_as(name, &format!("GET {href}"), "").await?;
            assert_eq!(read.json()?["id"], one["id"], "{href}");
        }
    }
    Ok(())
}
