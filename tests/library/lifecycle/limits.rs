//! Limits of attempts, of crashes, and of a queue's size.

use std::time::Duration;

use anyhow::Result;
use dueq::outcomes::{PushOutcome, SettleOutcome};
use dueq::{Delivery, ErrorKind, Message, MessageState, QueueLimits, Retry};

use crate::support::{
    Running, acking, claim_for, messages, push_all, push_and_claim, seen, setup, stats_until,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_dies_at_its_own_limit_or_else_the_queues() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    queue.configure(QueueLimits::new().max_attempts(4)).await?;
    let (sender, mut seen) = seen();
    let handler = move |delivery: Delivery| {
        let _ = sender.send((delivery.id().into_owned(), delivery.attempt()));
        async move { Err::<(), _>(format!("attempt {} failed", delivery.attempt())) }
    };
    let worker = Running::start(queue.worker().retry(Retry::fixed(Duration::ZERO)), handler);
    for (id, limit) in [
        ("own", Some(2)),
        ("once", Some(1)),
        ("larger", Some(6)),
        ("queue", None),
    ] {
        let message = Message::new("").id(id);
        queue
            .push_message(limit.map_or(message.clone(), |limit| message.max_attempts(limit)))
            .await?;
    }
    let mut handled = seen.take(2 + 1 + 6 + 4).await?;
    stats_until(queue, "four dead", |stats| stats.dead == 4).await?;
    worker.stop().await?;
    assert_eq!(seen.rest(), []);
    handled.sort_unstable();
    let attempts = |id: &str| {
        handled
            .iter()
            .filter(|(of, _)| of == id)
            .map(|&(_, attempt)| attempt)
            .collect::<Vec<_>>()
    };
    assert_eq!(attempts("own"), [1, 2]);
    assert_eq!(attempts("once"), [1]);
    assert_eq!(attempts("larger"), [1, 2, 3, 4, 5, 6]);
    assert_eq!(attempts("queue"), [1, 2, 3, 4]);
    let dead = queue.get("queue").await?.expect("dead");
    assert_eq!(
        (dead.state, dead.failures, dead.error.as_str()),
        (MessageState::Dead, 4, "attempt 4 failed")
    );
    let stats = queue.stats().await?;
    assert_eq!((stats.died, stats.retried), (4, 1 + 5 + 3));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn message_that_kills_its_consumers_dies_at_max_crashes() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    queue.configure(QueueLimits::new().max_crashes(1)).await?;
    let _ = push_and_claim(queue, Message::new("").id("failed before"))
        .await?
        .retry(Duration::ZERO, "once")
        .await?;
    for _ in 0..2 {
        // Claim without settling, like a consumer that died at once.
        let forgotten = claim_for(queue, Duration::from_millis(1)).await?;
        // The worker reaps it. No worker claims it again while the queue is paused.
        queue.pause().await?;
        let (worker, mut seen) = acking(queue.worker().concurrency(1));
        let crashes = forgotten.attempt() - 1;
        stats_until(queue, "the reaping", |stats| {
            stats.crashed == u64::from(crashes)
        })
        .await?;
        worker.stop().await?;
        assert_eq!(seen.rest(), Vec::<String>::new());
        queue.resume().await?;
        assert_eq!(forgotten.ack().await?, SettleOutcome::Lost);
    }
    let dead = queue.get("failed before").await?.expect("dead");
    assert_eq!(
        (dead.state, dead.failures, dead.crashes),
        (MessageState::Dead, 1, 2)
    );
    assert!(
        dead.error.contains("2 times") && dead.error.contains("once"),
        "{}",
        dead.error
    );
    Ok(())
}

#[tokio::test]
async fn setting_one_limit_keeps_the_others() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let stats = queue.stats().await?;
    assert_eq!(
        (stats.max_attempts, stats.max_crashes),
        (0, 0),
        "for a queue that does not exist"
    );
    queue
        .configure(QueueLimits::new().max_attempts(7).max_crashes(0))
        .await?;
    queue
        .configure(
            QueueLimits::new()
                .max_payload_bytes(10)
                .max_messages(Some(2)),
        )
        .await?;
    let stats = queue.stats().await?;
    assert_eq!((stats.max_attempts, stats.max_crashes), (7, 0));
    assert_eq!((stats.max_payload_bytes, stats.max_messages), (10, 2));
    assert_eq!(queue.push("0123456789").await?, PushOutcome::Created);
    let error = queue.push("0123456789+").await.expect_err("too large");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(
        error.to_string().contains("11 bytes") && error.to_string().contains("10"),
        "{error}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_trims_dead_messages_by_number_and_age() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    push_all(queue, messages(10)).await?;
    for delivery in crate::support::claim(queue, 10).await? {
        let _ = delivery.bury("").await?;
    }
    queue.configure(QueueLimits::new().keep_dead(4)).await?;
    let (worker, _seen) = acking(queue.worker());
    stats_until(queue, "four dead", |stats| {
        stats.dead == 4 && stats.trimmed == 6
    })
    .await?;
    queue
        .configure(QueueLimits::new().keep_dead_for(Duration::from_millis(1)))
        .await?;
    stats_until(queue, "none dead", |stats| {
        stats.dead == 0 && stats.trimmed == 10
    })
    .await?;
    assert_eq!(queue.get("message-0009").await?, None);
    worker.stop().await
}
