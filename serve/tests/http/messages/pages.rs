//! Paged lists of messages.

use std::time::Duration;

use anyhow::{Context, Result};
use dueq::{Due, Message};
use serde_json::Value;

use crate::assert_refused;
use crate::instance::Instance;

const AT: &str = "/v1/queues/orders/messages";
const DUE_MS: u64 = 2_000_000_000_000;

/// A queue with messages `0` to `n`; each is due one second after the previous one.
async fn filled(instance: &Instance, n: u64) -> Result<dueq::Queue> {
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

/// The ids on all pages, beginning at this address.
async fn ids(instance: &Instance, address: &str) -> Result<Vec<String>> {
    let (mut ids, mut next) = (Vec::new(), Some(address.to_owned()));
    while let Some(address) = next {
        let answer = instance.call(&format!("GET {address}")).await?;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert!(!answer.body.contains("secret"), "{answer:?}");
        let page = answer.json()?;
        for message in page["messages"].as_array().context("messages")? {
            ids.push(message["id"].as_str().context("an id")?.to_owned());
        }
        next = page["next"].as_str().map(str::to_owned);
        let link = next.as_ref().map(|next| format!("<{next}>; rel=\"next\""));
        assert_eq!(answer.header("link"), link.as_deref(), "{answer:?}");
    }
    Ok(ids)
}

#[tokio::test(flavor = "multi_thread")]
async fn message_pages_list_every_message_once_in_order() -> Result<()> {
    let instance = Instance::open().await?;
    filled(&instance, 650).await?;
    let oldest: Vec<_> = (0..650).map(|k: u64| k.to_string()).collect();
    let newest: Vec<_> = oldest.iter().rev().cloned().collect();
    assert_eq!(
        ids(&instance, &format!("{AT}?state=scheduled")).await?,
        oldest
    );
    // A page of more than 250 messages needs several calls of Redis.
    for limit in [7, 250, 600, 1_000] {
        let address = format!("{AT}?state=scheduled&limit={limit}&order=newest");
        assert_eq!(ids(&instance, &address).await?, newest, "{limit}");
    }
    let first = instance
        .read(&format!("GET {AT}?state=scheduled&limit=600"))
        .await?;
    assert_eq!(first["messages"].as_array().map(Vec::len), Some(600));
    let from = DUE_MS + 640_000;
    let address = format!("{AT}?state=scheduled&limit=3&from={from}");
    assert_eq!(ids(&instance, &address).await?, oldest[640..]);
    assert!(
        ids(&instance, &format!("{AT}?state=dead"))
            .await?
            .is_empty()
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn message_list_has_times_errors_and_addresses() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.client.queue("orders")?;
    for id in ["a/b", "c"] {
        queue.push("secret").id(id).await?;
    }
    let lease = Duration::from_secs(60);
    for delivery in queue.claim(1, lease).await? {
        let _ = delivery.bury("first\nsecond").await?;
    }
    queue.claim(1, lease).await?;
    let first = async |state: &str| {
        let line = format!("GET {AT}?state={state}");
        let page = instance.read(&line).await?;
        Ok::<Value, anyhow::Error>(page["messages"][0].clone())
    };
    let (dead, leased) = (first("dead").await?, first("leased").await?);
    assert_eq!(dead["error"], "first", "{dead}");
    assert!(dead["died_ms"].is_u64() && leased["leased_until_ms"].is_u64());
    for message in [&dead, &leased] {
        let address = message["href"].as_str().context("an address")?;
        let answer = instance.call(&format!("GET {address}")).await?;
        assert_eq!(answer.json()?["id"], message["id"], "{answer:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn cursor_of_another_list_or_a_forged_one_is_refused() -> Result<()> {
    let instance = Instance::open().await?;
    filled(&instance, 3).await?;
    instance.queue("mail").await?;
    let line = format!("GET {AT}?state=scheduled&limit=1");
    let page = instance.read(&line).await?;
    let next = page["next"].as_str().context("an address")?;
    let foreign = [
        next.replace("state=scheduled", "state=dead"),
        next.replace("order=oldest", "order=newest"),
        next.replace("/orders/", "/mail/"),
        format!("{next}="),
        format!("{AT}?state=scheduled&cursor="),
        format!("{AT}?state=scheduled&cursor=%00"),
        // The cursor of a queue with partitions: 1/orders/scheduled/oldest/7/
        format!("{AT}?state=scheduled&cursor=MS9vcmRlcnMvc2NoZWR1bGVkL29sZGVzdC83Lw"),
    ];
    for address in foreign {
        let answer = instance.call(&format!("GET {address}")).await?;
        assert_refused!(answer, 400, "invalid_cursor", "{address}");
    }
    for query in [
        "",
        "?state=all",
        "?state=dead&order=up",
        "?state=dead&limit=1.5",
        "?state=dead&state=dead",
        "?state=dead&page=2",
        "?state=dead&limit=0",
        "?state=dead&limit=1001",
        "?state=dead&from=soon",
        "?state=dead&from=NaN",
        "?state=dead&from=1&cursor=MQ",
        "?state=dead&before=soon",
        "?state=dead&before=",
    ] {
        let answer = instance.call(&format!("GET {AT}{query}")).await?;
        assert_refused!(answer, 400, "invalid_input", "{query}");
    }
    let absent = "GET /v1/queues/none/messages?state=dead";
    assert_refused!(instance.call(absent).await?, 404, "no_such_queue");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn parameter_before_bounds_the_list_in_both_orders() -> Result<()> {
    let instance = Instance::open().await?;
    filled(&instance, 20).await?;
    let at = |k: u64| DUE_MS + k * 1_000;
    let names = |range: std::ops::Range<u64>| range.map(|k| k.to_string()).collect::<Vec<_>>();
    for limit in [1, 3, 100] {
        let of = format!("{AT}?state=scheduled&limit={limit}");
        let range = format!("{of}&from={}&before={}", at(5), at(9));
        assert_eq!(ids(&instance, &range).await?, names(5..9), "{limit}");
        let to_the_next = format!("{of}&before={}", at(2) + 1);
        assert_eq!(ids(&instance, &to_the_next).await?, names(0..3));
        let newest = format!("{of}&order=newest&before={}", at(3));
        let mut expected = names(0..3);
        expected.reverse();
        assert_eq!(ids(&instance, &newest).await?, expected);
        let newest = format!("{of}&order=newest&from={}&before={}", at(9), at(3));
        assert_eq!(ids(&instance, &newest).await?, expected);
        assert!(
            ids(&instance, &format!("{of}&before=1970-01-01T00:00:00Z"))
                .await?
                .is_empty()
        );
    }
    Ok(())
}

/// The ready list is in the order of promotion, which may differ from that of the due times.
#[tokio::test(flavor = "multi_thread")]
async fn parameter_before_finds_ready_messages_promoted_late() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.queue("orders").await?;
    // A claim makes the server attend the queue, and so promote due messages.
    let json = ["Content-Type: application/json"];
    let claim = instance.ask("POST /v1/queues/orders/claims", &json, "{}");
    assert_eq!(claim.await?.status, 204);
    for (ready, id, due_ms) in [(1, "late", 2_000_000), (2, "early", 1_500_000)] {
        let message = Message::new("secret").id(id).due(Due::at_ms(due_ms));
        assert!(queue.push_message(message).await?.is_created());
        while queue.stats().await?.ready < ready {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    let address = format!("{AT}?state=ready&limit=1");
    assert_eq!(ids(&instance, &address).await?, ["late", "early"]);
    let before = format!("{address}&before=1970-01-01T00:26:40Z");
    assert_eq!(ids(&instance, &before).await?, ["early"]);
    Ok(())
}
