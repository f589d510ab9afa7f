//! Many concurrent claims of a queue with several partitions, with different leases and claim ids.
//!
//! `DUEQ_CLAIMS=20000 cargo test -p dueq-serve --test http many_claims -- --nocapture` makes 20,000
//! claims, and prints how much longer they took than their wait. On a machine without other load,
//! `DUEQ_BEYOND_MS=1000` allows at most one second.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use dueq::{Message, MessageState, Queue};
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{JSON, LIMIT, begin, deliveries, waiting};
use crate::edge::pressure::until;
use crate::instance::{Answer, Instance, to_end};

const CALLERS: usize = 30;
/// The number of messages at the start: enough for a claim of the largest size in any partition.
const BACKLOG: usize = 8 * 256 * 2;
/// One caller disconnects at this interval.
const VANISH: Duration = Duration::from_millis(333);

struct Load {
    instance: Instance,
    queue: Queue,
    /// The number of claims still to be made.
    claims: AtomicUsize,
    /// The number of callers that still have to disconnect.
    vanish: AtomicUsize,
}

/// Decrements the number; false if it is 0 already.
fn take(number: &AtomicUsize) -> bool {
    let less = |number: usize| number.checked_sub(1);
    number
        .fetch_update(Ordering::SeqCst, Ordering::SeqCst, less)
        .is_ok()
}

/// The next pseudorandom number of a caller. The numbers differ between callers, and are equal in
/// each run.
fn next(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    *seed >> 33
}

/// Makes claims until the total number is reached. Returns how much longer each took than its wait.
async fn call(load: Arc<Load>, caller: usize) -> Result<Vec<Duration>> {
    let mut seed = caller as u64;
    let mut beyond = Vec::new();
    while take(&load.claims) {
        if next(&mut seed).is_multiple_of(2) {
            for _ in 0..2 {
                load.queue.push("x").await?;
            }
        }
        let wait_ms = [0, 0, 0, 50, 300][next(&mut seed) as usize % 5];
        let mut claim = json!({
            "max": 1 + next(&mut seed) % 10,
            "wait_ms": wait_ms,
            "lease_ms": 20_000 + next(&mut seed) % 30 * 1_000,
        });
        if next(&mut seed).is_multiple_of(2) {
            claim["claim_id"] = json!(format!("{caller}-{}", next(&mut seed)));
        }
        let start = Instant::now();
        let mut stream = begin(&load.instance, &[], &claim.to_string()).await?;
        if take(&load.vanish) {
            tokio::time::sleep(Duration::from_micros(next(&mut seed) % 5_000)).await;
            continue;
        }
        stream.flush().await?;
        let text = timeout(LIMIT, to_end(&mut stream))
            .await
            .context("a claim without an answer")?;
        let answer = Answer::parse(&text?)?;
        beyond.push(
            start
                .elapsed()
                .saturating_sub(Duration::from_millis(wait_ms)),
        );
        if answer.status == 204 {
            continue;
        }
        for delivery in deliveries(&answer)? {
            let handle = delivery["handle"].as_str().context("a handle")?;
            let _ = load.queue.delivery(handle.parse()?).ack().await?;
        }
    }
    Ok(beyond)
}

/// Checks that a claim with the largest `max_messages` can get that number of messages.
async fn reaches_the_most(instance: &Instance, queue: &Queue) -> Result<()> {
    let messages = (0..BACKLOG).map(|_| Message::new("x"));
    for receipt in queue.push_many(messages).await {
        receipt?;
    }
    let line = format!("POST /v1/queues/{}/claims", queue.name());
    let body = r#"{"max": 256, "wait_ms": 50000, "lease_ms": 600000}"#;
    // The first claims may get only the rest of a partition.
    for _ in 0..8 {
        let granted = deliveries(&instance.ask(&line, &[JSON], body).await?)?.len();
        if granted == 256 {
            return Ok(());
        }
    }
    ensure!(false, "queue {}: no claim got 256 messages", queue.name());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_handler_is_free_after_many_claims() -> Result<()> {
    let number = |name, usual| match std::env::var(name) {
        Ok(given) => given.parse(),
        Err(_) => Ok(usual),
    };
    let (claims, beyond_ms) = (
        number("DUEQ_CLAIMS", 300)?,
        number("DUEQ_BEYOND_MS", 60_000)?,
    );
    let most = Duration::from_millis(beyond_ms as u64);
    let instance = Instance::open().await?;
    let queue = instance.client.queue("orders")?;
    queue.partition_into(8).await?;
    let load = Arc::new(Load {
        instance,
        queue,
        claims: AtomicUsize::new(0),
        vanish: AtomicUsize::new(0),
    });
    for vanishes in [false, true] {
        load.claims.store(claims, Ordering::SeqCst);
        let mut callers = JoinSet::new();
        for caller in 0..CALLERS {
            callers.spawn(call(Arc::clone(&load), caller));
        }
        let mut beyond = Vec::new();
        let mut vanished = 0;
        let mut ticks = tokio::time::interval(VANISH);
        loop {
            tokio::select! {
                ended = callers.join_next() => match ended {
                    Some(ended) => beyond.extend(ended??),
                    None => break,
                },
                _ = ticks.tick(), if vanishes => {
                    vanished += 1;
                    load.vanish.fetch_add(1, Ordering::SeqCst);
                }
            }
        }
        beyond.sort_unstable();
        let at = |part: usize| beyond[(beyond.len() - 1) * part / 1_000];
        println!(
            "{} answers, {vanished} callers vanished; beyond the wait: median {:?}, p99 {:?}, p99.9 {:?}, most {:?}",
            beyond.len(),
            at(500),
            at(990),
            at(999),
            at(1_000)
        );
        assert!(at(1_000) <= most, "{:?}", at(1_000));
        // All claims have ended, also those of disconnected callers.
        waiting(&load.instance, 0).await?;
        until(&load.instance, "dueq_free_handlers", f64::from(1 << 20)).await?;
        reaches_the_most(&load.instance, &load.queue).await?;
        let other = load.instance.client.queue(&format!("flat-{vanishes}"))?;
        reaches_the_most(&load.instance, &other).await?;
        // Purge the backlog before the next phase.
        for state in [MessageState::Scheduled, MessageState::Ready] {
            load.queue.purge(state).await?;
        }
    }
    Ok(())
}
