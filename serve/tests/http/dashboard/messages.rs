//! `/queues/Q/messages`: tabs, time bounds, pages, and actions on selected messages.

use std::time::Duration;

use anyhow::{Context, Result};
use dueq::{Due, Message, Queue};
use serde_json::Value;

use crate::dashboard::look::{claimed, led, look, look_until, submit};
use crate::instance::Instance;

const HOUR: Duration = Duration::from_secs(3_600);
const AT: &str = "/queues/orders/messages";
const DUE_MS: u64 = 2_000_000_000_000;

/// A queue with messages `0` to `n`; each is due one second after the previous one.
async fn filled(instance: &Instance, n: u64) -> Result<Queue> {
    let queue = instance.client.queue("orders")?;
    let message = |k: u64| {
        let due = Due::at_ms(DUE_MS + k * 1_000);
        Message::new("secret").id(k.to_string()).due(due)
    };
    for receipt in queue.push_many((0..n).map(message)).await {
        assert!(receipt?.is_created());
    }
    Ok(queue)
}

/// The ids on a page, in their order.
fn ids(body: &str) -> Vec<String> {
    let links = body.split("/queues/orders/messages/").skip(1);
    let ids = links.filter_map(|link| link.split_once('"').map(|(id, _)| id.to_owned()));
    ids.collect()
}

/// The ids on this page and on all following pages.
async fn all(instance: &Instance, address: &str) -> Result<Vec<String>> {
    let (mut found, mut next) = (Vec::new(), Some(address.to_owned()));
    while let Some(address) = next {
        let shown = look(instance, &address).await?;
        assert_eq!(shown.status, 200, "{}", shown.body);
        found.extend(ids(&shown.body));
        let link = shown
            .body
            .split_once("\" rel=\"next\"")
            .map(|(before, _)| before);
        next = link.and_then(|before| Some(before.rsplit_once('"')?.1.replace("&#38;", "&")));
    }
    Ok(found)
}

#[tokio::test]
async fn pages_list_every_message_once_in_both_orders() -> Result<()> {
    let instance = Instance::open().await?;
    filled(&instance, 250).await?;
    let mut expected: Vec<_> = (0..250).map(|k: u64| k.to_string()).collect();
    assert_eq!(all(&instance, AT).await?, expected);
    expected.reverse();
    assert_eq!(
        all(&instance, &format!("{AT}?state=scheduled&order=newest")).await?,
        expected
    );
    let first = look(&instance, AT).await?;
    for part in [
        "state scheduled",
        "250",
        "Cancel the selected",
        "2033-05-18 03:33:20 UTC",
    ] {
        assert!(first.body.contains(part), "{part}: {}", first.body);
    }
    assert!(!first.body.contains("secret") && !first.body.contains("Requeue the selected"));
    Ok(())
}

#[tokio::test]
async fn bar_links_to_exactly_its_messages() -> Result<()> {
    let instance = Instance::open().await?;
    filled(&instance, 250).await?;
    let (from, before) = (DUE_MS + 10_000, DUE_MS + 240_000);
    let mut expected: Vec<_> = (10..240).map(|k: u64| k.to_string()).collect();
    let bounds = format!("from={from}&before={before}");
    assert_eq!(all(&instance, &format!("{AT}?{bounds}")).await?, expected);
    expected.reverse();
    assert_eq!(
        all(&instance, &format!("{AT}?order=newest&{bounds}")).await?,
        expected
    );
    let address = format!("/v1/queues/orders/dues?times={from},{before}");
    let dues = instance.read(&format!("GET {address}")).await?;
    assert_eq!(dues["slots"][1]["count"], expected.len(), "{dues}");
    // A time in the clock of the page's zone. With the newest message first, the list goes back
    // from there.
    let paris = format!("{AT}?tz=Europe/Paris&from=2033-05-18+05%3A35");
    assert_eq!(all(&instance, &paris).await?.len(), 150);
    let back = format!("{AT}?order=newest&from=2033-05-18T03:33:21Z");
    assert_eq!(all(&instance, &back).await?, ["1", "0"]);
    for query in [
        "state=all",
        "from=soon",
        "before=soon",
        "order=up",
        "cursor=x",
        "tz=Mars/Base",
    ] {
        let answer = look(&instance, &format!("{AT}?{query}")).await?;
        assert_eq!(answer.status, 400, "{query}");
    }
    let empty = look(&instance, &format!("{AT}?before=2001-01-01T00:00:00Z")).await?;
    assert!(
        empty
            .body
            .contains("No message is scheduled within these times")
    );
    Ok(())
}

