//! Expiries, costs and rates that are out of their ranges.

use std::time::Duration;

use anyhow::Result;
use dueq::{Due, Message, OnConflict, OnExpire, QueueLimits};

use super::{CENTURY, no_trace, refused};
use crate::support::{HOUR, setup};

#[tokio::test]
async fn expiries_and_costs_out_of_range_are_refused() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    for (message, words) in [
        (
            Message::new("").expires_after(Duration::ZERO),
            &["expires_after is 0 ms", "100 years"][..],
        ),
        (
            Message::new("").expires_after(CENTURY + HOUR),
            &["expires_after", "100 years"],
        ),
        (Message::new("").expires_at(0), &["expires must be"]),
        (
            Message::new("").due(HOUR).expires_at(4_000_000_000_000_000),
            &["expires must be"],
        ),
        (
            Message::new("").on_expire(OnExpire::Drop),
            &["on_expire", "expires_after or expires_at"],
        ),
        (Message::new("").cost(0), &["cost is 0", "1 to 1000000"]),
        (Message::new("").cost(1_000_001), &["cost is 1000001"]),
    ] {
        refused("push", queue.push_message(message).await, words)?;
    }
    no_trace(&setup).await?;
    let rate = QueueLimits::new()
        .rate(100, Duration::from_secs(1))
        .burst(10);
    queue.configure(rate).await?;
    let dear = queue.push("").cost(11).await;
    refused("cost", dear, &["cost must be 1 to 10", "burst"])?;
    let early = queue.push("").due(Due::at_ms(2_000_000_000_000));
    let early = early.expires_at(1_999_999_999_999).await;
    refused("expiry", early, &["not before the due time"])?;
    assert_eq!(queue.stats().await?.scheduled, 0);
    Ok(())
}

#[tokio::test]
async fn rates_and_max_leased_out_of_range_are_refused() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let second = Duration::from_secs(1);
    let month = Duration::from_secs(30 * 86_400);
    for (limits, words) in [
        (
            QueueLimits::new().rate(0, second),
            &["rate is 0", "1 to 1000000"][..],
        ),
        (
            QueueLimits::new().rate(1, Duration::ZERO),
            &["window", "30 days"],
        ),
        (
            QueueLimits::new().rate(1, month + second),
            &["window", "30 days"],
        ),
        (
            QueueLimits::new().rate(5, second).burst(6),
            &["burst is 6", "5"],
        ),
        (QueueLimits::new().burst(2), &["burst", "without a rate"]),
        (
            QueueLimits::new().max_leased(0),
            &["max_leased must be 1 to 1000000"],
        ),
        (QueueLimits::new().max_leased(1_000_001), &["max_leased"]),
        (
            QueueLimits::new().max_throttle(Duration::ZERO),
            &["max_throttle_ms"],
        ),
    ] {
        refused("configure", queue.configure(limits).await, words)?;
    }
    no_trace(&setup).await?;
    queue.partition_into(4).await?;
    for (limits, words) in [
        (
            QueueLimits::new().rate(3, second),
            &["rate is 3", "4 partitions", "rate of 12"],
        ),
        (
            QueueLimits::new().max_leased(3),
            &["max_leased is 3", "4 partitions", "4 or more"],
        ),
    ] {
        let refusal = queue.configure(limits.max_crashes(1)).await;
        refused("configure", refusal, words)?;
    }
    let stats = queue.stats().await?;
    assert_eq!(
        (stats.max_crashes, stats.rate),
        (5, None),
        "nothing was written"
    );
    Ok(())
}

#[tokio::test]
async fn windows_and_debounces_out_of_range_are_refused() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let month = Duration::from_secs(30 * 86_400);
    let new = || Message::new("").id("a");
    for (message, words) in [
        (
            new().window(Duration::ZERO),
            &["window is 0 ms", "30 days"][..],
        ),
        (new().window(month + HOUR), &["window is", "2592000000"]),
        (
            new().debounce(HOUR).max_wait(Duration::ZERO),
            &["max_wait is 0 ms", "100 years"],
        ),
        (
            new().debounce(HOUR).max_wait(CENTURY + HOUR),
            &["max_wait is", "100 years"],
        ),
        (
            new().debounce(HOUR).max_wait(HOUR / 2),
            &["max_wait", "at least the delay"],
        ),
        (
            new().debounce(HOUR).spread(HOUR).max_wait(HOUR),
            &["max_wait", "at least the delay"],
        ),
        (
            new()
                .debounce(HOUR)
                .due(Due::at_ms(4_000_000_000_000))
                .max_wait(HOUR),
            &["max_wait must be at least the delay"],
        ),
        (
            new().max_wait(HOUR),
            &["max_wait", "reschedule, replace or next"],
        ),
        (new().revive(), &["revive", "replace or next"]),
        (
            new().on_conflict(OnConflict::Reschedule).revive(),
            &["revive", "replace or next"],
        ),
        (
            new().on_conflict(OnConflict::Next),
            &["layout 3", "dueq configure orders --layout 3"],
        ),
    ] {
        refused("push", queue.push_message(message).await, words)?;
    }
    no_trace(&setup).await?;
    for limit in [0, 1_000_000_000_000_001] {
        let limits = QueueLimits::new().max_remembered(limit);
        refused(
            "limit",
            queue.configure(limits).await,
            &["max_remembered must be 1 to"],
        )?;
    }
    no_trace(&setup).await
}
