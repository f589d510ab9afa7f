//! Bad input is rejected with the reason and leaves no trace in Redis.

mod limits;

use std::fmt::Debug;
use std::time::{Duration, SystemTime};

use anyhow::{Result, ensure};
use dueq::{Applied, Due, Error, ErrorKind, Message, MessageState, OnConflict, QueueLimits, Retry};

use crate::support::{HOUR, LONG, Setup, push_and_claim, setup, within};

const CENTURY: Duration = Duration::from_secs(36_525 * 86_400);

/// The call must fail before any change, with an error that contains these words.
fn refused<T: Debug>(what: &str, result: Result<T, Error>, words: &[&str]) -> Result<()> {
    let error = match result {
        Ok(value) => anyhow::bail!("{what} was taken: {value:?}"),
        Err(error) => error,
    };
    let text = error.to_string();
    ensure!(error.kind() == ErrorKind::InvalidInput, "{what}: {error:?}");
    ensure!(
        error.was_applied() == Applied::No && !error.is_retryable(),
        "{what}: {error:?}"
    );
    for word in words {
        ensure!(
            text.contains(word),
            "{what}: {text:?} does not say {word:?}"
        );
    }
    ensure!(!text.contains('\n') && text.len() < 400, "{what}: {text}");
    Ok(())
}

async fn no_trace(setup: &Setup) -> Result<()> {
    let keys: Vec<String> = setup.command(&["KEYS", "*"]).await?;
    ensure!(keys.is_empty(), "{keys:?}");
    Ok(())
}

#[tokio::test]
async fn queue_names_out_of_range_are_refused() -> Result<()> {
    let setup = setup().await?;
    let long = "x".repeat(129);
    for (name, why) in [
        ("", "empty"),
        ("a/b", "'/'"),
        ("{a", "'{'"),
        ("a}", "'}'"),
        ("a\nb", "control"),
        ("a\0", "control"),
        ("\u{7f}", "control"),
        (&long, "129 bytes"),
        (&"ä".repeat(65), "130 bytes"),
    ] {
        refused(
            name,
            setup.client.queue(name),
            &["queue name", why, "1 to 128 bytes"],
        )?;
    }
    let largest = setup.client.queue(&"x".repeat(128))?;
    largest.push("").await?;
    Ok(())
}

#[tokio::test]
async fn ids_out_of_range_are_refused_by_every_verb() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let long = vec![b'x'; 201];
    for (id, why) in [
        (&b""[..], "empty"),
        (&b"a\0"[..], "control byte"),
        (&b"\n"[..], "control byte"),
        (&b"a\x1fb"[..], "control byte"),
        (&b"\x7f"[..], "control byte"),
        (&long[..], "too long"),
    ] {
        let words = ["message id", why, "1 to 200 bytes"];
        for conflict in [
            OnConflict::Keep,
            OnConflict::Reschedule,
            OnConflict::Replace,
        ] {
            let message = Message::new("").id(id).due(HOUR).on_conflict(conflict);
            refused("push", queue.push_message(message).await, &words)?;
        }
        refused("cancel", queue.cancel(id).await, &words)?;
        refused("cancel_dead", queue.cancel_dead(id).await, &words)?;
        refused("reschedule", queue.reschedule(id, HOUR).await, &words)?;
        refused(
            "reschedule_if",
            queue.reschedule_if(id, HOUR, 5).await,
            &words,
        )?;
        refused("run_now", queue.run_now(id).await, &words)?;
        refused("requeue", queue.requeue(id).await, &words)?;
        refused("get", queue.get(id).await, &words)?;
    }
    no_trace(&setup).await
}

