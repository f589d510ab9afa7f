//! Expiry, snooze and throttle of single deliveries, by hand.

use std::time::Duration;

use anyhow::{Context, Result};
use dueq::{Limits, Message, OnExpire, Retried, Settled, Snoozed, Throttled};

use crate::support::{HOUR, LONG, push_and_claim, setup};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn get_shows_expiry_cost_and_snoozes() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let message = Message::new("").id("a").cost(3).expires_after(HOUR);
    let delivery = push_and_claim(queue, message).await?;
    let expires_at_ms = delivery.due_ms() + 3_600_000;
    assert_eq!((delivery.cost(), delivery.snoozes()), (3, 0));
    assert_eq!(delivery.expires_at_ms(), Some(expires_at_ms));
    assert!(
        delivery
            .expires_in()
            .is_some_and(|left| left <= HOUR && left > HOUR / 2)
    );
    let Snoozed::Scheduled(due_ms) = delivery.snooze(60 * SECOND).await? else {
        anyhow::bail!("not snoozed");
    };
    let stored = queue.get("a").await?.context("stored")?;
    assert_eq!(
        (stored.time_ms, stored.cost, stored.snoozes),
        (due_ms, 3, 1)
    );
    assert_eq!(
        stored.expires_at_ms,
        Some(expires_at_ms),
        "the snooze did not move it"
    );
    assert_eq!(stored.expires_after_ms, Some(3_600_000));
    assert_eq!((stored.failures, stored.on_expire), (0, OnExpire::Dead));
    assert_eq!(delivery.snooze(SECOND).await?, Snoozed::Lost);
    Ok(())
}

#[tokio::test]
async fn retry_or_snooze_beyond_the_expiry_ends_the_message() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let message = || Message::new("").expires_after(HOUR);
    let delivery = push_and_claim(queue, message().id("dies")).await?;
    assert_eq!(delivery.retry(2 * HOUR, "closed").await?, Retried::Dead);
    let stored = queue.get("dies").await?.context("dead")?;
    assert!(stored.error.contains("closed"), "{}", stored.error);
    let drops = || message().on_expire(OnExpire::Drop);
    let delivery = push_and_claim(queue, drops()).await?;
    assert_eq!(delivery.retry(2 * HOUR, "closed").await?, Retried::Dropped);
    let delivery = push_and_claim(queue, drops()).await?;
    assert_eq!(delivery.snooze(2 * HOUR).await?, Snoozed::Dropped);
    assert_eq!(delivery.ack().await?, Settled::Gone);
    let stats = queue.stats().await?;
    assert_eq!((stats.expired, stats.dead, stats.scheduled), (3, 1, 0));
    let count = |count| queue.metrics().count(count);
    assert_eq!(
        (count(dueq::Count::Dropped), count(dueq::Count::Died)),
        (2, 1)
    );
    Ok(())
}

#[tokio::test]
async fn throttle_is_limited_and_ends_with_resume() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    queue
        .configure(Limits::new().max_throttle(60 * SECOND))
        .await?;
    let delivery = push_and_claim(queue, Message::new("").id("a")).await?;
    // A year, as a receiver may say by mistake.
    let Throttled::Until(until_ms) = delivery.throttle(8_760 * HOUR).await? else {
        anyhow::bail!("not throttled");
    };
    let stats = queue.stats().await?;
    assert!(
        (50_000..=60_001).contains(&stats.closed_ms),
        "{}",
        stats.closed_ms
    );
    assert!(until_ms > delivery.due_ms());
    assert!(queue.claim(1, LONG).await?.is_empty());
    assert_eq!(delivery.throttle(SECOND).await?, Throttled::Lost);
    queue.resume().await?;
    let again = queue.claim(1, LONG).await?;
    assert_eq!((again.len(), again[0].attempt()), (1, 1));
    // No input error: a receiver may say `Retry-After: 0`.
    assert!(matches!(
        again[0].throttle(Duration::ZERO).await?,
        Throttled::Until(_)
    ));
    Ok(())
}
