//! Cancel, reschedule, requeue and purge in every state, and in races with claims.

use std::time::Duration;

use anyhow::Result;
use dueq::outcomes::{CancelOutcome, RequeueOutcome, RescheduleOutcome, RunNowOutcome};
use dueq::{Due, MessageState};

use crate::support::{HOUR, LONG, acking, claim, claim_one, messages, push_all, setup};

#[tokio::test]
async fn cancel_returns_its_outcome_in_every_state() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    assert_eq!(queue.cancel("id").await?, CancelOutcome::Absent);
    queue.push("").id("id").due(HOUR).await?;
    assert_eq!(queue.cancel("id").await?, CancelOutcome::Cancelled);
    assert_eq!(
        queue.cancel("id").await?,
        CancelOutcome::Cancelled,
        "a repetition within seconds reads the same"
    );

    push_all(queue, messages(2)).await?;
    let delivery = claim_one(queue).await?;
    setup.promote(1).await?;
    assert_eq!(
        queue.get("message-0001").await?.expect("promoted").state,
        MessageState::Ready
    );
    assert_eq!(
        queue.cancel("message-0001").await?,
        CancelOutcome::Cancelled
    );
    assert_eq!(
        queue.claim(1, LONG).await?.len(),
        0,
        "no claim gets a cancelled message"
    );

    assert_eq!(queue.cancel("message-0000").await?, CancelOutcome::Leased);
    let _ = delivery.bury("").await?;
    assert_eq!(queue.cancel("message-0000").await?, CancelOutcome::Dead);
    assert_eq!(
        queue.cancel_dead("message-0000").await?,
        CancelOutcome::Cancelled
    );
    assert_eq!(queue.get("message-0000").await?, None);
    assert_eq!(queue.stats().await?.cancelled, 3);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exactly_one_of_cancel_and_claim_wins() -> Result<()> {
    let setup = setup().await?;
    let (worker, mut seen) = acking(setup.queue.worker());
    let mut won = 0;
    for number in 0..200 {
        let id = format!("race {number}");
        // The message becomes due at about the time when the cancel arrives.
        setup
            .queue
            .push("")
            .id(&id)
            .due(Duration::from_millis(number % 3))
            .await?;
        match setup.queue.cancel(&id).await? {
            CancelOutcome::Cancelled => won += 1,
            CancelOutcome::Leased | CancelOutcome::Absent => assert_eq!(seen.next().await?, id),
            other => panic!("nothing dies here: {other:?}"),
        }
    }
    worker.stop().await?;
    assert_eq!(
        seen.rest(),
        Vec::<String>::new(),
        "a cancelled message was delivered"
    );
    let stats = setup.queue.stats().await?;
    assert_eq!(
        (stats.cancelled, stats.claimed, stats.acked),
        (won, 200 - won, 200 - won)
    );
    Ok(())
}

#[tokio::test]
async fn reschedule_returns_its_outcome_in_every_state() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    assert_eq!(
        queue.reschedule("id", HOUR).await?,
        RescheduleOutcome::Absent
    );
    push_all(queue, messages(2)).await?;
    let delivery = claim_one(queue).await?;
    assert_eq!(
        queue.reschedule("message-0000", HOUR).await?,
        RescheduleOutcome::Leased
    );
    let _ = delivery.bury("").await?;
    assert_eq!(
        queue.reschedule("message-0000", HOUR).await?,
        RescheduleOutcome::Dead
    );

    setup.promote(1).await?;
    let ready = queue.get("message-0001").await?.expect("ready");
    assert_eq!(ready.state, MessageState::Ready);
    assert!(matches!(
        queue.reschedule("message-0001", HOUR).await?,
        RescheduleOutcome::Moved(_)
    ));
    let moved = queue.get("message-0001").await?.expect("scheduled");
    assert_eq!(moved.state, MessageState::Scheduled);
    assert!(moved.time_ms > ready.time_ms);
    assert_eq!(queue.claim(1, LONG).await?.len(), 0);
    Ok(())
}