#[tokio::test]
async fn too_large_payloads_are_refused() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let mebibyte = 1024 * 1024;
    let of = |size: usize| Message::new(vec![b'x'; size]).id("id");
    refused(
        "1 MiB and a byte",
        queue.push_message(of(mebibyte + 1)).await,
        &["1048577 bytes", "1048576"],
    )?;
    refused(
        "16 MiB",
        queue.push_message(of(16 * mebibyte)).await,
        &["16777216 bytes", "1048576"],
    )?;
    refused(
        "more than 16 MiB",
        queue.push_message(of(16 * mebibyte + 1)).await,
        &["16777217 bytes", "16777216"],
    )?;
    no_trace(&setup).await?;
    queue.push_message(of(mebibyte)).await?;
    Ok(())
}

#[tokio::test]
async fn value_without_a_json_form_is_rejected() -> Result<()> {
    let map = std::collections::BTreeMap::from([((1, 2), "x")]);
    refused(
        "a map with keys that are no strings",
        Message::json(&map),
        &["JSON"],
    )?;
    Ok(())
}

#[tokio::test]
async fn times_beyond_a_hundred_years_are_refused() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let beyond = CENTURY + Duration::from_millis(1);
    let dues: [Due; 8] = [
        beyond.into(),
        (CENTURY + Duration::from_nanos(1)).into(),
        Duration::MAX.into(),
        Due::AfterMs(u64::MAX),
        (SystemTime::now() + CENTURY + HOUR).into(),
        Due::at_ms(999_999_999_999_999),
        Due::at_ms(1_000_000_000_000_000),
        Due::at_ms(u64::MAX),
    ];
    for due in dues {
        refused(
            &format!("{due:?}"),
            queue.push("").id("id").due(due).await,
            &["100 years"],
        )?;
        refused(
            &format!("{due:?}"),
            queue.reschedule("id", due).await,
            &["100 years"],
        )?;
        refused(
            &format!("{due:?}"),
            queue.reschedule_if("id", due, 5).await,
            &["100 years"],
        )?;
    }
    no_trace(&setup).await
}

#[tokio::test]
async fn spreads_that_end_after_a_hundred_years_are_refused() -> Result<()> {
    let setup = setup().await?;
    let day = Duration::from_secs(86_400);
    for (delay, window) in [
        (Duration::ZERO, 36_526 * day),
        (36_525 * day, Duration::from_millis(1)),
        (Duration::ZERO, Duration::MAX),
    ] {
        let pushed = setup.queue.push("x").delay(delay).spread(window).await;
        refused(&format!("{delay:?} {window:?}"), pushed, &["100 years"])?;
    }
    no_trace(&setup).await
}

#[tokio::test]
async fn attempt_limits_out_of_range_are_refused() -> Result<()> {
    let setup = setup().await?;
    for limit in [0, 1_000_001, u32::MAX] {
        let pushed = setup.queue.push("").max_attempts(limit).await;
        refused(
            "a limit",
            pushed,
            &["max_attempts", &limit.to_string(), "1 to 1000000"],
        )?;
    }
    no_trace(&setup).await
}

#[tokio::test]
async fn one_queue_limit_out_of_range_refuses_all_of_a_call() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let limits = || QueueLimits::new().max_attempts(3);
    for (wrong, words) in [
        (QueueLimits::new(), "no limit is set"),
        (
            limits().max_attempts(0),
            "max_attempts must be 1 to 1000000",
        ),
        (
            limits().max_attempts(1_000_001),
            "max_attempts must be 1 to 1000000",
        ),
        (
            limits().max_crashes(1_000_001),
            "max_crashes must be 0 to 1000000",
        ),
        (limits().max_messages(Some(0)), "max_messages must be 1 to"),
        (
            limits().max_messages(Some(u64::MAX)),
            "max_messages must be 1 to",
        ),
        (
            limits().max_payload_bytes(0),
            "max_payload_bytes must be 1 to 16777216",
        ),
        (
            limits().max_payload_bytes(16 * 1024 * 1024 + 1),
            "max_payload_bytes must be 1 to 16777216",
        ),
        (limits().keep_dead(0), "dead_keep must be 1 to"),
        (
            limits().keep_dead_for(Duration::ZERO),
            "dead_keep_ms must be 1 to",
        ),
        (
            limits().keep_dead_for(Duration::MAX),
            "dead_keep_ms must be 1 to",
        ),
    ] {
        refused(words, queue.configure(wrong).await, &[words])?;
    }
    no_trace(&setup).await?;
    queue.configure(QueueLimits::new().max_attempts(7)).await?;
    refused(
        "zero",
        queue.configure(limits().max_crashes(u32::MAX)).await,
        &["max_crashes"],
    )?;
    assert_eq!(queue.stats().await?.max_attempts, 7);
    Ok(())
}

