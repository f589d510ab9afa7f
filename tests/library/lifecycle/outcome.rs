//! How a message ended, and waiting for it.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use dueq::{
    Cancelled, Ended, ErrorKind, Message, OnExpire, Outcome, Queue, Settled, State, Waited,
};
use tokio::task::JoinHandle;

use crate::support::{HOUR, LIMIT, Running, push_and_claim, setup, within};

const TENTH: Duration = Duration::from_millis(100);

fn waiting(queue: &Queue, id: &'static str) -> JoinHandle<Result<Waited, dueq::Error>> {
    let queue = queue.clone();
    tokio::spawn(async move { queue.wait(id, LIMIT).await })
}

fn ended(waited: Waited) -> Option<Ended> {
    match waited {
        Waited::Ended(Outcome { ended, .. }) => Some(ended),
        _ => None,
    }
}

#[tokio::test]
async fn outcome_tells_ack_expiry_and_cancel() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let outcome = |id: &'static str| queue.outcome(id);
    assert_eq!(outcome("a").await?, None, "never pushed");
    let delivery = push_and_claim(queue, Message::new("").id("a").window(HOUR)).await?;
    assert_eq!(outcome("a").await?, None, "it is leased");
    assert_eq!(delivery.ack().await?, Settled::Done);
    let acked = outcome("a").await?.context("remembered")?;
    let now_ms = setup.client.server_time().await?.now_ms();
    assert_eq!(acked.ended, Ended::Finished);
    assert!(acked.ended_at_ms <= now_ms && acked.ended_at_ms + 60_000 > now_ms);
    let until_ms = acked.remembered_until_ms.context("a window")?;
    assert!(until_ms > now_ms && until_ms <= now_ms + 3_600_001);
    assert_eq!(queue.get("a").await?, None);

    let expiring = Message::new("").id("b").window(HOUR).expires_after(HOUR);
    let delivery = push_and_claim(queue, expiring.on_expire(OnExpire::Drop)).await?;
    let _ = delivery.retry(2 * HOUR, "").await?;
    let dropped = outcome("b").await?.context("remembered")?;
    assert_eq!(dropped.ended, Ended::Expired);

    queue.push("").id("c").window(HOUR).delay(HOUR).await?;
    assert_eq!(queue.cancel("c").await?, Cancelled::Cancelled);
    let cancelled = outcome("c").await?.context("remembered")?;
    assert_eq!(cancelled.ended, Ended::Cancelled);
    assert_eq!(cancelled.remembered_until_ms, None);

    let delivery = push_and_claim(queue, Message::new("").id("d")).await?;
    assert_eq!(delivery.ack().await?, Settled::Done);
    assert_eq!(outcome("d").await?, None, "without a window");
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
    assert_eq!(delivery.ack().await?, Settled::Done);
    let waited = within("the ack", wait).await???;
    assert_eq!(ended(waited), Some(Ended::Finished));

    let delivery = push_and_claim(queue, Message::new("").id("unknown")).await?;
    let wait = waiting(queue, "unknown");
    assert_eq!(delivery.ack().await?, Settled::Done);
    assert_eq!(within("the ack", wait).await???, Waited::Absent);

    let delivery = push_and_claim(queue, windowed("dead")).await?;
    let wait = waiting(queue, "dead");
    assert_eq!(delivery.bury("broken").await?, Settled::Done);
    assert_eq!(within("the death", wait).await???, Waited::Dead);

    queue.push_message(windowed("cancelled").due(HOUR)).await?;
    let wait = waiting(queue, "cancelled");
    assert_eq!(queue.cancel("cancelled").await?, Cancelled::Cancelled);
    let waited = within("the cancel", wait).await???;
    assert_eq!(ended(waited), Some(Ended::Cancelled));

    queue.push_message(windowed("purged").due(HOUR)).await?;
    let wait = waiting(queue, "purged");
    assert_eq!(queue.purge(State::Scheduled).await?, 1);
    let waited = within("the purge", wait).await???;
    assert_eq!(ended(waited), Some(Ended::Cancelled), "purged");
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
    assert_eq!(ended(waited), Some(Ended::Expired));
    worker.stop().await
}

#[tokio::test]
async fn wait_ends_at_its_timeout_with_the_state() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    queue.push("").id("a").delay(HOUR).await?;
    let still = Waited::TimedOut(State::Scheduled);
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
