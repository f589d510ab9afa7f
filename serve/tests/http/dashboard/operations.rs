//! `/operations`: operations on whole queues.

use anyhow::{Context, Result};
use serde_json::json;

use crate::dashboard::look::{look, look_as, look_until, rows, submit};
use crate::instance::{Instance, JSON};

/// Begins an audit by the form on the server page, and returns the address of the operation's page.
async fn audit(instance: &Instance, queue: &str) -> Result<String> {
    let body = format!("action=audit&queue={queue}");
    let answer = submit(instance, None, "/server", &body).await?;
    assert_eq!(answer.status, 303, "{}", answer.body);
    let location = answer.header("location").context("a location")?;
    Ok(location.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn form_begins_an_audit_that_the_list_shows() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.queue("orders").await?;
    let empty = look(&instance, "/operations").await?.body;
    assert!(empty.contains("No operation has run"), "{empty}");
    let address = audit(&instance, "orders").await?;
    assert!(address.starts_with("/operations/orders/"), "{address}");
    let page = look(&instance, &address).await?.body;
    assert!(page.contains("Begun by"), "{page}");
    let done = |page: &str| page.contains("Nothing is wrong.");
    let page = look_until(&instance, &address, done).await?;
    assert!(page.contains("<progress"), "{page}");
    let id = address.rsplit('/').next().context("an id")?;
    let line = format!("curl -sS $DUEQ_SERVE/v1/queues/orders/operations/{id}");
    assert!(page.contains(&line), "{page}");
    assert!(!page.contains("Stop after"), "{page}");
    let list = look(&instance, "/operations").await?.body;
    assert!(rows(&list)[0].starts_with("Audit orders done"), "{list}");
    // The queue is damaged: the page offers a repair, which mends it.
    let keys = queue.keys_of("1").await?;
    instance.redis.command(&["HDEL", &keys[4], "1"])?;
    let address = audit(&instance, "orders").await?;
    let found = |page: &str| page.contains("Repair the queue");
    let page = look_until(&instance, &address, found).await?;
    assert!(page.contains("1 found, 0 repaired"), "{page}");
    let answer = submit(&instance, None, &address, "action=repair").await?;
    let repair = answer.header("location").context("a location")?;
    let repaired = |page: &str| page.contains("1 found, 1 repaired");
    look_until(&instance, repair, repaired).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn form_stops_an_operation_also_when_sent_twice() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.client.queue("orders")?;
    for number in 0..50 {
        queue.push("x").id(format!("{number}")).await?;
    }
    for delivery in queue.claim(50, crate::dashboard::look::LIMIT).await? {
        let _ = delivery.bury("no").await?;
    }
    let body = json!({ "kind": "requeue", "pace": 1 }).to_string();
    let begun = instance
        .ask(
            "POST /v1/queues/orders/operations",
            &["Content-Type: application/json"],
            &body,
        )
        .await?
        .json()?;
    let id = begun["id"].as_str().context("an id")?;
    let address = format!("/operations/orders/{id}");
    let page = look(&instance, &address).await?.body;
    assert!(page.contains("Requeue of dead messages"), "{page}");
    assert!(page.contains("Stop after this step"), "{page}");
    let list = look(&instance, "/operations").await?.body;
    assert!(list.contains("<h2>Running</h2>"), "{list}");
    for _ in 0..2 {
        let answer = submit(&instance, None, &address, "action=stop").await?;
        assert_eq!(
            (answer.status, answer.header("location")),
            (303, Some(&*format!("{address}?did=stopping"))),
            "{}",
            answer.body
        );
    }
    let stopped = |page: &str| page.contains("stopped it");
    let page = look_until(&instance, &address, stopped).await?;
    assert!(!page.contains("Stop after"), "{page}");
    let left = queue.stats().await?.dead;
    assert!(left > 0);
    assert!(
        page.contains(&format!("{left} left as they were")),
        "{page}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn operation_forms_are_refused_without_the_right() -> Result<()> {
    let instance = Instance::with_tokens().await?;
    instance.queue("orders").await?;
    let own = instance.queue("other-1").await?;
    let as_operator = |body: &'static str| submit(&instance, Some("operator"), "/server", body);
    let begun = as_operator("action=audit&queue=orders").await?;
    let address = begun.header("location").context("a location")?;
    let address = address.split('?').next().context("a path")?;
    for (name, code) in [("viewer", "forbidden"), ("foreigner", "foreign_queue")] {
        let answer = submit(&instance, Some(name), address, "action=stop").await?;
        assert_eq!(answer.status, 403, "{name}: {}", answer.body);
        assert!(answer.body.contains(code), "{}", answer.body);
        let answer = submit(
            &instance,
            Some(name),
            "/server",
            "action=audit&queue=orders",
        );
        assert_eq!(answer.await?.status, 403, "{name}");
    }
    let page = look_as(&instance, "viewer", "/server").await?.body;
    assert!(!page.contains("value=\"audit\""), "{page}");
    let list = look_as(&instance, "foreigner", "/operations").await?.body;
    assert!(list.contains("No operation has run"), "{list}");
    as_operator("action=audit&queue=other-1").await?;
    let list = look_as(&instance, "foreigner", "/operations").await?.body;
    assert!(
        list.contains("other-1") && !list.contains("orders</a>"),
        "{list}"
    );
    for (address, body, status) in [
        (address, "action=other", 400),
        ("/operations/orders/none", "action=stop", 404),
        ("/server", "action=audit&queue=", 400),
        ("/server", "action=audit&queue=absent", 400),
        ("/server", "queue=orders", 400),
    ] {
        let answer = submit(&instance, Some("operator"), address, body).await?;
        assert_eq!(answer.status, status, "{address} {body}: {}", answer.body);
        assert!(
            answer.body.starts_with("<!DOCTYPE html>"),
            "{}",
            answer.body
        );
    }
    assert_eq!(own.stats().await?.scheduled, 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_show_that_the_number_of_partitions_changes() -> Result<()> {
    let instance = Instance::open().await?;
    instance.queue("orders").await?;
    let body = json!({ "kind": "repartition", "partitions": 3 }).to_string();
    let begin = "POST /v1/queues/orders/operations";
    let begun = instance.ask(begin, &[JSON], &body).await?.json()?;
    let id = begun["id"].as_str().context("an id")?;
    let moving = |page: &str| page.contains("<dd>moving</dd>");
    let page = look_until(&instance, &format!("/operations/orders/{id}"), moving).await?;
    assert!(page.contains("Change to 3 partitions"), "{page}");
    let changing = |page: &str| page.contains("changing</span> to 3 partitions, 0 messages");
    look_until(&instance, "/queues/orders", changing).await?;
    Ok(())
}
