//! `/queues/Q/push`: push, clone and edit a message, with a preview.

use std::time::Duration;

use anyhow::{Context, Result};
use dueq::Due;

use crate::dashboard::look::{HOSTILE_IN_FORM, led, look, look_as, submit};
use crate::instance::Instance;

const AT: &str = "/queues/orders/push";

#[tokio::test]
async fn preview_shows_what_a_push_sends_and_pushes_nothing() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.client.queue("orders")?;
    let form = "payload=it%27s+1%0D%0Atwo&id=a%2Fb&when=48h&max_attempts=3";
    let shown = submit(&instance, None, AT, &format!("{form}&action=preview")).await?;
    assert_eq!(shown.status, 200, "{shown:?}");
    let page = shown.body.replace("&#34;", "\"").replace("&#39;", "'");
    for part in [
        "\"delay\": \"48h\"",
        "\"max_attempts\": 3",
        "--id=a/b --delay=48h --max-attempts=3 -- orders",
        "Nothing was pushed yet",
        "it's 1",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(!queue.exists().await?);
    let pushed = submit(&instance, None, AT, &format!("{form}&action=push")).await?;
    led(&pushed, "/queues/orders/messages/~YS9i?did=pushed");
    let stored = queue.get("a/b").await?.context("the message")?;
    assert_eq!(stored.payload, b"it's 1\ntwo");
    assert_eq!(stored.max_attempts, Some(3));
    let again = submit(&instance, None, AT, &format!("{form}&action=push")).await?;
    led(&again, "/queues/orders/messages/~YS9i?did=there");
    let made = submit(&instance, None, AT, "payload=x&id=&when=1h&action=push").await?;
    assert_eq!(made.status, 303, "{made:?}");
    assert_eq!(queue.stats().await?.scheduled, 2);
    Ok(())
}

#[tokio::test]
async fn mistake_is_shown_beside_its_field_with_what_was_typed() -> Result<()> {
    let instance = Instance::open().await?;
    let form = format!("payload={HOSTILE_IN_FORM}&id=1&when=soon&action=push");
    let refused = submit(&instance, None, AT, &form).await?;
    assert!(refused.status == 400 && refused.body.contains("mistake-when"));
    assert!(
        refused.body.contains("&#60;script&#62;alert(1)"),
        "{}",
        refused.body
    );
    assert!(!instance.client.queue("orders")?.exists().await?);
    Ok(())
}

#[tokio::test]
async fn edit_replaces_the_message_and_clone_leaves_it() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.client.queue("orders")?;
    let due = Due::at_ms(2_000_000_000_000);
    queue.push("old").id("1").due(due).await?;
    let clone = look(&instance, &format!("{AT}?from=1")).await?.body;
    assert!(
        clone.contains(">\nold</textarea>") && !clone.contains("2033-05-18"),
        "{clone}"
    );
    let edit = look(&instance, &format!("{AT}?edit=1")).await?.body;
    assert!(edit.contains("value=\"2033-05-18T03:33:20Z\""), "{edit}");
    let form = "payload=new&id=1&when=2033-05-18T03%3A33%3A20Z&action=push";
    let replaced = submit(&instance, None, &format!("{AT}?edit=1"), form).await?;
    led(&replaced, "/queues/orders/messages/1?did=replaced");
    let stored = queue.get("1").await?.context("the message")?;
    assert_eq!(
        (&stored.payload[..], stored.time_ms),
        (&b"new"[..], 2_000_000_000_000)
    );
    queue
        .push([0xff_u8])
        .id("binary")
        .due(Duration::from_secs(60))
        .await?;
    let binary = look(&instance, &format!("{AT}?from=binary")).await?.body;
    assert!(binary.contains("its payload is no text"), "{binary}");
    Ok(())
}

#[tokio::test]
async fn edit_is_refused_once_it_would_deliver_twice_or_lose() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.client.queue("orders")?;
    let edit = async |id: &str| {
        let form = format!("payload=new&id={id}&when=48h&action=push");
        submit(&instance, None, &format!("{AT}?edit={id}"), &form).await
    };
    queue.push("").id("handled").await?;
    for delivery in queue.claim(1, Duration::from_secs(60)).await? {
        assert_eq!(edit("handled").await?.status, 409, "a handler has it");
        assert_eq!(delivery.ack().await?, dueq::outcomes::SettleOutcome::Done);
    }
    assert_eq!(edit("handled").await?.status, 404);
    assert!(queue.get("handled").await?.is_none(), "not pushed again");
    let late = Duration::from_secs(60);
    queue.push([0xff_u8]).id("binary").delay(late).await?;
    let page = look(&instance, &format!("{AT}?edit=binary")).await?.body;
    assert!(!page.contains("Replace the message"), "{page}");
    assert_eq!(edit("binary").await?.status, 400);
    let kept = queue.get("binary").await?.context("the message")?;
    assert_eq!(kept.payload, [0xff]);
    Ok(())
}

#[tokio::test]
async fn push_page_needs_the_right_to_produce() -> Result<()> {
    let instance = Instance::with_tokens().await?;
    assert_eq!(look_as(&instance, "viewer", AT).await?.status, 403);
    assert_eq!(look_as(&instance, "producer", AT).await?.status, 200);
    let refused = submit(&instance, Some("viewer"), AT, "payload=x&action=push").await?;
    assert_eq!(refused.status, 403, "{refused:?}");
    Ok(())
}
