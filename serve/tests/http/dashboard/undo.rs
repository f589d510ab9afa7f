//! Undo of a cancelled message on the dashboard.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use dueq::{Due, Message, MessageState, OnExpire};

use crate::dashboard::look::{after, claimed, led, look, submit};
use crate::instance::{Answer, Instance};

const HOUR: Duration = Duration::from_secs(3_600);
const AT: &str = "/queues/orders/messages";

#[tokio::test]
async fn undo_restores_the_message_with_its_options() -> Result<()> {
    let instance = Instance::with_tokens().await?;
    let queue = instance.client.queue("orders")?;
    let payload = b"\xff\x00".to_vec();
    let message = Message::new(payload.clone())
        .id(b"\xffid")
        .due(HOUR)
        .expires_after(HOUR)
        .on_expire(OnExpire::Drop)
        .window(HOUR)
        .cost(3)
        .max_attempts(7);
    assert!(queue.push_message(message).await?.is_created());
    let before = queue.get(b"\xffid").await?.context("it waits")?;
    let own = format!("{AT}/{}", dueq_input::id_path(b"\xffid"));
    // A producer, who may not read the payload, cancels it.
    let producer = Some("producer");
    let cancelled = submit(&instance, producer, &own, "action=cancel").await?;
    led(&cancelled, &format!("{own}?did=cancelled"));
    assert!(queue.get(b"\xffid").await?.is_none());
    // The second click of a double click.
    led(
        &submit(&instance, producer, &own, "action=cancel").await?,
        &format!("{own}?did=cancelled"),
    );
    let bearer = instance.bearer("producer");
    let headers = ["Accept: text/html", bearer.as_str()];
    let ended = instance.ask(&format!("GET {own}"), &headers, "").await?;
    assert_eq!(ended.status, 200, "{}", ended.body);
    for part in [
        "was cancelled",
        "It is due as before",
        "Undo the cancel",
        "remembers its id begins again",
    ] {
        assert!(ended.body.contains(part), "{part}: {}", ended.body);
    }
    // A viewer sees how the message ended, and cannot undo the cancel.
    let bearer = instance.bearer("viewer");
    let headers = ["Accept: text/html", bearer.as_str()];
    let seen = instance.ask(&format!("GET {own}"), &headers, "").await?;
    assert!(seen.body.contains("was cancelled") && !seen.body.contains("value=\"undo\""));
    assert_eq!(
        submit(&instance, Some("viewer"), &own, "action=undo")
            .await?
            .status,
        403
    );
    // Two undo clicks at once: one stores the message, the other finds it there.
    let (one, other) = tokio::join!(
        submit(&instance, producer, &own, "action=undo"),
        submit(&instance, producer, &own, "action=undo")
    );
    for answer in [one?, other?] {
        let to = answer.header("location").unwrap_or_default().to_owned();
        let known = [format!("{own}?did=undone"), format!("{own}?did=there")];
        assert!(known.contains(&to), "{answer:?}");
    }
    let seen = instance
        .ask(&format!("GET {own}"), &headers, "")
        .await?
        .body;
    for part in ["It was cancelled by producer", "The cancel was undone"] {
        assert!(seen.contains(part), "{part}: {seen}");
    }
    let back = queue.get(b"\xffid").await?.context("it is back")?;
    assert_eq!(back, before);
    assert_eq!(back.payload, payload);
    assert_eq!(back.state, MessageState::Scheduled);
    // A later undo also finds the message in the queue.
    led(
        &submit(&instance, producer, &own, "action=undo").await?,
        &format!("{own}?did=there"),
    );
    assert_eq!(queue.stats().await?.scheduled, 1);
    Ok(())
}

