//! The trace of a push, from the push to its handler.

use std::time::Duration;

use anyhow::Result;
use dueq::metrics::Counter;
use dueq::outcomes::PushOutcome;
use dueq::{ErrorKind, Message, OnConflict};

use crate::support::{HOUR, claim_for, claim_one, push_and_claim, setup, stats_until};

const FIRST: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const SECOND: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trace_parent_is_the_same_in_every_attempt() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let message = Message::new("")
        .id("id")
        .max_attempts(2)
        .trace_parent(FIRST);
    let delivery = push_and_claim(queue, message).await?;
    assert_eq!(
        (delivery.trace_parent(), delivery.attempt()),
        (Some(FIRST), 1)
    );
    let _ = delivery.retry(Duration::ZERO, "failed").await?;

    // The second consumer dies, and a worker reaps its lease.
    let delivery = claim_for(queue, Duration::from_millis(1)).await?;
    assert_eq!(
        (delivery.trace_parent(), delivery.attempt()),
        (Some(FIRST), 2)
    );
    let reaper = setup.client.queue("orders")?;
    let (worker, mut held) = crate::support::holding(reaper.worker());
    let delivery = held.next().await?;
    assert_eq!(
        (delivery.trace_parent(), delivery.attempt()),
        (Some(FIRST), 3)
    );
    worker.abort().await?;
    let _ = delivery.release().await?;

    let delivery = claim_one(queue).await?;
    let _ = delivery
        .retry(Duration::ZERO, "failed for the last time")
        .await?;
    stats_until(queue, "a dead message", |stats| stats.dead == 1).await?;
    let _ = queue.requeue("id").await?;
    let delivery = claim_one(queue).await?;
    assert_eq!(
        (delivery.trace_parent(), delivery.attempt()),
        (Some(FIRST), 1)
    );
    let stored = queue.get("id").await?.expect("it is leased");
    assert_eq!(
        (stored.trace_parent.as_deref(), stored.max_attempts),
        (Some(FIRST), Some(2))
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn message_without_a_trace_parent_has_none() -> Result<()> {
    let setup = setup().await?;
    let delivery = push_and_claim(&setup.queue, Message::new("").max_attempts(2)).await?;
    assert_eq!(delivery.trace_parent(), None);
    let _ = delivery.ack().await?;
    let delivery = push_and_claim(&setup.queue, Message::new("")).await?;
    assert_eq!(delivery.trace_parent(), None);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trace_parent_is_replaced_only_with_the_payload() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let message = |parent: &str| Message::new("").id("id").due(HOUR).trace_parent(parent);
    let parent = async || {
        anyhow::Ok(
            queue
                .get("id")
                .await?
                .and_then(|stored| stored.trace_parent),
        )
    };
    queue.push_message(message(FIRST)).await?;
    queue.push_message(message(SECOND)).await?;
    assert_eq!(parent().await?.as_deref(), Some(FIRST));
    queue
        .push_message(message(SECOND).on_conflict(OnConflict::Reschedule))
        .await?;
    assert_eq!(parent().await?.as_deref(), Some(FIRST));
    queue
        .push_message(message(SECOND).on_conflict(OnConflict::Replace))
        .await?;
    assert_eq!(parent().await?.as_deref(), Some(SECOND));
    queue
        .push("")
        .id("id")
        .on_conflict(OnConflict::Replace)
        .due(HOUR)
        .await?;
    assert_eq!(parent().await?, None);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_trace_parent_is_rejected_before_the_push() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let good = Message::new("").id("good").due(HOUR).trace_parent(FIRST);
    for bad in [
        "",
        "x",
        &FIRST.to_uppercase(),
        &format!("{FIRST} reuse"),
        "00-0-0-0",
    ] {
        let message = Message::new("").id("bad").trace_parent(bad);
        let error = queue.push_message(message.clone()).await.expect_err(bad);
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().starts_with("trace parent "), "{error}");
        let results = queue.push_many([message, good.clone()]).await;
        assert!(
            results[0].is_err() && results[1].is_ok(),
            "{bad:?}: a neighbour is none the worse for it"
        );
    }
    assert_eq!(queue.get("bad").await?, None);
    assert_eq!(queue.metrics().count(Counter::PushRefused), 10);
    Ok(())
}

/// A `traceparent` that was written into attrs by hand must not reach HTTP headers or environment
/// variables.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trace_parent_of_invalid_form_is_ignored() -> Result<()> {
    let setup = setup().await?;
    assert_eq!(
        setup.queue.push("").id("id").max_attempts(3).await?,
        PushOutcome::Created
    );
    let attrs = "0 0 0 max_attempts=3 traceparent=00-\r-x-01 later=1\n";
    setup
        .command::<()>(&["HSET", "dueq:{orders}:attrs", "id", attrs])
        .await?;
    assert_eq!(
        setup
            .queue
            .get("id")
            .await?
            .and_then(|stored| stored.max_attempts),
        Some(3)
    );
    let delivery = claim_one(&setup.queue).await?;
    assert_eq!(delivery.trace_parent(), None);
    Ok(())
}
