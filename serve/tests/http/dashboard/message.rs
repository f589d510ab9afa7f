//! `/queues/Q/messages/ID`: the page of a message, and its actions.

use std::time::Duration;

use anyhow::{Context, Result};
use dueq::{Message, OnExpire, QueueLimits};

use crate::dashboard::look::{after, claimed, led, look, submit};
use crate::instance::Instance;

const HOUR: Duration = Duration::from_secs(3_600);
const AT: &str = "/queues/orders/messages";

#[tokio::test]
async fn message_page_tells_its_life_also_after_its_end() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.client.queue("orders")?;
    queue
        .configure(QueueLimits::new().keep_life_for(HOUR))
        .await?;
    let message = Message::new("x").id("a").due(Duration::ZERO);
    assert!(queue.push_message(message).await?.is_created());
    for delivery in claimed(&queue, 1).await? {
        let _ = delivery.retry(Duration::ZERO, "<b>busy").await?;
    }
    let parts = [
        "It was pushed",
        "A handler failed after",
        ": &#60;b&#62;busy",
    ];
    let page = look(&instance, &format!("{AT}/a")).await?;
    for part in parts {
        assert!(page.body.contains(part), "{part}: {}", page.body);
    }
    let read = instance
        .call("GET /v1/queues/orders/messages/a")
        .await?
        .json()?;
    assert_eq!(
        (&read["life"][0]["what"], &read["life"][1]["error"]),
        (&"push".into(), &"<b>busy".into())
    );
    for delivery in claimed(&queue, 1).await? {
        let _ = delivery.ack().await?;
    }
    let ended = look(&instance, &format!("{AT}/a")).await?;
    for part in parts.into_iter().chain(["A handler acked it after"]) {
        assert!(ended.body.contains(part), "{part}: {}", ended.body);
    }
    let read = instance.call("GET /v1/queues/orders/messages/a").await?;
    assert_eq!(
        (read.status, &read.json()?["life"][2]["what"]),
        (404, &"ack".into())
    );
    // A cancel that is undone is told once: by the server, who knows who it was.
    assert!(
        queue
            .push_message(Message::new("x").id("b").due(HOUR))
            .await?
            .is_created()
    );
    for action in ["action=cancel", "action=undo"] {
        let _ = submit(&instance, None, &format!("{AT}/b"), action).await?;
    }
    let back = look(&instance, &format!("{AT}/b")).await?.body;
    for part in ["It was pushed", "It was cancelled", "The cancel was undone"] {
        assert_eq!(back.matches(part).count(), 1, "{part}: {back}");
    }
    Ok(())
}

#[tokio::test]
async fn message_page_offers_only_actions_of_its_state() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.client.queue("orders")?;
    let message = Message::new(r#"{"order": 42, "to": "<b>\u202e"}"#)
        .id("a/b")
        .due(HOUR)
        .expires_after(HOUR)
        .on_expire(OnExpire::Drop)
        .max_attempts(7);
    assert!(queue.push_message(message).await?.is_created());
    let found = look(&instance, &format!("{AT}/~YS9i")).await?;
    assert_eq!(found.status, 200, "{}", found.body);
    for part in [
        "a/b",
        "state scheduled",
        "It is due",
        "in 59 min",
        "It expires, and is dropped",
        "of 7 attempts",
        "{ 2 fields }",
        "&#60;b&#62;",
        "dueq run-now orders a/b",
        "dueq cancel orders a/b",
        "curl -sS -X DELETE",
        "messages/~YS9i",
        "/v1/queues/orders/messages/~YS9i/payload",
    ] {
        let is_there = found.body.contains(part)
            || found
                .body
                .contains(&part.replace("&#60;", "&lt;").replace("&#62;", "&gt;"));
        assert!(is_there, "{part}: {}", found.body);
    }
    for part in ["<b>", "Requeue", "value=\"remove\"", "style="] {
        assert!(!found.body.contains(part), "{part}: {}", found.body);
    }
    // The page of a dead message has only actions on dead messages.
    assert_eq!(
        queue.run_now("a/b").await?,
        dueq::outcomes::RunNowOutcome::Moved
    );
    for delivery in claimed(&queue, 1).await? {
        let leased = look(&instance, &format!("{AT}/~YS9i")).await?;
        assert!(leased.body.contains("The lease of its handler ends"));
        assert!(leased.body.contains("End the lease"), "{}", leased.body);
        assert!(!leased.body.contains("value=\"cancel\""), "{}", leased.body);
        let _ = delivery.bury("<script>first\nsecond").await?;
    }
    let dead = look(&instance, &format!("{AT}/~YS9i")).await?.body;
    for part in [
        "state dead",
        "It died",
        "value=\"requeue\"",
        "value=\"remove\"",
        "script&#62;first\nsecond",
    ] {
        assert!(dead.contains(part), "{part}: {dead}");
    }
    assert!(
        !dead.contains("<script>") && !dead.contains("value=\"cancel\""),
        "{dead}"
    );
    Ok(())
}

