//! Which queues count as empty and unused. Deleting them must lose no message.

use std::time::Duration;

use anyhow::Result;
use dueq::outcomes::{KeepReason, UnusedOutcome};
use dueq::{ErrorKind, Message, Queue, QueueLimits};

use crate::support::{HOUR, Setup, setup, until};

const DAY: Duration = Duration::from_secs(86_400);
const META: &str = "dueq:{orders}:meta";
const COUNTERS: &str = "pushed claimed acked repeated retried released crashed died cancelled \
                        requeued purged trimmed expired throttled snoozed";

/// Writes the present counters into a field of the history, as if they were from `days` days ago;
/// with `is_last_ms`, from the last millisecond of that day.
async fn record(setup: &Setup, field: &str, days: u64, is_last_ms: bool) -> Result<u64> {
    let names: Vec<_> = COUNTERS.split_whitespace().collect();
    let counters: Vec<Option<String>> = setup
        .command(&[&["HMGET", META], &names[..]].concat())
        .await?;
    let counters = counters.into_iter().map(Option::unwrap_or_default);
    let counters: Vec<_> = counters
        .map(|count| if count.is_empty() { "0".into() } else { count })
        .collect();
    let (seconds, _): (u64, u64) = setup.command(&["TIME"]).await?;
    let day = 86_400_000;
    let at = seconds * 1_000 - days * day;
    let at = if is_last_ms {
        at / day * day + day - 1
    } else {
        at
    };
    let text = format!("{at}|{}|0 0 0 0|", counters.join(" "));
    setup.command::<()>(&["HSET", META, field, &text]).await?;
    Ok(at)
}

/// A queue that was used 31 days ago.
async fn unused(setup: &Setup) -> Result<u64> {
    setup.queue.delete().await?;
    setup.queue.push("").id("old").delay(HOUR).await?;
    let _ = setup.queue.cancel("old").await?;
    record(setup, "history", 31, false).await
}

#[tokio::test]
async fn a_queue_counts_as_unused_since_a_worker_emptied_it() -> Result<()> {
    let setup = &setup().await?;
    let queue = &setup.queue;
    let worker = queue.worker().spawn(async |_: dueq::Delivery| {})?;
    queue.push("").await?;
    let history = async || {
        let text: Option<String> = setup.command(&["HGET", META, "history"]).await?;
        Ok(text.unwrap_or_default())
    };
    let history = until("a report", history, |text| text.contains("|1 1 1 0 0")).await?;
    worker.shutdown().await?;
    assert_eq!(
        queue.unused(HOUR).await?,
        UnusedOutcome::Kept(KeepReason::Used)
    );
    let (at, rest) = history.split_once('|').expect("a record");
    let old = at.parse::<u64>()? - 3_600_000;
    let text = format!("{old}|{rest}");
    setup
        .command::<()>(&["HSET", META, "history", &text])
        .await?;
    assert_eq!(queue.unused(HOUR).await?, UnusedOutcome::Since(old));
    assert_eq!(
        queue.unused(2 * HOUR).await?,
        UnusedOutcome::Kept(KeepReason::Used)
    );
    assert_eq!(queue.delete_unused(HOUR).await?, UnusedOutcome::Since(old));
    assert!(!queue.exists().await?);
    assert_eq!(queue.delete_unused(HOUR).await?, UnusedOutcome::Absent);
    Ok(())
}