#[tokio::test]
async fn undo_on_another_instance_or_after_a_push_is_refused() -> Result<()> {
    let instance = Instance::open().await?;
    let beside = instance.beside().await?;
    let queue = instance.client.queue("orders")?;
    let own = format!("{AT}/1");
    queue.push("first").id("1").due(HOUR).await?;
    led(
        &submit(&instance, None, &own, "action=cancel").await?,
        &format!("{own}?did=cancelled"),
    );
    // Another instance has not kept the message.
    let elsewhere = look(&beside, &own).await?;
    assert!(
        elsewhere.body.contains("cannot be brought back here"),
        "{}",
        elsewhere.body
    );
    let answer = submit(&beside, None, &own, "action=undo").await?;
    assert_eq!(answer.status, 404, "{}", answer.body);
    assert!(
        answer.body.contains("cannot be brought back"),
        "{}",
        answer.body
    );
    // Another client cancels the id: an undo must not take that back.
    assert_eq!(
        queue.cancel("1").await?,
        dueq::outcomes::CancelOutcome::Cancelled
    );
    let answer = submit(&instance, None, &own, "action=undo").await?;
    led(&answer, &format!("{own}?did=used"));
    assert!(
        after(&instance, &answer)
            .await?
            .contains("Nothing was changed")
    );
    // Another push has stored a message with the id.
    queue.push("second").id("1").due(HOUR).await?;
    let answer = submit(&instance, None, &own, "action=undo").await?;
    led(&answer, &format!("{own}?did=there"));
    assert!(
        after(&instance, &answer)
            .await?
            .contains("Nothing was changed")
    );
    assert_eq!(
        queue.get("1").await?.context("it waits")?.payload,
        b"second"
    );
    Ok(())
}

#[tokio::test]
async fn undo_of_an_overdue_message_keeps_its_due_time() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.client.queue("orders")?;
    let message = Message::new("").id("1").due(Due::at_ms(1_700_000_000_123));
    assert!(queue.push_message(message).await?.is_created());
    let own = format!("{AT}/1");
    submit(&instance, None, &own, "action=cancel").await?;
    led(
        &submit(&instance, None, &own, "action=undo").await?,
        &format!("{own}?did=undone"),
    );
    let back = queue.get("1").await?.context("it is back")?;
    assert_eq!((back.time_ms, back.payload_bytes), (1_700_000_000_123, 0));
    let shown = look(&instance, &own).await?.body;
    assert!(shown.contains("0 bytes: it is empty"), "{shown}");
    queue.configure(dueq::QueueLimits::new().layout3()).await?;
    // While the message is leased, only its next message can be cancelled.
    for _delivery in claimed(&queue, 1).await? {
        let next = Message::new("")
            .id("1")
            .on_conflict(dueq::OnConflict::Next)
            .due(HOUR);
        queue.push_message(next).await?;
        let shown = look(&instance, &own).await?.body;
        assert!(shown.contains("Cancel the next"), "{shown}");
        let answer = submit(&instance, None, &own, "action=cancel").await?;
        led(&answer, &format!("{own}?did=next_cancelled"));
    }
    Ok(())
}

#[tokio::test]
async fn second_undo_click_stores_no_second_message() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.client.queue("orders")?;
    for round in 0..20 {
        let own = format!("{AT}/{round}");
        let message = Message::new("x").id(round.to_string()).due(Duration::ZERO);
        assert!(queue.push_message(message).await?.is_created());
        led(
            &submit(&instance, None, &own, "action=cancel").await?,
            &format!("{own}?did=cancelled"),
        );
        let handled = async {
            for delivery in claimed(&queue, 1).await? {
                anyhow::ensure!(delivery.ack().await? == dueq::outcomes::SettleOutcome::Done);
            }
            anyhow::Ok(())
        };
        let (one, other, handled) = tokio::join!(
            submit(&instance, None, &own, "action=undo"),
            submit(&instance, None, &own, "action=undo"),
            handled
        );
        handled?;
        let to = |answer: &Answer| answer.header("location").unwrap_or_default().to_owned();
        let known = ["undone", "there", "used"].map(|did| format!("{own}?did={did}"));
        let reached = [one?, other?].map(|answer| to(&answer));
        assert!(reached.iter().all(|to| known.contains(to)), "{reached:?}");
        let undone = reached.iter().filter(|to| **to == known[0]).count();
        assert_eq!(undone, 1, "{reached:?}");
        // A third click, some time later.
        led(
            &submit(&instance, None, &own, "action=undo").await?,
            &format!("{own}?did=used"),
        );
        let stats = queue.stats().await?;
        let left = stats.scheduled + stats.ready + stats.leased;
        assert_eq!(left, 0, "round {round}: it would be delivered again");
    }
    Ok(())
}

