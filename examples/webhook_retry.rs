//! A webhook is retried with growing delays until it is delivered or reaches its limit of attempts.
//!
//! The example delivers two events. One endpoint accepts its event at the third attempt. The other
//! is down: after five attempts its event is a dead letter with the last error, until an operator
//! requeues it.
//!
//! `scripts/with-server cargo run --example webhook_retry -- --speed 100`

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use clap::Parser;
use dueq::outcomes::RequeueOutcome;
use dueq::{Client, Delivery, MessageState, Queue, Retry};
use tokio::sync::mpsc;

const ATTEMPTS: u32 = 5;

/// Whether the endpoint `down` works again.
static REPAIRED: AtomicBool = AtomicBool::new(false);

/// Delivers webhooks to endpoints that fail. REDIS_URL names the server.
#[derive(Parser)]
struct Args {
    /// How many times faster than real time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    speed: u32,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let speed = Args::parse().speed;
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".to_owned());
    let name = format!("example-webhook-retry-{}", std::process::id());
    let hooks = Client::connect(&url).await?.queue(&name)?;
    // About 10, 20, 40 and 80 seconds, each reduced by a random part.
    let (first, longest) = (Duration::from_secs(10), Duration::from_secs(3600));
    let retry = Retry::exponential(first / speed, longest / speed)?;
    let result = tokio::select! {
        result = story(&hooks, retry) => result,
        _ = tokio::signal::ctrl_c() => Err(anyhow!("interrupted")),
    };
    hooks.delete().await?;
    result
}

async fn story(hooks: &Queue, retry: Retry) -> anyhow::Result<()> {
    for (id, event) in [
        ("stutters", "order 1 is paid"),
        ("down", "order 2 is refunded"),
    ] {
        let push = hooks.push(event).id(id).max_attempts(ATTEMPTS);
        push.await?;
    }

    let attempts = deliver(hooks, retry, 2).await?;
    ensure!(
        attempts == [("down".to_owned(), ATTEMPTS), ("stutters".to_owned(), 3)],
        "{attempts:?}"
    );

    // In the morning an operator lists the dead letters.
    let dead = hooks.list(MessageState::Dead, None, 10).await?.messages;
    for hook in &dead {
        let id = String::from_utf8_lossy(&hook.id);
        println!(
            "dead: {id} after {} failures: {}",
            hook.failures, hook.error
        );
    }
    ensure!(
        dead.len() == 1 && dead[0].failures == ATTEMPTS,
        "dead: {dead:?}"
    );
    let stored = hooks
        .get("down")
        .await?
        .context("a dead message stays until it is requeued")?;
    println!("it says: {}", String::from_utf8_lossy(&stored.payload));

    // The endpoint is repaired, and the event starts over with all its attempts.
    REPAIRED.store(true, Ordering::Relaxed);
    let requeued = hooks.requeue("down").await?;
    ensure!(requeued == RequeueOutcome::Requeued, "{requeued:?}");
    println!("down is repaired and requeued");
    let attempts = deliver(hooks, retry, 1).await?;
    ensure!(attempts == [("down".to_owned(), 1)], "{attempts:?}");
    println!("both events are delivered");
    Ok(())
}

/// Delivers until this many events have ended, and reports each result with its attempt.
async fn deliver(hooks: &Queue, retry: Retry, number: usize) -> anyhow::Result<Vec<(String, u32)>> {
    let (end, mut ends) = mpsc::unbounded_channel();
    let post = move |delivery: Delivery| {
        let (id, attempt) = (delivery.id().into_owned(), delivery.attempt());
        let answer = endpoint(&id, attempt);
        match &answer {
            Ok(()) => println!("{id}: attempt {attempt} is delivered"),
            Err(error) => println!("{id}: attempt {attempt} failed: {error}"),
        }
        if answer.is_ok() || delivery.is_last_attempt() {
            let _ = end.send((id, attempt));
        }
        // Ok acks, Err retries after the worker's delay; the queue counts the attempts.
        async { answer }
    };
    let worker = hooks.worker().retry(retry).spawn(post)?;
    let mut ended = Vec::new();
    while ended.len() < number {
        ended.push(ends.recv().await.context("the worker is gone")?);
    }
    // A stopped worker has settled its messages: failed events are dead now.
    worker.shutdown().await?;
    ended.sort();
    Ok(ended)
}

/// Stands for an HTTP request.
fn endpoint(id: &str, attempt: u32) -> anyhow::Result<()> {
    match id {
        "stutters" if attempt < 3 => bail!("503 Service Unavailable"),
        "down" if !REPAIRED.load(Ordering::Relaxed) => bail!("connection refused"),
        _ => Ok(()),
    }
}
