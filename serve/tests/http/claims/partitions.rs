//! Concurrent claims with one `claim_id`, of queues with several partitions.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use anyhow::Result;
use dueq::{Message, Queue};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::{JSON, deliveries, until, waiting};
use crate::instance::{Answer, Instance, request, to_end};

/// The number of races between claims.
const ROUNDS: usize = 5;

/// A new queue with three partitions, and a claim of it that waits.
async fn new_queue(instance: &Instance, round: usize) -> Result<(Queue, String, String)> {
    let name = format!("orders-{round}");
    let queue = instance.client.queue(&name)?;
    queue.partition_into(3).await?;
    let claim = json!({ "max": 2, "wait_ms": 50_000, "lease_ms": 600_000, "claim_id": "a" });
    let line = format!("POST /v1/queues/{name}/claims");
    Ok((queue, line, claim.to_string()))
}

/// Pushes messages so that each partition has some.
async fn push(queue: &Queue) -> Result<()> {
    let messages = (0..12).map(|id| Message::new("x").id(id.to_string()));
    for receipt in queue.push_many(messages).await {
        receipt?;
    }
    Ok(())
}

async fn ask(at: SocketAddr, line: &str, bearer: &str, body: &str) -> Result<Answer> {
    let mut stream = TcpStream::connect(at).await?;
    let request = request(at, line, &[JSON, bearer], body);
    stream.write_all(request.as_bytes()).await?;
    Answer::parse(&to_end(&mut stream).await?)
}

fn ids(answer: &Answer) -> Result<BTreeSet<String>> {
    let ids = deliveries(answer)?;
    Ok(ids.iter().map(|one| one["id"].to_string()).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_claims_of_an_instance_return_one_grant() -> Result<()> {
    let instance = Instance::with_tokens().await?;
    for round in 0..ROUNDS {
        let (queue, line, body) = new_queue(&instance, round).await?;
        let claims = async {
            let one = instance.ask_as("consumer", &line, &body);
            let other = instance.ask_as("consumer", &line, &body);
            tokio::join!(one, other)
        };
        let pushed = async {
            waiting(&instance, 2).await?;
            push(&queue).await
        };
        let ((one, other), pushed) = tokio::join!(claims, pushed);
        pushed?;
        let (one, other) = (one?, other?);
        assert_eq!(deliveries(&one)?, deliveries(&other)?);
        assert_ne!(one.json()?["repeated"], other.json()?["repeated"]);
        assert_eq!(queue.stats().await?.leased, ids(&one)?.len() as u64);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_of_two_instances_both_return_the_later_grant() -> Result<()> {
    let instance = Instance::with_tokens().await?;
    let bearer = instance.bearer("consumer");
    let beside = instance.address_beside().await?;
    for round in 0..ROUNDS {
        let (queue, line, body) = new_queue(&instance, round).await?;
        let claims = async {
            let one = ask(instance.address, &line, &bearer, &body);
            let other = ask(beside, &line, &bearer, &body);
            tokio::join!(one, other)
        };
        let pushed = async {
            until(&queue, "both nodes", |stats| stats.nodes == 2).await?;
            push(&queue).await
        };
        let ((one, other), pushed) = tokio::join!(claims, pushed);
        pushed?;
        let (one, other) = (ids(&one?)?, ids(&other?)?);
        let again = ask(beside, &line, &bearer, &body).await?;
        assert_eq!(again.json()?["repeated"], Value::Bool(true));
        let all = ids(&again)?;
        assert!(one == all || other == all, "{one:?} {other:?} {all:?}");
        assert!(one.is_subset(&all) && other.is_subset(&all));
        assert_eq!(queue.stats().await?.leased, all.len() as u64);
    }
    Ok(())
}
