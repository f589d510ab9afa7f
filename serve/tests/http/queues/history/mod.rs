//! The history of a queue: what happened in each minute, hour or day.

mod judge;
mod late;
mod restarts;

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use dueq::Delivery;
use dueq::inspect::HistoryResolution;
use serde_json::{Value, json};

use crate::assert_refused;
use crate::instance::{Instance, LIMIT};

const AT: &str = "GET /v1/queues/orders/history";

/// Reads the history repeatedly until it is as expected.
async fn history_until(
    instance: &Instance,
    query: &str,
    expected: impl Fn(&Value) -> bool,
) -> Result<Value> {
    let end = Instant::now() + LIMIT;
    loop {
        let answer = instance.call(&format!("{AT}{query}")).await?;
        let history = answer.json()?;
        if answer.status == 200 && expected(&history) {
            return Ok(history);
        }
        anyhow::ensure!(Instant::now() < end, "the history stays {history}");
        // Each read asks Redis, so pause between two.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits for a worker's first report: history before it is not recorded.
async fn begun(instance: &Instance) -> Result<()> {
    let end = Instant::now() + LIMIT;
    let words = ["HEXISTS", "dueq:{orders}:meta", "history"];
    while !instance.redis.command(&words)?.starts_with(":1") {
        anyhow::ensure!(Instant::now() < end, "no worker has reported");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn history_has_a_point_or_a_null_for_each_slot() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.queue("orders").await?;
    for (query, slot_ms, count) in [
        ("", 60_000, 60),
        ("?range=5m", 60_000, 5),
        ("?range=168h", 3_600_000, 168),
        ("?range=90d", 86_400_000, 90),
    ] {
        let history = instance.read(&format!("{AT}{query}")).await?;
        assert_eq!(
            history["points"],
            json!(vec![Value::Null; count]),
            "no worker has run"
        );
        assert_eq!(
            (&history["sum"], &history["slot_ms"]),
            (&Value::Null, &json!(slot_ms))
        );
        let (from, now) = (&history["from_ms"], &history["now_ms"]);
        let (from, now) = (
            from.as_u64().context("a time")?,
            now.as_u64().context("a time")?,
        );
        assert_eq!(from, (now / slot_ms + 1 - count as u64) * slot_ms);
    }

    let worker = queue
        .worker()
        .spawn(|_: Delivery| tokio::time::sleep(Duration::from_millis(3)))?;
    begun(&instance).await?;
    for number in 0..20 {
        queue.push("x").id(format!("now-{number}")).await?;
    }
    history_until(&instance, "?range=2h", |history| {
        history["sum"]["acked"] == 20
    })
    .await?;
    worker.shutdown().await?;

    for (query, resolution) in [
        ("?range=60m", HistoryResolution::Minutes),
        ("?range=2d", HistoryResolution::Days),
    ] {
        let history = instance.read(&format!("{AT}{query}")).await?;
        let points = history["points"].as_array().context("points")?;
        let known = points.iter().filter(|point| !point.is_null());
        let expected = queue.history(resolution).await?.points;
        assert_eq!(known.count(), expected.len(), "{history}");
        for point in &expected {
            let at = (point.start_ms - history["from_ms"].as_u64().context("a time")?)
                / resolution.slot_ms();
            let sent = &points[usize::try_from(at)?];
            assert_eq!(sent["start_ms"], point.start_ms, "{history}");
            assert_eq!(sent["scheduled"], point.scheduled, "{history}");
            for (name, count) in point.counts() {
                assert_eq!(sent[name], count, "{name} of {history}");
            }
            for (name, part) in [
                ("p50_us", 0.5),
                ("p90_us", 0.9),
                ("p99_us", 0.99),
                ("p100_us", 1.0),
            ] {
                assert_eq!(
                    sent["handling"][name],
                    json!(point.handling.quantile_us(part))
                );
                assert_eq!(
                    sent["lateness"][name],
                    json!(point.lateness.quantile_us(part))
                );
            }
        }
        let sum = &history["sum"];
        assert_eq!(
            (&sum["claimed"], &sum["lateness"]["count"]),
            (&json!(20), &json!(20))
        );
        assert!(
            sum["handling"]["p50_us"]
                .as_u64()
                .is_some_and(|us| us >= 3_000),
            "{sum}"
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_history_ranges_are_refused() -> Result<()> {
    let instance = Instance::with_tokens().await?;
    instance.queue("orders").await?;
    for query in [
        "?range=",
        "?range=0m",
        "?range=61m",
        "?range=169h",
        "?range=91d",
        "?range=1e3m",
        "?range=-1m",
        "?range=NaN",
        "?range=1w",
        "?range=%00",
        "?range=1m&range=2m",
        "?rnage=1m",
        "?range=99999999999999999999d",
    ] {
        let answer = instance
            .ask_as("viewer", &format!("{AT}{query}"), "")
            .await?;
        assert_refused!(&answer, 400, "invalid_input", "{query}");
    }
    Ok(())
}