#[tokio::test]
async fn message_actions_are_harmless_when_sent_twice() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.client.queue("orders")?;
    queue.push("x").id("1").due(HOUR).await?;
    let own = format!("{AT}/1");
    let due_ms = queue.get("1").await?.context("it waits")?.time_ms;
    let moved = format!("action=reschedule&when=48h&expected_due_ms={due_ms}");
    led(
        &submit(&instance, None, &own, &moved).await?,
        &format!("{own}?did=moved"),
    );
    let later = queue.get("1").await?.context("it waits")?.time_ms;
    assert!(later > due_ms + 40 * 3_600_000, "{later}");
    // Send the form again: its page was rendered before the move.
    let again = submit(&instance, None, &own, &moved).await?;
    assert_eq!(again.status, 409, "{}", again.body);
    assert!(again.body.contains("due_changed") && again.body.contains("Nothing was changed"));
    assert_eq!(queue.get("1").await?.context("it waits")?.time_ms, later);
    // A time in the clock of the page's zone.
    let paris = submit(
        &instance,
        None,
        &format!("{own}?tz=Europe/Paris"),
        "action=reschedule&when=2099-12-01+20%3A00",
    )
    .await?;
    led(&paris, &format!("{own}?did=moved"));
    assert_eq!(
        queue.get("1").await?.context("it waits")?.time_ms,
        4_099_834_800_000
    );
    for (body, status) in [
        ("action=reschedule&when=soon", 400),
        ("action=reschedule", 400),
        ("action=reschedule&when=1h&expected_due_ms=x", 400),
        ("action=drop", 400),
        ("", 400),
        ("action=requeue", 409),
        ("action=undo", 303),
    ] {
        assert_eq!(
            submit(&instance, None, &own, body).await?.status,
            status,
            "{body}"
        );
    }
    led(
        &submit(&instance, None, &own, "action=run_now").await?,
        &format!("{own}?did=due"),
    );
    led(
        &submit(&instance, None, &own, "action=run_now").await?,
        &format!("{own}?did=already"),
    );
    for delivery in claimed(&queue, 1).await? {
        for action in ["run_now", "cancel", "reschedule&when=1h"] {
            let answer = submit(&instance, None, &own, &format!("action={action}")).await?;
            assert_eq!(answer.status, 409, "{action}: {}", answer.body);
        }
        let _ = delivery.bury("no").await?;
    }
    let answer = submit(&instance, None, &own, "action=cancel").await?;
    assert_eq!(answer.status, 409, "{}", answer.body);
    led(
        &submit(&instance, None, &own, "action=requeue").await?,
        &format!("{own}?did=requeued"),
    );
    assert_eq!(
        submit(&instance, None, &own, "action=requeue")
            .await?
            .status,
        409
    );
    for delivery in claimed(&queue, 1).await? {
        let _ = delivery.bury("no").await?;
    }
    let removed = submit(&instance, None, &own, "action=remove").await?;
    led(&removed, &format!("{own}?did=removed"));
    assert!(
        after(&instance, &removed)
            .await?
            .contains("cannot be brought back here")
    );
    assert_eq!(
        submit(&instance, None, &own, "action=undo").await?.status,
        404
    );
    Ok(())
}

#[tokio::test]
async fn message_page_says_if_id_is_unknown_or_payload_withheld() -> Result<()> {
    let instance = Instance::with_tokens().await?;
    let queue = instance.queue("orders").await?;
    queue.push("secret text").id("2").due(HOUR).await?;
    let bearer = instance.bearer("viewer");
    let headers = ["Accept: text/html", bearer.as_str()];
    let shown = instance.ask(&format!("GET {AT}/2"), &headers, "").await?;
    assert_eq!(shown.status, 200, "{}", shown.body);
    assert!(shown.body.contains("Your role may not read payloads"));
    assert!(!shown.body.contains("secret") && !shown.body.contains("name=\"action\""));
    for action in [
        "cancel",
        "run_now",
        "reschedule&when=1h",
        "requeue",
        "remove",
    ] {
        let own = format!("{AT}/2");
        let answer = submit(&instance, Some("viewer"), &own, &format!("action={action}")).await?;
        assert_eq!(answer.status, 403, "{action}: {}", answer.body);
    }
    assert!(queue.get("2").await?.is_some());
    let unknown = instance
        .ask(&format!("GET {AT}/none"), &headers, "")
        .await?;
    assert_eq!(unknown.status, 404);
    assert!(unknown.body.contains("remembers none"), "{}", unknown.body);
    let no_queue = instance
        .ask("GET /queues/none/messages/1", &headers, "")
        .await?;
    assert_eq!(no_queue.status, 404);
    let foreigner = instance.bearer("foreigner");
    let headers = ["Accept: text/html", foreigner.as_str()];
    let foreign = instance.ask(&format!("GET {AT}/2"), &headers, "").await?;
    assert_eq!(foreign.status, 403, "{}", foreign.body);
    Ok(())
}
