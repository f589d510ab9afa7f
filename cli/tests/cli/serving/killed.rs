//! An operation whose `dueq serve` is killed: a repeated call completes it.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use dueq::{Client, Message, MessageState, Queue};
use dueq_testkit::Server;
use serde_json::{Value, json};

use crate::serving::serve::Serve;

/// Far longer than any step takes.
const LIMIT: Duration = Duration::from_secs(600);
const AT: &str = "/v1/queues/orders/operations";
const DEAD: usize = 2_000;

/// Pushes this number of messages, and buries them.
async fn bury(queue: &Queue, prefix: &str, count: usize) -> Result<()> {
    let message = |number| Message::new("x").id(format!("{prefix}{number}"));
    for receipt in queue.push_many((0..count).map(message)).await {
        receipt?;
    }
    let mut buried = 0;
    while buried < count {
        let mut calls = tokio::task::JoinSet::new();
        for delivery in queue.claim(1_000, LIMIT).await? {
            calls.spawn(async move { delivery.bury("no").await.map(drop) });
        }
        for ended in calls.join_all().await {
            ended?;
            buried += 1;
        }
    }
    Ok(())
}

impl Serve {
    /// The JSON of the response to a request.
    fn json(&self, line: &str, body: &Value) -> Result<Value> {
        let body = body.to_string();
        let head = format!(
            "Content-Type: application/json\r\nContent-Length: {}\r\n",
            body.len()
        );
        let response = self.ask_with(line, &head, &body)?;
        let (_, body) = response.split_once("\r\n\r\n").context("a body")?;
        Ok(serde_json::from_str(body)?)
    }

    /// Reads the operation repeatedly until it is as expected.
    fn until(&self, begun: &Value, expected: impl Fn(&Value) -> bool) -> Result<Value> {
        let line = format!("GET {}", begun["href"].as_str().context("an address")?);
        let end = Instant::now() + LIMIT;
        loop {
            let shown = self.json(&line, &json!({}))?;
            if expected(&shown) {
                return Ok(shown);
            }
            ensure!(Instant::now() < end, "it stays {shown}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn requeue_of_a_killed_server_is_continued() -> Result<()> {
    let server = Server::start(&[])?;
    let runtime = tokio::runtime::Runtime::new()?;
    let queue = runtime.block_on(async {
        let queue = Client::connect(&server.url()).await?.queue("orders")?;
        bury(&queue, "old-", DEAD).await?;
        anyhow::Ok(queue)
    })?;
    let log = server.folder().join("audit.ndjson");
    let args = ["--audit-log", log.to_str().context("a path")?];
    let serve = Serve::start(&server, &args)?;
    let begun = serve.json(
        &format!("POST {AT}"),
        &json!({ "kind": "requeue", "pace": 500 }),
    )?;
    let before_ms = begun["before_ms"].as_u64().context("a time")?;
    let seen = serve.until(&begun, |shown| shown["done"].as_u64() > Some(100))?;
    let (code, _) = serve.end("-KILL")?;
    assert_eq!(code, None, "it was killed");
    // The audit log has the begin of the operation with its time, but no end.
    let lines = fs::read_to_string(&log)?;
    let lines: Vec<Value> = lines
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()?;
    let of_it: Vec<_> = lines
        .iter()
        .filter(|line| line["action"] == begun["id"])
        .collect();
    let [start] = of_it[..] else {
        panic!("{lines:?}");
    };
    assert_eq!(start["operation"]["before_ms"], json!(before_ms));
    let first = runtime.block_on(queue.stats())?.requeued;
    assert!(
        seen["done"].as_u64() <= Some(first) && first < DEAD as u64,
        "{first} {seen}"
    );
    // Requeued messages die again, and further messages die.
    runtime.block_on(async {
        while queue.dues(&[]).await?.now_ms <= before_ms {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        bury(&queue, "new-", 5).await?;
        while queue.stats().await?.dead < DEAD as u64 + 5 {
            for delivery in queue.claim(1_000, LIMIT).await? {
                let _ = delivery.bury("again").await?;
            }
        }
        anyhow::Ok(())
    })?;
    let serve = Serve::start(&server, &args)?;
    let body = json!({ "kind": "requeue", "before_ms": before_ms, "pace": 100_000 });
    let begun = serve.json(&format!("POST {AT}"), &body)?;
    let end = serve.until(&begun, |shown| shown["state"] != "running")?;
    assert_eq!(end["done"], json!(DEAD as u64 - first), "{end}");
    let stats = runtime.block_on(queue.stats())?;
    assert_eq!(stats.requeued, DEAD as u64, "each once");
    assert_eq!(stats.dead, first + 5, "what died later is untouched");
    let oldest = runtime
        .block_on(queue.list(MessageState::Dead, None, 1))?
        .messages;
    assert!(oldest[0].time_ms > before_ms);
    Ok(())
}
