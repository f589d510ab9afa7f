//! Manual settlement: each settlement, the reply to its repetition, and the rejection of stale
//! tokens.

use std::time::Duration;

use anyhow::Result;
use dueq::{Extended, Message, Retried, Settled, State};

use crate::support::{
    HOUR, LONG, acking, claim_for, claim_one, messages, push_all, push_and_claim, setup,
    stats_until,
};

#[tokio::test]
async fn settlements_after_an_ack_report_gone() -> Result<()> {
    let setup = setup().await?;
    let delivery = push_and_claim(&setup.queue, Message::new("").id("id")).await?;
    assert_eq!(delivery.ack().await?, Settled::Done);
    assert_eq!(delivery.ack().await?, Settled::Gone);
    assert_eq!(delivery.again(HOUR).await?, Settled::Gone);
    assert_eq!(delivery.retry(HOUR, "").await?, Retried::Gone);
    assert_eq!(delivery.release().await?, Settled::Gone);
    assert_eq!(delivery.bury("").await?, Settled::Gone);
    assert_eq!(delivery.extend(HOUR).await?, Extended::Gone);
    assert!(!delivery.is_lost(), "it was not lost but done");
    assert_eq!(setup.queue.get("id").await?, None);
    Ok(())
}

/// Each settlement that keeps the message is made once. Every later settlement finds its token used
/// up.
#[tokio::test]
async fn a_token_is_good_for_one_settle() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    for way in ["again", "retry", "release", "bury"] {
        let delivery = push_and_claim(queue, Message::new("").id(way)).await?;
        match way {
            "again" => assert_eq!(delivery.again(HOUR).await?, Settled::Done),
            "retry" => assert!(matches!(
                delivery.retry(HOUR, "no").await?,
                Retried::Scheduled(_)
            )),
            "release" => assert_eq!(delivery.release().await?, Settled::Done),
            _ => assert_eq!(delivery.bury("no").await?, Settled::Done),
        }
        let before = queue.get(way).await?;
        assert_eq!(delivery.ack().await?, Settled::Lost, "{way}");
        assert_eq!(delivery.again(HOUR).await?, Settled::Lost, "{way}");
        assert_eq!(delivery.retry(HOUR, "other").await?, Retried::Lost, "{way}");
        assert_eq!(delivery.release().await?, Settled::Lost, "{way}");
        assert_eq!(delivery.bury("other").await?, Settled::Lost, "{way}");
        assert_eq!(delivery.extend(HOUR).await?, Extended::Lost, "{way}");
        assert_eq!(
            queue.get(way).await?,
            before,
            "{way}: a late settle changes nothing"
        );
        let _ = queue.cancel_dead(way).await?;
    }
    Ok(())
}

#[tokio::test]
async fn again_schedules_with_the_attempts_counted_from_none() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let delivery = push_and_claim(queue, Message::new("tick").id("tick").max_attempts(3)).await?;
    let _ = delivery.retry(Duration::ZERO, "a hiccup").await?;
    let delivery = claim_one(queue).await?;
    assert_eq!(delivery.attempt(), 2);
    assert_eq!(
        delivery.again(Duration::from_millis(5)).await?,
        Settled::Done
    );
    let stored = queue.get("tick").await?.expect("scheduled");
    assert_eq!(
        (stored.failures, stored.error.as_str(), stored.max_attempts),
        (0, "", Some(3))
    );
    let delivery = claim_one(queue).await?;
    assert_eq!(
        (delivery.attempt(), delivery.payload(), delivery.due_ms()),
        (1, &b"tick"[..], stored.time_ms)
    );
    assert_eq!(queue.stats().await?.repeated, 1);
    Ok(())
}

#[tokio::test]
async fn retry_charges_one_failure_and_is_never_early() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let delivery = push_and_claim(queue, Message::new("").id("id")).await?;
    let Retried::Scheduled(due_ms) = delivery
        .retry(Duration::from_millis(40), "connection refused")
        .await?
    else {
        panic!("not scheduled")
    };
    let stored = queue.get("id").await?.expect("scheduled");
    assert_eq!((stored.state, stored.time_ms), (State::Scheduled, due_ms));
    assert_eq!(
        (stored.failures, stored.crashes, stored.error.as_str()),
        (1, 0, "connection refused")
    );
    let second = claim_one(queue).await?;
    assert_eq!((second.attempt(), second.due_ms()), (2, due_ms));
    let granted_ms = second.deadline_ms() - u64::try_from(LONG.as_millis())?;
    assert!(granted_ms >= due_ms, "due {due_ms}, granted {granted_ms}");
    Ok(())
}

#[tokio::test]
async fn long_errors_are_cut_and_strange_ones_kept() -> Result<()> {
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

#[tokio::test]
async fn a_release_charges_nothing_and_keeps_the_due_time() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let first = push_and_claim(queue, Message::new("").id("id")).await?;
    assert_eq!(first.release().await?, Settled::Done);
    let second = claim_one(queue).await?;
    assert_eq!((second.attempt(), second.due_ms()), (1, first.due_ms()));
    assert_eq!(queue.stats().await?.released, 1);
    Ok(())
}

#[tokio::test]
async fn an_extension_only_ever_makes_a_lease_longer() -> Result<()> {
    let setup = setup().await?;
    let delivery = push_and_claim(&setup.queue, Message::new("").id("id")).await?;
    assert_eq!(
        delivery.extend(Duration::from_millis(1)).await?,
        Extended::Until(delivery.deadline_ms())
    );
    let Extended::Until(until_ms) = delivery.extend(2 * LONG).await? else {
        panic!("not extended")
    };
    assert!(until_ms > delivery.deadline_ms());
    assert_eq!(
        setup.queue.get("id").await?.expect("leased").time_ms,
        until_ms
    );
    Ok(())
}

/// Redis reaps leases only while a worker beats: without one, consumers had no chance to extend.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expired_lease_charges_a_crash_and_voids_the_token() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    queue.push_message(Message::new("").id("id")).await?;
    let late = claim_for(queue, Duration::from_millis(50)).await?;
    let (worker, mut seen) = acking(queue.worker().concurrency(1));
    assert_eq!(seen.next().await?, "id");
    assert!(matches!(late.ack().await?, Settled::Gone | Settled::Lost));
    worker.stop().await?;
    let stats = queue.stats().await?;
    assert_eq!((stats.claimed, stats.crashed, stats.acked), (2, 1, 1));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempt_is_the_sum_of_failures_and_crashes_plus_one() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    // A worker whose only handler is busy: it beats and reaps but claims nothing.
    queue.push_message(Message::new("").id("busy")).await?;
    let (worker, mut seen) = crate::support::holding(queue.worker().concurrency(1));
    seen.next().await?;

    let delivery = push_and_claim(queue, Message::new("").id("id")).await?;
    let _ = delivery.retry(Duration::ZERO, "failed").await?;
    let crashed = claim_for(queue, Duration::from_millis(1)).await?;
    assert_eq!(crashed.attempt(), 2);
    stats_until(queue, "the reaping", |stats| stats.crashed == 1).await?;
    let third = claim_one(queue).await?;
    assert_eq!(third.attempt(), 3);
    let stored = queue.get("id").await?.expect("leased");
    assert_eq!(
        (stored.failures, stored.crashes, stored.error.as_str()),
        (1, 1, "failed")
    );
    assert_eq!(crashed.ack().await?, Settled::Lost);
    assert!(crashed.is_lost());
    worker.abort().await
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
            Settled::Gone
        } else {
            Settled::Done
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
