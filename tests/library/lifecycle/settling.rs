//! Manual settlement: each settlement, the reply to its repetition, and the rejection of stale
//! tokens.

use std::time::Duration;

use anyhow::{Context, Result};
use dueq::outcomes::{ExtendOutcome, RetryOutcome, SettleOutcome, SnoozeOutcome, ThrottleOutcome};
use dueq::{Message, OnExpire, QueueLimits};

use crate::support::{HOUR, LONG, acking, claim_for, messages, push_all, push_and_claim, setup};

#[tokio::test]
async fn settlements_after_an_ack_report_gone() -> Result<()> {
    let setup = setup().await?;
    let delivery = push_and_claim(&setup.queue, Message::new("").id("id")).await?;
    assert_eq!(delivery.ack().await?, SettleOutcome::Done);
    assert_eq!(delivery.ack().await?, SettleOutcome::Gone);
    assert_eq!(delivery.again(HOUR).await?, SettleOutcome::Gone);
    assert_eq!(delivery.retry(HOUR, "").await?, RetryOutcome::Gone);
    assert_eq!(delivery.release().await?, SettleOutcome::Gone);
    assert_eq!(delivery.bury("").await?, SettleOutcome::Gone);
    assert_eq!(delivery.extend(HOUR).await?, ExtendOutcome::Gone);
    assert!(!delivery.is_lost(), "it was not lost but done");
    assert_eq!(setup.queue.get("id").await?, None);
    Ok(())
}

/// Makes each settlement that keeps the message once. Every later settlement finds that the token
/// is no longer valid.
#[tokio::test]
async fn a_token_settles_only_once() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    for way in ["again", "retry", "release", "bury"] {
        let delivery = push_and_claim(queue, Message::new("").id(way)).await?;
        match way {
            "again" => assert_eq!(delivery.again(HOUR).await?, SettleOutcome::Done),
            "retry" => assert!(matches!(
                delivery.retry(HOUR, "no").await?,
                RetryOutcome::Scheduled(_)
            )),
            "release" => assert_eq!(delivery.release().await?, SettleOutcome::Done),
            _ => assert_eq!(delivery.bury("no").await?, SettleOutcome::Done),
        }
        let before = queue.get(way).await?;
        assert_eq!(delivery.ack().await?, SettleOutcome::Lost, "{way}");
        assert_eq!(delivery.again(HOUR).await?, SettleOutcome::Lost, "{way}");
        assert_eq!(
            delivery.retry(HOUR, "other").await?,
            RetryOutcome::Lost,
            "{way}"
        );
        assert_eq!(delivery.release().await?, SettleOutcome::Lost, "{way}");
        assert_eq!(delivery.bury("other").await?, SettleOutcome::Lost, "{way}");
        assert_eq!(delivery.extend(HOUR).await?, ExtendOutcome::Lost, "{way}");
        assert_eq!(
            queue.get(way).await?,
            before,
            "{way}: a late settle changes nothing"
        );
        let _ = queue.cancel_dead(way).await?;
    }
    Ok(())
}

/// Redis reaps leases only while a worker beats. Without this rule, live consumers would have had
/// no chance to extend.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expired_lease_charges_a_crash_and_voids_the_token() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    queue.push("").id("id").await?;
    let late = claim_for(queue, Duration::from_millis(50)).await?;
    let (worker, mut seen) = acking(queue.worker().concurrency(1));
    assert_eq!(seen.next().await?, "id");
    assert!(matches!(
        late.ack().await?,
        SettleOutcome::Gone | SettleOutcome::Lost
    ));
    worker.stop().await?;
    let stats = queue.stats().await?;
    assert_eq!((stats.claimed, stats.crashed, stats.acked), (2, 1, 1));
    Ok(())
}