#[tokio::test]
async fn reschedule_with_an_outdated_expected_time_is_refused() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    queue.push("").id("id").due(HOUR).await?;
    let first = queue.get("id").await?.expect("stored").time_ms;
    let (second, third) = (first + 1_000, first + 2_000);
    assert_eq!(
        queue.reschedule_if("id", Due::at_ms(second), first).await?,
        RescheduleOutcome::Moved(second)
    );
    assert_eq!(
        queue.reschedule_if("id", Due::at_ms(third), first).await?,
        RescheduleOutcome::Conflict(second)
    );
    assert_eq!(queue.get("id").await?.expect("stored").time_ms, second);
    let repeated = queue.reschedule_if("id", Due::at_ms(second), first).await?;
    assert_eq!(
        repeated,
        RescheduleOutcome::Moved(second),
        "a repetition gets the result of the first attempt"
    );
    Ok(())
}

#[tokio::test]
async fn run_now_returns_its_outcome_in_every_state() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    assert_eq!(queue.run_now("id").await?, RunNowOutcome::Absent);
    queue.push("").id("id").due(HOUR).await?;
    assert_eq!(queue.run_now("id").await?, RunNowOutcome::Moved);
    assert_eq!(
        queue.run_now("id").await?,
        RunNowOutcome::Already,
        "scheduled and due"
    );
    push_all(queue, messages(1)).await?;
    let deliveries = claim(queue, 2).await?;
    for delivery in &deliveries {
        assert_eq!(
            queue.run_now(delivery.id_bytes()).await?,
            RunNowOutcome::Leased
        );
        let _ = delivery.bury("").await?;
        assert_eq!(
            queue.run_now(delivery.id_bytes()).await?,
            RunNowOutcome::Dead
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_now_and_reschedule_wake_a_worker() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let (worker, mut seen) = acking(queue.worker());
    for id in ["moved", "run"] {
        queue.push("").id(id).due(HOUR).await?;
    }
    let _ = queue.run_now("run").await?;
    assert_eq!(seen.next().await?, "run");
    let _ = queue.reschedule("moved", Duration::from_millis(20)).await?;
    assert_eq!(seen.next().await?, "moved");
    worker.stop().await
}

#[tokio::test]
async fn requeue_resets_a_message_and_accepts_only_dead_ones() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    assert_eq!(queue.requeue("id").await?, RequeueOutcome::Absent);
    queue
        .push("payload")
        .id("id")
        .due(HOUR)
        .max_attempts(2)
        .await?;
    assert_eq!(
        queue.requeue("id").await?,
        RequeueOutcome::NotDead(MessageState::Scheduled)
    );
    let _ = queue.run_now("id").await?;
    let _ = claim_one(queue).await?.retry(Duration::ZERO, "one").await?;
    let delivery = claim_one(queue).await?;
    assert_eq!(
        queue.requeue("id").await?,
        RequeueOutcome::NotDead(MessageState::Leased)
    );
    let _ = delivery.retry(Duration::ZERO, "two").await?;
    assert_eq!(queue.get("id").await?.expect("dead").failures, 2);
    assert_eq!(queue.requeue("id").await?, RequeueOutcome::Requeued);
    let stored = queue.get("id").await?.expect("revived");
    assert_eq!(
        (stored.failures, stored.error.as_str(), stored.max_attempts),
        (0, "", Some(2))
    );
    let delivery = claim_one(queue).await?;
    assert_eq!(
        (delivery.attempt(), delivery.payload()),
        (1, &b"payload"[..])
    );
    Ok(())
}

#[tokio::test]
async fn requeue_all_revives_all_dead_messages_and_no_others() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    assert_eq!(queue.requeue_all().await?, 0);
    push_all(queue, messages(1_200)).await?;
    for delivery in claim(queue, 1_200).await? {
        let _ = delivery.bury("no").await?;
    }
    queue.push("").id("waits").due(HOUR).await?;
    assert_eq!(queue.requeue_all().await?, 1_200);
    let stats = queue.stats().await?;
    assert_eq!(
        (stats.dead, stats.scheduled, stats.due, stats.requeued),
        (0, 1_201, 1_200, 1_200)
    );
    Ok(())
}
