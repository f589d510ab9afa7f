//! Why a queue was late, minute by minute, although nobody looked at it then.

use anyhow::{Context, Result};
use dueq::outcomes::CancelOutcome;
use serde_json::{Value, json};

use super::history_until;
use crate::dashboard::look::look;
use crate::instance::Instance;

/// Whether a minute has this cause.
fn has(history: &Value, cause: &str) -> bool {
    let minutes = history["late"].as_array().into_iter().flatten();
    let causes = minutes.filter_map(|minute| minute["causes"].as_array());
    causes.flatten().any(|known| known == cause)
}

#[tokio::test(flavor = "multi_thread")]
async fn causes_of_lateness_stay_with_their_minutes() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.queue("orders").await?;
    queue.pause().await?;
    queue.push("x").id("a").await?;
    // Reads of the history are no looks: the server watches unasked.
    history_until(&instance, "", |history| has(history, "paused")).await?;
    // From here on somebody looks, so it looks more often.
    instance.call("GET /v1/queues").await?;
    assert_eq!(queue.cancel("a").await?, CancelOutcome::Cancelled);
    queue.resume().await?;
    queue.push("x").id("b").await?;
    let both = |history: &Value| has(history, "no_worker") && has(history, "paused");
    let history = history_until(&instance, "?range=1m", both).await?;
    assert_eq!(queue.cancel("b").await?, CancelOutcome::Cancelled);

    let late = history["late"].as_array().context("minutes")?;
    let starts = late.iter().filter_map(|minute| minute["start_ms"].as_u64());
    let starts: Vec<_> = starts.collect();
    let present = history["now_ms"].as_u64().context("a time")? / 60_000 * 60_000;
    assert!(starts.is_sorted() && starts.iter().all(|start| start % 60_000 == 0));
    assert!(starts.last().is_some_and(|last| *last <= present + 60_000));
    let overdue = late
        .iter()
        .filter_map(|minute| minute["overdue_ms"].as_u64());
    assert!(overdue.max() > Some(2_000), "{history}");
    let since = history["watched_since_ms"].as_u64().context("a time")?;
    assert!(
        starts.iter().all(|start| start + 60_000 > since),
        "{history}"
    );

    let page = look(&instance, "/queues/orders").await?;
    for text in [
        "Why messages were late",
        "The queue was paused.",
        "No worker was alive.",
    ] {
        assert!(page.body.contains(text), "{text} is not in {}", page.body);
    }
    instance.queue("other").await?;
    let other = instance.read("GET /v1/queues/other/history").await?;
    assert_eq!(other["late"], json!([]));
    Ok(())
}
