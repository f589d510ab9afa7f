//! What a handler learns of the attempts of its message.

use std::time::Duration;

use anyhow::Result;
use dueq::{Delivery, Limits, Message, Retry};

use crate::support::{LONG, claim_for, seen, setup, stats_until};

/// The id of a delivery, its attempt, and whether it is the last.
type Attempt = (String, u32, bool);

fn attempt(delivery: &Delivery) -> Attempt {
    let is_last = delivery.is_last_attempt();
    (delivery.id().into_owned(), delivery.attempt(), is_last)
}

fn of(id: &str, attempts: &[(u32, bool)]) -> Vec<Attempt> {
    let attempts = attempts.iter();
    let attempts = attempts.map(|&(attempt, is_last)| (id.to_owned(), attempt, is_last));
    attempts.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_last_attempt_is_called_the_last() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    queue.configure(Limits::new().max_attempts(3)).await?;
    let (sender, mut seen) = seen();
    let worker = queue
        .worker()
        .lease(LONG)
        .retry(Retry::fixed(Duration::ZERO));
    let worker = worker.spawn(move |delivery: Delivery| {
        let _ = sender.send(attempt(&delivery));
        async { Err::<(), _>("it fails") }
    });
    for (id, limit) in [("once", Some(1)), ("larger", Some(4)), ("queue", None)] {
        let message = Message::new("").id(id);
        let limited = limit.map(|limit| message.clone().max_attempts(limit));
        queue.push_message(limited.unwrap_or(message)).await?;
    }
    let mut attempts = seen.take(1 + 4 + 3).await?;
    let stats = stats_until(queue, "all dead", |stats| stats.dead == 3).await?;
    assert_eq!(stats.died, 3);
    attempts.sort_unstable();
    let expected = [
        of("larger", &[(1, false), (2, false), (3, false), (4, true)]),
        of("once", &[(1, true)]),
        of("queue", &[(1, false), (2, false), (3, true)]),
    ];
    assert_eq!(attempts, expected.concat());
    // A requeued message has all its attempts again.
    let _ = queue.requeue("once").await?;
    assert_eq!(seen.next().await?, ("once".to_owned(), 1, true));
    let _ = queue.requeue("queue").await?;
    let requeued = seen.take(3).await?;
    assert_eq!(requeued, of("queue", &[(1, false), (2, false), (3, true)]));
    Ok(worker.shutdown().await?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crashes_do_not_make_an_attempt_the_last() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let message = Message::new("").id("id").max_attempts(2);
    queue.push_message(message).await?;
    // Claimed and never settled, as by a process that died. A worker takes the lease back.
    let crashed = claim_for(queue, Duration::from_millis(1)).await?;
    assert_eq!(attempt(&crashed), ("id".to_owned(), 1, false));
    let (sender, mut seen) = seen();
    let worker = queue
        .worker()
        .lease(LONG)
        .retry(Retry::fixed(Duration::ZERO));
    let worker = worker.spawn(move |delivery: Delivery| {
        let _ = sender.send(attempt(&delivery));
        async { Err::<(), _>("it fails") }
    });
    assert_eq!(seen.take(2).await?, of("id", &[(2, false), (3, true)]));
    let stats = stats_until(queue, "dead", |stats| stats.dead == 1).await?;
    assert_eq!((stats.crashed, stats.retried, stats.died), (1, 1, 1));
    Ok(worker.shutdown().await?)
}
