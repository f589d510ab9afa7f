//! Due times of messages.

use std::time::{Duration, SystemTime};

use anyhow::Result;
use dueq::{Delivery, Due, Message, MessageState, OnConflict};

use crate::support::{HOUR, LONG, Running, claim_one, seen, server_us, setup};

/// The test reads the server's clock before the push and after the claim, so it detects a claim
/// that gets a message early by more than a round trip. It uses many delays because a rounding
/// mistake shows in some of them only.
#[tokio::test]
async fn busy_claimer_never_gets_a_message_early() -> Result<()> {
    let setup = setup().await?;
    let mut redis = setup.redis().await?;
    for round in 0..60 {
        let delay = Duration::from_micros(3_000 + 217 * round);
        let pushed_us = server_us(&mut redis).await?;
        setup.queue.push("").due(delay).await?;
        let delivery = claim_one(&setup.queue).await?;
        let claimed_us = server_us(&mut redis).await?;
        let taken = Duration::from_micros(claimed_us - pushed_us);
        assert!(
            taken >= delay,
            "due after {delay:?}, granted after {taken:?}"
        );
        // A lease starts at the claim and is rounded up to a millisecond.
        let granted_ms = delivery.deadline_ms() - u64::try_from(LONG.as_millis())?;
        assert!(
            granted_ms >= delivery.due_ms(),
            "due {}, granted {granted_ms}",
            delivery.due_ms()
        );
        let _ = delivery.ack().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_is_never_early_and_keeps_the_due_order() -> Result<()> {
    let setup = setup().await?;
    let mut redis = setup.redis().await?;
    let (sender, mut seen) = seen();
    let url = setup.server.url();
    let handler = move |delivery: Delivery| {
        let (sender, url) = (sender.clone(), url.clone());
        async move {
            let now_us = server_us(&mut crate::support::connection(&url).await?).await?;
            let _ = sender.send((delivery.id().into_owned(), delivery.due_ms(), now_us));
            anyhow::Ok(())
        }
    };
    // With one handler at a time, the order of handling is the order of claims.
    let worker = Running::start(setup.queue.worker().concurrency(1), handler);

    let base_ms = server_us(&mut redis).await? / 1_000 + 100;
    let dues: Vec<u64> = (0..40).map(|number| base_ms + number * 37 % 200).collect();
    let messages = dues
        .iter()
        .map(|&due| Message::new("").id(format!("{due}")).due(Due::at_ms(due)));
    for pushed in setup.queue.push_many(messages).await {
        pushed?;
    }
    let mut unique = dues.clone();
    unique.sort_unstable();
    unique.dedup();
    let handled = seen.take(unique.len()).await?;
    for (id, due_ms, now_us) in &handled {
        assert_eq!(id, &due_ms.to_string());
        assert!(
            *now_us >= due_ms * 1_000,
            "due {due_ms}, handled at {now_us} us"
        );
    }
    let order: Vec<u64> = handled.iter().map(|(_, due, _)| *due).collect();
    assert_eq!(order, unique);
    worker.stop().await
}

#[tokio::test]
async fn a_due_moment_is_rounded_up_to_the_millisecond() -> Result<()> {
    let setup = setup().await?;
    let moment = SystemTime::now() + HOUR;
    setup.queue.push("").id("moment").due(moment).await?;
    let stored = setup.queue.get("moment").await?.expect("stored");
    let micros = moment.duration_since(SystemTime::UNIX_EPOCH)?.as_nanos();
    assert_eq!(u128::from(stored.time_ms), micros.div_ceil(1_000_000));
    assert_eq!(stored.state, MessageState::Scheduled);
    assert_eq!(setup.queue.claim(1, LONG).await?.len(), 0);
    Ok(())
}

#[tokio::test]
async fn a_delay_counts_from_the_servers_clock_not_ours() -> Result<()> {
    let setup = setup().await?;
    let mut redis = setup.redis().await?;
    let before_us = server_us(&mut redis).await?;
    setup.queue.push("").id("hour").due(HOUR).await?;
    let after_us = server_us(&mut redis).await?;
    let due_us = setup.queue.get("hour").await?.expect("stored").time_ms * 1_000;
    let hour_us = u64::try_from(HOUR.as_micros())?;
    assert!((before_us + hour_us..=after_us + hour_us + 1_000).contains(&due_us));
    Ok(())
}

#[tokio::test]
async fn a_repeated_push_with_a_spread_has_the_same_due_time() -> Result<()> {
    let setup = setup().await?;
    let (at, window) = (2_000_000_000_000, Duration::from_secs(30));
    let mut dues = Vec::new();
    for id in ["a", "b", "c", "d"] {
        let push = || {
            setup
                .queue
                .push("")
                .id(id)
                .due(Due::at_ms(at))
                .spread(window)
        };
        let first = push().await?;
        let due_ms = first.due_ms().expect("a created message has a due time");
        assert!((at..=at + 30_000).contains(&due_ms), "{due_ms}");
        let moved = push().on_conflict(OnConflict::Reschedule).await?;
        assert_eq!(moved.due_ms(), Some(due_ms));
        let stored = setup.queue.get(id).await?.expect("it waits");
        assert_eq!(stored.time_ms, due_ms);
        dues.push(due_ms);
    }
    let many = (0..2).map(|_| Message::new("").id("a").due(Due::at_ms(at)).spread(window));
    for receipt in setup.queue.push_many(many).await {
        assert!(!receipt?.is_created());
    }
    dues.dedup();
    assert_eq!(dues.len(), 4, "four ids have four due times: {dues:?}");
    Ok(())
}

#[tokio::test]
async fn spread_without_a_due_time_delays_the_message() -> Result<()> {
    let setup = setup().await?;
    let receipt = setup.queue.push("").id("order:42").spread(HOUR).await?;
    let stored = setup.queue.get("order:42").await?.expect("it waits");
    assert_eq!(stored.state, MessageState::Scheduled);
    assert_eq!(receipt.due_ms(), Some(stored.time_ms));
    Ok(())
}

#[tokio::test]
async fn a_delay_of_a_hundred_years_is_accepted() -> Result<()> {
    let setup = setup().await?;
    let century = Duration::from_secs(36_525 * 86_400);
    setup
        .queue
        .push_message(Message::new("").id("delay").due(century))
        .await?;
    setup
        .queue
        .push_message(
            Message::new("")
                .id("moment")
                .due(SystemTime::now() + century - HOUR),
        )
        .await?;
    assert_eq!(setup.queue.stats().await?.scheduled, 2);
    assert_eq!(setup.queue.claim(1, LONG).await?.len(), 0);
    Ok(())
}