/// Makes this change to an unused queue. Returns why the queue is kept then.
async fn change(setup: &Setup, change: &str) -> Result<KeepReason> {
    let queue: &Queue = &setup.queue;
    let again = async || record(setup, "history", 31, false).await.map(drop);
    Ok(match change {
        "a scheduled message" => {
            queue.push("").delay(HOUR).await?;
            again().await?;
            KeepReason::Messages
        }
        "a dead message" => {
            queue.push("").await?;
            let _ = crate::support::claim_one(queue).await?.bury("").await?;
            again().await?;
            KeepReason::Messages
        }
        "a limit" => {
            queue.configure(QueueLimits::new().max_attempts(20)).await?;
            KeepReason::Settings
        }
        "a layout" => {
            queue.configure(QueueLimits::new().layout3()).await?;
            KeepReason::Settings
        }
        "a pause" => {
            queue.pause().await?;
            KeepReason::Settings
        }
        "a pause with an end" => {
            queue.pause_for(HOUR).await?;
            KeepReason::Settings
        }
        "a window" => {
            let message = Message::new("").id("once").window(HOUR);
            queue.push_message(message.due(HOUR)).await?;
            let _ = queue.cancel("once").await?;
            again().await?;
            KeepReason::Windows
        }
        "a use" => {
            queue.push("").id("new").delay(HOUR).await?;
            let _ = queue.cancel("new").await?;
            KeepReason::Used
        }
        "no record" => {
            setup.command::<()>(&["HDEL", META, "history"]).await?;
            KeepReason::Used
        }
        "the record before a first report" => {
            setup.command::<()>(&["HDEL", META, "history"]).await?;
            record(setup, "d7", 32, true).await?;
            KeepReason::Used
        }
        "schedules" => {
            setup
                .command::<()>(&["HSET", META, "schedules", "1"])
                .await?;
            KeepReason::Schedules
        }
        "partitions" => {
            let map = "1|- 1|- 1";
            setup
                .command::<()>(&["HSET", META, "layout", "2", "map", map])
                .await?;
            KeepReason::Partitions
        }
        "a newer layout" => {
            setup.command::<()>(&["HSET", META, "layout", "6"]).await?;
            KeepReason::Layout
        }
        _ => anyhow::bail!("no change {change}"),
    })
}

#[tokio::test]
async fn queues_with_anything_left_are_kept() -> Result<()> {
    let setup = &setup().await?;
    let month = 30 * DAY;
    for what in [
        "a scheduled message",
        "a dead message",
        "a limit",
        "a layout",
        "a pause",
        "a pause with an end",
        "a window",
        "a use",
        "no record",
        "the record before a first report",
        "schedules",
        "a newer layout",
        "partitions",
    ] {
        setup.command::<()>(&["FLUSHALL"]).await?;
        let since = unused(setup).await?;
        assert_eq!(
            setup.queue.unused(month).await?,
            UnusedOutcome::Since(since),
            "{what}"
        );
        let why = change(setup, what).await?;
        let before: u64 = setup.command(&["DBSIZE"]).await?;
        assert_eq!(
            setup.queue.delete_unused(month).await?,
            UnusedOutcome::Kept(why),
            "{what}"
        );
        assert_eq!(setup.command::<u64>(&["DBSIZE"]).await?, before, "{what}");
    }
    for bad in [Duration::from_secs(3_599), 90 * DAY] {
        let error = setup.queue.unused(bad).await.expect_err("out of range");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    }
    Ok(())
}

#[tokio::test]
async fn a_later_record_of_the_history_keeps_the_time_of_use() -> Result<()> {
    let setup = &setup().await?;
    unused(setup).await?;
    // A worker that was started yesterday has reported again.
    let since = record(setup, "d9", 40, false).await?;
    record(setup, "history", 1, false).await?;
    assert_eq!(
        setup.queue.unused(39 * DAY).await?,
        UnusedOutcome::Since(since)
    );
    Ok(())
}

#[tokio::test]
async fn a_push_during_the_deletion_of_its_queue_is_not_lost() -> Result<()> {
    let setup = &setup().await?;
    let queue = &setup.queue;
    let mut deleted = 0;
    for round in 0..50 {
        unused(setup).await?;
        let (pushed, found) = tokio::join!(
            queue.push("").id("new").delay(HOUR),
            queue.delete_unused(30 * DAY)
        );
        pushed?;
        deleted += u32::from(matches!(found?, UnusedOutcome::Since(_)));
        assert!(queue.get("new").await?.is_some(), "round {round}");
    }
    println!("{deleted} of 50 were deleted before the push");
    Ok(())
}
