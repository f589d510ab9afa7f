//! How a message ended, and waiting for it.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use dueq::inspect::{EndKind, MessageEnd};
use dueq::outcomes::{CancelOutcome, SettleOutcome, WaitOutcome};
use dueq::{ErrorKind, Message, MessageState, OnExpire, Queue};
use tokio::task::JoinHandle;

use crate::support::{HOUR, LIMIT, Running, push_and_claim, setup, within};

const TENTH: Duration = Duration::from_millis(100);

fn waiting(queue: &Queue, id: &'static str) -> JoinHandle<Result<WaitOutcome, dueq::Error>> {
    let queue = queue.clone();
    tokio::spawn(async move { queue.wait(id, LIMIT).await })
}

fn ended(waited: WaitOutcome) -> Option<EndKind> {
    match waited {
        WaitOutcome::Ended(MessageEnd { kind, .. }) => Some(kind),
        _ => None,
    }
}

#[tokio::test]
async fn end_of_returns_ack_expiry_and_cancel() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let end = |id: &'static str| queue.end_of(id);
    assert_eq!(end("a").await?, None, "never pushed");
    let delivery = push_and_claim(queue, Message::new("").id("a").window(HOUR)).await?;
    assert_eq!(end("a").await?, None, "it is leased");
    assert_eq!(delivery.ack().await?, SettleOutcome::Done);
    let acked = end("a").await?.context("remembered")?;
    let now_ms = setup.client.server_time().await?.now_ms();
    assert_eq!(acked.kind, EndKind::Finished);
    assert!(acked.ended_at_ms <= now_ms && acked.ended_at_ms + 60_000 > now_ms);
    let until_ms = acked.remembered_until_ms.context("a window")?;
    assert!(until_ms > now_ms && until_ms <= now_ms + 3_600_001);
    assert_eq!(queue.get("a").await?, None);

    let expiring = Message::new("").id("b").window(HOUR).expires_after(HOUR);
    let delivery = push_and_claim(queue, expiring.on_expire(OnExpire::Drop)).await?;
    let _ = delivery.retry(2 * HOUR, "").await?;
    let dropped = end("b").await?.context("remembered")?;
    assert_eq!(dropped.kind, EndKind::Expired);

    queue.push("").id("c").window(HOUR).delay(HOUR).await?;
    assert_eq!(queue.cancel("c").await?, CancelOutcome::Cancelled);
    let cancelled = end("c").await?.context("remembered")?;
    assert_eq!(cancelled.kind, EndKind::Cancelled);
    assert_eq!(cancelled.remembered_until_ms, None);

    let delivery = push_and_claim(queue, Message::new("").id("d")).await?;
    assert_eq!(delivery.ack().await?, SettleOutcome::Done);
    assert_eq!(end("d").await?, None, "without a window");
    Ok(())
}

#[tokio::test]
async fn wait_returns_for_each_end() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let windowed = |id: &str| Message::new("").id(id).window(HOUR);

    let delivery = push_and_claim(queue, windowed("acked")).await?;
    let wait = waiting(queue, "acked");
    tokio::time::sleep(TENTH).await;
    assert_eq!(delivery.ack().await?, SettleOutcome::Done);
    let waited = within("the ack", wait).await???;
    assert_eq!(ended(waited), Some(EndKind::Finished));

    let delivery = push_and_claim(queue, Message::new("").id("unknown")).await?;
    let wait = waiting(queue, "unknown");
    assert_eq!(delivery.ack().await?, SettleOutcome::Done);
    assert_eq!(within("the ack", wait).await???, WaitOutcome::Absent);

    let delivery = push_and_claim(queue, windowed("dead")).await?;
    let wait = waiting(queue, "dead");
    assert_eq!(delivery.bury("broken").await?, SettleOutcome::Done);
    assert_eq!(within("the death", wait).await???, WaitOutcome::Dead);

    queue.push_message(windowed("cancelled").due(HOUR)).await?;
    let wait = waiting(queue, "cancelled");
    assert_eq!(queue.cancel("cancelled").await?, CancelOutcome::Cancelled);
    let waited = within("the cancel", wait).await???;
    assert_eq!(ended(waited), Some(EndKind::Cancelled));

    queue.push_message(windowed("purged").due(HOUR)).await?;
    let wait = waiting(queue, "purged");
    assert_eq!(queue.purge(MessageState::Scheduled).await?, 1);
    let waited = within("the purge", wait).await???;
    assert_eq!(ended(waited), Some(EndKind::Cancelled), "purged");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wait_returns_for_a_drop_by_expiry() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let tick = queue.push("").id("a").window(HOUR);
    tick.expires_after(Duration::from_millis(1))
        .on_expire(OnExpire::Drop)
        .await?;
    tokio::time::sleep(TENTH / 5).await;
    let wait = waiting(queue, "a");
    let worker = Running::start(queue.worker(), |_| async {});
    let waited = within("the drop", wait).await???;
    assert_eq!(ended(waited), Some(EndKind::Expired));
    worker.stop().await
}

#[tokio::test]
async fn wait_ends_at_its_timeout_with_the_state() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    queue.push("").id("a").delay(HOUR).await?;
    let still = WaitOutcome::TimedOut(MessageState::Scheduled);
    assert_eq!(queue.wait("a", Duration::ZERO).await?, still);
    let start = Instant::now();
    assert_eq!(queue.wait("a", 3 * TENTH).await?, still);
    assert!(start.elapsed() >= 3 * TENTH, "{:?}", start.elapsed());
    let longest = tokio::time::timeout(3 * TENTH, queue.wait("a", Duration::MAX));
    assert!(longest.await.is_err(), "it waits on");
    let error = queue.wait("", HOUR).await.expect_err("no id");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    Ok(())
}
