//! Repeated claims with a `claim_id`.

use anyhow::Result;
use dueq::Message;
use serde_json::json;

use super::{CLAIM, JSON, LIMIT, deliveries, one};
use crate::instance::{Instance, request};

const REPEATABLE: &str =
    r#"{"max": 5, "wait_ms": 50000, "lease_ms": 600000, "claim_id": "job-1/7"}"#;
/// The body of a claim with a `claim_id` that does not wait.
const AT_ONCE: &str = r#"{"claim_id": "job-1/7"}"#;

#[tokio::test(flavor = "multi_thread")]
async fn repeated_claim_returns_its_first_grant() -> Result<()> {
    let instance = Instance::with_tokens().await?;
    let queue = instance.client.queue("orders")?;
    queue.push_message(Message::new("x").id("1")).await?;
    let first = instance.ask_as("consumer", CLAIM, REPEATABLE).await?;
    queue.push_message(Message::new("x").id("2")).await?;
    let again = instance.ask_as("consumer", CLAIM, AT_ONCE).await?;
    assert_eq!(again.json()?["repeated"], true);
    assert_eq!(first.json()?["repeated"], false);
    assert_eq!(one(&again)?, one(&first)?);
    assert_eq!(queue.stats().await?.claimed, 1);
    // Another instance with the same signing key returns it too.
    let bearer = instance.bearer("consumer");
    let other = instance.address_beside().await?;
    let request = request(other, CLAIM, &[JSON, &bearer], REPEATABLE);
    let mut stream = tokio::net::TcpStream::connect(other).await?;
    tokio::io::AsyncWriteExt::write_all(&mut stream, request.as_bytes()).await?;
    let text = crate::instance::to_end(&mut stream).await?;
    let there = crate::instance::Answer::parse(&text)?;
    assert_eq!(there.json()?, again.json()?);
    // After all its deliveries are settled, a claim is over: the same call takes other messages.
    let ack = json!({ "settlements": [{ "handle": one(&first)?["handle"], "action": "ack" }] });
    let line = "POST /v1/queues/orders/settlements";
    let acked = instance.ask_as("consumer", line, &ack.to_string()).await?;
    assert_eq!(acked.json()?["done"], 1, "{acked:?}");
    let next = instance.ask_as("consumer", CLAIM, REPEATABLE).await?;
    assert_eq!(one(&next)?["id"], "2");
    assert_eq!(next.json()?["repeated"], false);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_id_belongs_to_one_caller_and_one_queue() -> Result<()> {
    let instance = Instance::with_tokens().await?;
    for name in ["orders", "other-1"] {
        instance.client.queue(name)?.push(name).await?;
    }
    let own = instance.ask_as("consumer", CLAIM, REPEATABLE).await?;
    assert_eq!(one(&own)?["payload"], "orders");
    let foreign = instance.ask_as("operator", CLAIM, AT_ONCE).await?;
    assert_eq!(foreign.status, 204, "{foreign:?}");
    let line = "POST /v1/queues/other-1/claims";
    let other = instance.ask_as("consumer", line, REPEATABLE).await?;
    assert_eq!(one(&other)?["payload"], "other-1");
    assert_eq!(other.json()?["repeated"], false);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_claim_omits_extended_deliveries() -> Result<()> {
    let instance = Instance::with_tokens().await?;
    let queue = instance.client.queue("orders")?;
    let messages = ["1", "2", "3"].map(|id| Message::new("x").id(id).due(LIMIT));
    for receipt in queue.push_many(messages).await {
        receipt?;
    }
    for id in ["1", "2"] {
        let _ = queue.run_now(id).await?;
    }
    let first = instance.ask_as("consumer", CLAIM, REPEATABLE).await?;
    let all = deliveries(&first)?;
    assert_eq!(all.len(), 2, "{first:?}");
    let call = async |list: &str, item: serde_json::Value| {
        let line = format!("POST /v1/queues/orders/{list}");
        let body = json!({ (list): [item] }).to_string();
        let answer = instance.ask_as("consumer", &line, &body).await?;
        assert_eq!(answer.json()?["done"], 1, "{answer:?}");
        anyhow::Ok(answer.json()?["results"][0].clone())
    };
    // An extension that does not move the deadline also gives the delivery its own lease.
    let kept = call(
        "extensions",
        json!({ "handle": all[0]["handle"], "lease_ms": 1 }),
    )
    .await?;
    assert_eq!(kept["leased_until_ms"], all[0]["leased_until_ms"]);
    let again = instance.ask_as("consumer", CLAIM, AT_ONCE).await?;
    assert_eq!(one(&again)?, all[1]);
    assert_eq!(again.json()?["repeated"], true);
    // After all its deliveries are extended, a claim is over: the same call takes other messages.
    call(
        "extensions",
        json!({ "handle": all[1]["handle"], "lease_ms": 700_000 }),
    )
    .await?;
    let empty = instance.ask_as("consumer", CLAIM, AT_ONCE).await?;
    assert_eq!(empty.status, 204, "{empty:?}");
    let _ = queue.run_now("3").await?;
    let next = instance.ask_as("consumer", CLAIM, REPEATABLE).await?;
    assert_eq!(one(&next)?["id"], "3");
    assert_eq!(next.json()?["repeated"], false);
    // The handles of extended deliveries stay valid.
    for delivery in &all {
        let ack = json!({ "handle": delivery["handle"], "action": "ack" });
        assert_eq!(call("settlements", ack).await?["outcome"], "done");
    }
    Ok(())
}