#[tokio::test]
async fn concurrent_settlements_get_their_own_replies() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    push_all(queue, messages(300)).await?;
    let deliveries = crate::support::claim(queue, 300).await?;
    let mut tasks = Vec::new();
    for (number, delivery) in deliveries.into_iter().enumerate() {
        tasks.push(tokio::spawn(async move {
            match number % 4 {
                0 => delivery.ack().await,
                1 => delivery.bury("x").await,
                2 => delivery.again(HOUR).await,
                _ => {
                    let _ = delivery.ack().await?;
                    delivery.ack().await
                }
            }
        }));
    }
    for (number, task) in tasks.into_iter().enumerate() {
        let expected = if number % 4 == 3 {
            SettleOutcome::Gone
        } else {
            SettleOutcome::Done
        };
        assert_eq!(task.await??, expected, "{number}");
    }
    let stats = queue.stats().await?;
    assert_eq!(
        (stats.acked, stats.dead, stats.scheduled, stats.leased),
        (150, 75, 75, 0)
    );
    Ok(())
}

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
    let SnoozeOutcome::Scheduled(due_ms) = delivery.snooze(60 * SECOND).await? else {
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
    assert_eq!(delivery.snooze(SECOND).await?, SnoozeOutcome::Lost);
    Ok(())
}

#[tokio::test]
async fn retry_or_snooze_beyond_the_expiry_ends_the_message() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let message = || Message::new("").expires_after(HOUR);
    let delivery = push_and_claim(queue, message().id("dies")).await?;
    assert_eq!(
        delivery.retry(2 * HOUR, "closed").await?,
        RetryOutcome::Dead
    );
    let stored = queue.get("dies").await?.context("dead")?;
    assert!(stored.error.contains("closed"), "{}", stored.error);
    let drops = || message().on_expire(OnExpire::Drop);
    let delivery = push_and_claim(queue, drops()).await?;
    assert_eq!(
        delivery.retry(2 * HOUR, "closed").await?,
        RetryOutcome::Dropped
    );
    let delivery = push_and_claim(queue, drops()).await?;
    assert_eq!(delivery.snooze(2 * HOUR).await?, SnoozeOutcome::Dropped);
    assert_eq!(delivery.ack().await?, SettleOutcome::Gone);
    let stats = queue.stats().await?;
    assert_eq!((stats.expired, stats.dead, stats.scheduled), (3, 1, 0));
    let count = |count| queue.metrics().count(count);
    assert_eq!(
        (
            count(dueq::metrics::Counter::Dropped),
            count(dueq::metrics::Counter::Died)
        ),
        (2, 1)
    );
    Ok(())
}

#[tokio::test]
async fn throttle_is_limited_and_ends_with_resume() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    queue
        .configure(QueueLimits::new().max_throttle(60 * SECOND))
        .await?;
    let delivery = push_and_claim(queue, Message::new("").id("a")).await?;
    // A year, as a receiver could ask for by mistake.
    let ThrottleOutcome::Until(until_ms) = delivery.throttle(8_760 * HOUR).await? else {
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
    assert_eq!(delivery.throttle(SECOND).await?, ThrottleOutcome::Lost);
    queue.resume().await?;
    let again = queue.claim(1, LONG).await?;
    assert_eq!((again.len(), again[0].attempt()), (1, 1));
    // Not an input error, because a receiver may ask for `Retry-After: 0`.
    assert!(matches!(
        again[0].throttle(Duration::ZERO).await?,
        ThrottleOutcome::Until(_)
    ));
    Ok(())
}

#[tokio::test]
async fn long_errors_are_cut_and_unusual_bytes_are_kept() -> Result<()> {
    let setup = setup().await?;
    for text in [
        "",
        "two\nlines",
        "nul \0 inside",
        "1 2 3 max_attempts=9\n",
        "\u{1f600}",
    ] {
        let delivery = push_and_claim(
            &setup.queue,
            Message::new("").id(format!("a{text}").replace(char::is_control, "_")),
        )
        .await?;
        let _ = delivery.bury(text).await?;
        let stored = setup.queue.get(delivery.id_bytes()).await?.expect("dead");
        assert_eq!(
            (stored.error.as_str(), stored.failures, stored.max_attempts),
            (text, 0, None)
        );
    }
    let delivery = push_and_claim(&setup.queue, Message::new("").id("long")).await?;
    let _ = delivery.retry(HOUR, &"x".repeat(5_000)).await?;
    assert_eq!(
        setup.queue.get("long").await?.expect("scheduled").error,
        "x".repeat(1_024)
    );
    Ok(())
}
