//! Manual settlement: each settlement, the reply to its repetition, and the rejection of stale
//! tokens.

use std::time::Duration;

use anyhow::Result;
use dueq::{Extended, Message, Retried, Settled};

use crate::support::{HOUR, acking, claim_for, messages, push_all, push_and_claim, setup};

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

/// Redis reaps leases only while a worker beats: without one, consumers had no chance to extend.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expired_lease_charges_a_crash_and_voids_the_token() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    queue.push("").id("id").await?;
    let late = claim_for(queue, Duration::from_millis(50)).await?;
    let (worker, mut seen) = acking(queue.worker().concurrency(1));
    assert_eq!(seen.next().await?, "id");
    assert!(matches!(late.ack().await?, Settled::Gone | Settled::Lost));
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
