//! A panic in a task of the worker ends the worker with an error. The worker returns its messages.
//!
//! A `tracing` subscriber panics in the task that emits an event. The subscriber records one
//! thread, so these tests use single-threaded runtimes.

use std::time::Duration;

use anyhow::{Context, Result};
use dueq::{ErrorKind, Message};

use crate::support::{Setup, holding, messages, push_all, setup};
use crate::telemetry::collector::Collector;

const NODES: &str = "dueq:{orders}:nodes";

/// Starts a worker with three handlers and this many free, makes the event with this name and value
/// panic, and expects the worker to end.
async fn ends_by(
    free: usize,
    name: &'static str,
    value: &'static str,
    trigger: impl AsyncFnOnce(&Setup) -> Result<()>,
) -> Result<()> {
    let (collector, _guard) = Collector::start();
    let setup = setup().await?;
    let (worker, mut seen) = holding(setup.queue.worker().concurrency(3 + free));
    push_all(&setup.queue, messages(3)).await?;
    seen.take(3).await?;
    collector.panic_at(name, value);
    trigger(&setup).await?;
    let error = worker
        .ended()
        .await?
        .err()
        .context("the worker ended without an error")?;
    assert_eq!(error.kind(), ErrorKind::Internal, "{error}");
    assert!(error.to_string().contains("injected"), "{error}");
    if setup.command::<bool>(&["EXISTS", "saved"]).await? {
        setup.command::<()>(&["RENAME", "saved", NODES]).await?;
    }
    let stats = setup.queue.stats().await?;
    assert_eq!((stats.released, stats.leased), (3, 0));
    Ok(())
}

#[tokio::test]
async fn a_panic_in_the_claimer_ends_the_worker() -> Result<()> {
    ends_by(1, "dueq.wake_up_failed", "orders", async |setup| {
        setup
            .command::<()>(&["SET", "dueq:{orders}:wake", "no list"])
            .await?;
        // Ends the current wait.
        setup
            .command(&["CLIENT", "KILL", "TYPE", "normal"])
            .await
            .or(Ok(()))
    })
    .await
}

#[tokio::test]
async fn a_panic_in_the_coordinator_ends_the_worker() -> Result<()> {
    ends_by(0, "dueq.call_failed", "beat", async |setup| {
        setup.command::<()>(&["RENAME", NODES, "saved"]).await?;
        setup.command(&["SET", NODES, "no sorted set"]).await
    })
    .await
}

#[tokio::test]
async fn a_panic_in_a_call_of_the_coordinator_ends_the_worker() -> Result<()> {
    ends_by(0, "dueq.reaped", "1", async |setup| {
        setup
            .queue
            .push_message(Message::new("").id("left"))
            .await?;
        crate::support::claim_for(&setup.queue, Duration::from_millis(1))
            .await
            .map(drop)
    })
    .await
}

#[tokio::test]
async fn a_panic_in_the_listener_ends_the_worker() -> Result<()> {
    ends_by(0, "dueq.subscription_failed", "orders", async |setup| {
        setup.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).await
    })
    .await
}