#[tokio::test]
async fn leases_and_counts_out_of_range_are_refused() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let day = Duration::from_secs(86_400);
    for lease in [Duration::ZERO, day + Duration::from_nanos(1), Duration::MAX] {
        refused(
            "claim",
            queue.claim(1, lease).await,
            &["lease", "1 ms and a day"],
        )?;
        let worker = within(
            "the refusal",
            queue
                .worker()
                .lease(lease)
                .run(|_: dueq::Delivery| async {}, std::future::pending::<()>()),
        )
        .await?;
        refused("worker", worker, &["lease", "1 ms and a day"])?;
    }
    for count in [0, 1_001, usize::MAX] {
        refused(
            "claim",
            queue.claim(count, LONG).await,
            &["claim of", &count.to_string(), "1 to 1000"],
        )?;
        refused(
            "list",
            queue.list(MessageState::Dead, None, count).await,
            &["page", &count.to_string(), "1 to 1000"],
        )?;
    }
    for concurrency in [0, usize::MAX] {
        let worker = queue
            .worker()
            .concurrency(concurrency)
            .run(|_: dueq::Delivery| async {}, std::future::pending::<()>());
        refused(
            "worker",
            within("the refusal", worker).await?,
            &["concurrency", &concurrency.to_string()],
        )?;
    }
    no_trace(&setup).await?;
    let delivery = push_and_claim(queue, Message::new("")).await?;
    refused(
        "extend",
        delivery.extend(Duration::ZERO).await,
        &["lease", "1 ms and a day"],
    )?;
    refused(
        "extend",
        delivery.extend(2 * day).await,
        &["lease", "1 ms and a day"],
    )?;
    refused(
        "again",
        delivery.again(CENTURY + HOUR).await,
        &["100 years"],
    )?;
    refused(
        "again",
        delivery.again(Due::at_ms(u64::MAX)).await,
        &["100 years"],
    )?;
    refused(
        "snooze",
        delivery.snooze(CENTURY + HOUR).await,
        &["100 years"],
    )?;
    refused(
        "snooze",
        delivery.snooze(Due::at_ms(u64::MAX)).await,
        &["100 years"],
    )?;
    refused(
        "retry",
        delivery.retry(CENTURY + HOUR, "").await,
        &["100 years"],
    )?;
    assert_eq!(queue.claim(1, day).await?.len(), 0);
    assert_eq!(
        delivery.ack().await?,
        dueq::outcomes::SettleOutcome::Done,
        "none of it cost the lease"
    );
    Ok(())
}

#[tokio::test]
async fn purging_leased_messages_is_refused() -> Result<()> {
    let setup = setup().await?;
    refused(
        "purge",
        setup.queue.purge(MessageState::Leased).await,
        &["leased", "purged"],
    )?;
    no_trace(&setup).await
}

#[tokio::test]
async fn zero_and_inverted_retry_delays_are_refused() -> Result<()> {
    refused(
        "zero",
        Retry::exponential(Duration::ZERO, HOUR),
        &["retry delays", "above zero"],
    )?;
    refused(
        "falling",
        Retry::exponential(HOUR, Duration::from_secs(1)),
        &["retry delays"],
    )?;
    Ok(())
}