#[tokio::test]
async fn page_says_what_an_undo_will_do() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.client.queue("orders")?;
    let own = format!("{AT}/1");
    queue.push("x").id("1").due(dueq::Due::at_ms(1)).await?;
    submit(&instance, None, &own, "action=cancel").await?;
    let shown = look(&instance, &own).await?.body;
    for part in ["It is delivered at once", "Undo, and deliver it now"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    // Somebody else pushes and cancels the id: an undo would be refused.
    queue.push("y").id("1").due(HOUR).await?;
    let _ = queue.cancel("1").await?;
    let shown = look(&instance, &own).await?.body;
    assert!(shown.contains("cannot be undone"), "{shown}");
    assert!(!shown.contains("value=\"undo\""), "{shown}");
    led(
        &submit(&instance, None, &own, "action=undo").await?,
        &format!("{own}?did=used"),
    );
    Ok(())
}

#[tokio::test]
async fn undo_keeps_a_long_payload_only_if_memory_allows() -> Result<()> {
    let instance = Instance::start(|config, _| {
        // Memory for the payload, its copy, and the response that contains it.
        config.max_body_bytes = 225_000;
        Ok(Vec::new())
    })
    .await?;
    let queue = instance.client.queue("orders")?;
    for (id, length, is_kept) in [("fits", 70_000, true), ("large", 80_000, false)] {
        queue.push(vec![1_u8; length]).id(id).due(HOUR).await?;
        let own = format!("{AT}/{id}");
        led(
            &submit(&instance, None, &own, "action=cancel").await?,
            &format!("{own}?did=cancelled"),
        );
        let shown = look(&instance, &own).await?.body;
        assert_eq!(shown.contains("Undo the cancel"), is_kept, "{id}");
    }
    Ok(())
}

#[tokio::test]
async fn largest_payload_is_cut_downloaded_and_undone() -> Result<()> {
    let instance = Instance::start(|_, _| Ok(Vec::new())).await?;
    let queue = instance.client.queue("orders")?;
    let limits = dueq::QueueLimits::new().max_payload_bytes(16 << 20);
    queue.configure(limits).await?;
    // In JSON each of these bytes takes six.
    let payload = vec![1_u8; 16 << 20];
    queue.push(payload.clone()).id("1").due(HOUR).await?;
    let own = format!("{AT}/1");
    let shown = look(&instance, &own).await?;
    assert!(
        shown.body.contains("16,777,216 bytes"),
        "{}",
        &shown.body[..2_000]
    );
    assert!(shown.body.contains("the first 65,536 are shown"));
    assert!(shown.body.len() < 1_000_000, "{}", shown.body.len());
    let start = Instant::now();
    led(
        &submit(&instance, None, &own, "action=cancel").await?,
        &format!("{own}?did=cancelled"),
    );
    let answer = submit(&instance, None, &own, "action=undo").await?;
    let took = start.elapsed();
    // After 5 s without a reply the library repeats a push, and then finds the message.
    if took < Duration::from_secs(5) {
        led(&answer, &format!("{own}?did=undone"));
    }
    match queue.get("1").await? {
        Some(back) => assert!(back.payload == payload),
        // An undo is possible for 10 s after the cancel. With this payload a slow machine needs
        // longer.
        None => assert!(took >= Duration::from_secs(10), "{answer:?}"),
    }
    Ok(())
}