#[tokio::test]
async fn operator_cancels_a_selection_by_an_operation() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = filled(&instance, 5).await?;
    queue.push("x").id("a/b").due(HOUR).await?;
    let form = "action=cancel&id=0&id=~YS9i&id=none&back=state%3Dscheduled";
    let answer = submit(&instance, None, AT, form).await?;
    let to = answer.header("location").context("an address")?;
    let id = to
        .strip_prefix("/operations/orders/")
        .context("an operation")?;
    loop {
        let line = format!("GET /v1/queues/orders/operations/{id}");
        let operation: Value = instance.read(&line).await?;
        if operation["state"] == "done" {
            assert_eq!(
                (&operation["done"], &operation["skipped"]["absent"]),
                (&2.into(), &1.into())
            );
            break;
        }
        assert_eq!(operation["state"], "running", "{operation}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(queue.stats().await?.scheduled, 4);
    // A form without a selection, with too large a one, and with a text that is not an id.
    let none = submit(&instance, None, AT, "action=cancel&back=order%3Dnewest").await?;
    led(&none, &format!("{AT}?order=newest&did=nothing_selected"));
    let elsewhere = submit(&instance, None, AT, "action=cancel&back=%0d%0ax").await?;
    led(&elsewhere, &format!("{AT}?did=nothing_selected"));
    let many = format!("action=cancel{}", "&id=1".repeat(101));
    for form in [
        many.as_str(),
        "action=drop&id=1",
        "action=cancel&id=~%3F",
        "id=1",
    ] {
        assert_eq!(
            submit(&instance, None, AT, form).await?.status,
            400,
            "{form}"
        );
    }
    assert_eq!(queue.stats().await?.scheduled, 4);
    Ok(())
}

#[tokio::test]
async fn producer_cancels_a_selection_by_single_calls() -> Result<()> {
    let instance = Instance::with_tokens().await?;
    let queue = filled(&instance, 2).await?;
    // A producer must not begin an operation, so the page makes one call for each message.
    let form = "action=cancel&id=0&id=%3Cb%3E&back=state%3Dscheduled";
    let answer = submit(&instance, Some("producer"), AT, form).await?;
    assert_eq!(answer.status, 200, "{}", answer.body);
    for part in [
        "Cancelled 1 of 2",
        "Not changed: 1",
        "no message",
        "state=scheduled",
    ] {
        assert!(answer.body.contains(part), "{part}: {}", answer.body);
    }
    assert!(!answer.body.contains("<b>"), "{}", answer.body);
    for id in ["dead", "ready"] {
        queue.push("x").id(id).await?;
    }
    for delivery in claimed(&queue, 2).await? {
        if delivery.id() == "dead" {
            let _ = delivery.bury("no").await?;
        }
    }
    let form = "action=requeue&id=dead&id=ready&id=1&back=state%3Ddead";
    let answer = submit(&instance, Some("operator"), AT, form).await?;
    for part in [
        "Requeued 1 of 3",
        "is leased, not dead",
        "is scheduled, not dead",
    ] {
        assert!(answer.body.contains(part), "{part}: {}", answer.body);
    }
    // The form is sent a second time.
    let answer = submit(&instance, Some("operator"), AT, form).await?;
    assert!(answer.body.contains("Requeued 0 of 3"), "{}", answer.body);
    for (token, form) in [
        ("viewer", "action=cancel&id=1"),
        ("viewer", "action=requeue&id=1"),
        ("producer", "action=requeue&id=1"),
        ("foreigner", "action=cancel&id=1"),
    ] {
        let answer = submit(&instance, Some(token), AT, form).await?;
        assert_eq!(answer.status, 403, "{token} {form}: {}", answer.body);
    }
    assert!(queue.get("1").await?.is_some());
    let bearer = instance.bearer("viewer");
    let shown = instance
        .ask(&format!("GET {AT}"), &["Accept: text/html", &bearer], "")
        .await?;
    assert!(!shown.body.contains("checkbox"), "{}", shown.body);
    Ok(())
}

#[tokio::test]
async fn messages_page_escapes_hostile_ids_and_errors() -> Result<()> {
    let mut instance = Instance::open().await?;
    let queue = instance.client.queue("<i>q")?;
    let hostile = "\"><script>alert(1)</script>\u{202e}{{7*7}}";
    for name in ["<i>q", "another"] {
        let queue = instance.client.queue(name)?;
        queue.push("x").id(hostile).await?;
    }
    for delivery in claimed(&queue, 1).await? {
        let _ = delivery.bury(hostile).await?;
    }
    let segment = dueq_input::id_path(b"<i>q");
    for address in [
        format!("/queues/{segment}/messages?state=dead"),
        format!(
            "/queues/{segment}/messages/{}",
            dueq_input::id_path(hostile.as_bytes())
        ),
        format!("/queues/{segment}/dead"),
        "/search?id=%22%3E%3Cscript%3Ealert%281%29%3C%2Fscript%3E%E2%80%AE%7B%7B7*7%7D%7D"
            .to_owned(),
    ] {
        let shown = look(&instance, &address).await?;
        assert_eq!(shown.status, 200, "{}", shown.body);
        assert!(
            !shown.body.contains("<script>alert") && !shown.body.contains("<i>q"),
            "{address}"
        );
        assert!(
            !shown.body.contains('\u{202e}'),
            "{address}: {}",
            shown.body
        );
        let has_text =
            shown.body.contains("script&#62;alert(1)") || shown.body.contains("script&gt;alert(1)");
        assert!(
            has_text && shown.body.contains("{{7*7}}"),
            "{address}: {}",
            shown.body
        );
    }
    let address = format!("/queues/{segment}/messages");
    assert_eq!(look(&instance, &address).await?.status, 200);
    instance.redis.kill()?;
    for address in [
        address,
        format!("/queues/{segment}/dead"),
        "/search?id=1".to_owned(),
    ] {
        let lost = look(&instance, &address).await?;
        assert!(
            matches!(lost.status, 503 | 504),
            "{address}: {}",
            lost.status
        );
        assert!(lost.body.starts_with("<!DOCTYPE html>"), "{}", lost.body);
    }
    Ok(())
}

#[tokio::test]
async fn list_filters_and_acts_on_all_that_match() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.client.queue("orders")?;
    for (id, error) in [
        ("a", "bank: Timeout <1>"),
        ("b", "refused"),
        ("c", "timeout"),
    ] {
        queue.push("secret <b>\nhidden-line").id(id).await?;
        for delivery in claimed(&queue, 1).await? {
            let _ = delivery.bury(error).await?;
        }
    }
    let shown = look(
        &instance,
        &format!("{AT}?state=dead&error_text=TIMEOUT&payload=true"),
    )
    .await?;
    assert_eq!(ids(&shown.body), ["a", "c"], "{}", shown.body);
    assert!(
        shown.body.contains("secret &#60;b&#62;</td>"),
        "{}",
        shown.body
    );
    assert!(shown.body.contains("Remove all that match") && !shown.body.contains("hidden-line"));
    let none = look(&instance, &format!("{AT}?state=dead&min_crashes=1")).await?;
    assert!(
        none.body.contains("No message that is dead matches"),
        "{}",
        none.body
    );
    let wrong = look(&instance, &format!("{AT}?state=dead&min_crashes=many")).await?;
    assert!(wrong.status == 400 && wrong.body.contains("mistake-min_crashes"));
    let form = "all=cancel&state=dead&error_text=TIMEOUT&limit=x&pace=100";
    let refused = submit(&instance, None, &format!("{AT}?state=dead"), form).await?;
    assert!(
        refused.status == 400 && refused.body.contains("mistake-limit"),
        "{refused:?}"
    );
    assert_eq!(queue.stats().await?.dead, 3);
    let form = "all=cancel&state=dead&error_text=TIMEOUT&limit=&pace=100";
    let begun = submit(&instance, None, AT, form).await?;
    let to = begun.header("location").context("an address")?.to_owned();
    let page = look_until(&instance, &to, |page| page.contains("2 of 2 cancelled")).await?;
    for part in [
        "Removal of dead messages",
        "“TIMEOUT” in the error",
        "/cancelled\" download",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert_eq!(all(&instance, &format!("{AT}?state=dead")).await?, ["b"]);
    Ok(())
}
