//! Metrics for Prometheus.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::instance::{Instance, LIMIT};

/// Parses the samples of a metrics page, by name and labels. Checks what every page must have.
fn samples(page: &str) -> Result<BTreeMap<String, f64>> {
    let (mut samples, mut metric) = (BTreeMap::new(), String::new());
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            metric = rest.split(' ').next().unwrap_or_default().to_owned();
        } else if !line.starts_with('#') {
            let (name, value) = line.rsplit_once(' ').context("a value")?;
            assert_eq!(
                name.split('{').next(),
                Some(&*metric),
                "{line} has no header"
            );
            let earlier = samples.insert(name.to_owned(), value.parse()?);
            assert_eq!(earlier, None, "{line} is there twice");
        }
    }
    Ok(samples)
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_have_the_counts_of_each_queue() -> Result<()> {
    let instance = Instance::with_tokens().await?;
    let queue = instance.queue("orders").await?;
    instance.queue("other-\"1\\").await?;
    queue.pause().await?;
    let answer = instance.ask_as("viewer", "GET /metrics", "").await?;
    assert_eq!(
        answer.header("content-type"),
        Some("text/plain; version=0.0.4; charset=utf-8")
    );
    let all = samples(&answer.body)?;
    for (name, value) in [
        (
            "dueq_queue_messages{queue=\"orders\",state=\"scheduled\"}",
            1.0,
        ),
        (
            "dueq_queue_messages{queue=\"other-\\\"1\\\\\",state=\"scheduled\"}",
            1.0,
        ),
        ("dueq_queue_paused{queue=\"orders\"}", 1.0),
        ("dueq_queue_pushed_total{queue=\"orders\"}", 1.0),
        ("dueq_queues_omitted", 0.0),
        ("dueq_redis_up", 1.0),
    ] {
        assert_eq!(all.get(name), Some(&value), "{name} of {all:?}");
    }
    assert!(all.contains_key("dueq_snapshot_age_seconds"));
    let foreign = instance.ask_as("foreigner", "GET /metrics", "").await?.body;
    assert!(
        !foreign.contains("orders") && foreign.contains("other-"),
        "{foreign}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_count_requests_and_problems() -> Result<()> {
    let instance = Instance::with_tokens().await?;
    instance.queue("orders").await?;
    for line in [
        "GET /v1/queues/orders",
        "GET /v1/queues/absent",
        "GET /nothing",
        "GET /v1/\u{9b}",
    ] {
        instance.ask_as("viewer", line, "").await?;
    }
    instance.call("GET /v1/queues/orders").await?;
    let all = samples(&instance.ask_as("viewer", "GET /metrics", "").await?.body)?;
    let route = |status: &str| {
        let name = format!(
            "dueq_serve_requests_total{{route=\"/v1/queues/{{queue}}\",method=\"GET\",status=\"{status}\"}}"
        );
        all.get(&name).copied()
    };
    assert_eq!(
        (route("2xx"), route("4xx")),
        (Some(1.0), Some(2.0)),
        "{all:?}"
    );
    for (code, count) in [("no_such_queue", 1.0), ("unauthenticated", 1.0)] {
        let name = format!("dueq_serve_problems_total{{code=\"{code}\"}}");
        assert_eq!(all.get(&name), Some(&count), "{all:?}");
    }
    assert_eq!(all.get("dueq_serve_connections"), Some(&1.0), "{all:?}");
    assert_eq!(all.get("dueq_serve_body_bytes"), Some(&0.0), "{all:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_and_search_cover_at_most_1000_queues() -> Result<()> {
    let instance = Instance::open().await?;
    // Each queue has only a broken meta key: a scan finds it, but it cannot be read.
    let script = "for n = 0, 1004 do
        redis.call('HSET', string.format('dueq:{q-%04d}:meta', n), 'layout', 9)
    end";
    instance.redis.command(&["EVAL", script, "0"])?;
    crate::queues::lists::list_until(&instance, |list| list["complete"] == true).await?;
    // The list has reached its limit, but the poller still learns of the last queues.
    let end = Instant::now() + LIMIT;
    loop {
        let all = samples(&instance.call("GET /metrics").await?.body)?;
        if all.get("dueq_queues_omitted") == Some(&5.0) {
            break;
        }
        anyhow::ensure!(Instant::now() < end, "{all:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let found = instance.read("GET /v1/search?id=1").await?;
    let not_asked = found["not_asked"].as_array().context("a list")?;
    assert_eq!((not_asked.len(), &not_asked[4]), (5, &"q-1004".into()));
    assert_eq!(found["asked"], 1_000, "{found}");
    // A queue that cannot be read does not stop the search.
    assert_eq!(found["failed"].as_array().map(Vec::len), Some(1_000));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn scrape_makes_no_call_to_redis() -> Result<()> {
    let mut instance = Instance::open().await?;
    instance.queue("orders").await?;
    crate::queues::lists::list_until(&instance, |list| list["complete"] == true).await?;
    instance.redis.kill()?;
    crate::queues::lists::list_until(&instance, |list| list["error"].is_string()).await?;
    let all = samples(&instance.call("GET /metrics").await?.body)?;
    assert_eq!(all.get("dueq_redis_up"), Some(&0.0), "{all:?}");
    Ok(())
}
