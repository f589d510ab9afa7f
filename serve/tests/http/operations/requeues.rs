//! Requeues: messages that die meanwhile stay dead, and a repeated call requeues the rest.

use anyhow::Result;
use dueq::inspect::MessageCursor;
use dueq::{MessageState, Queue};
use serde_json::json;

use super::{AT, begin, begun, bury, dead, depths, end_line, ended, push, requeue, run, until};
use crate::instance::Instance;
use crate::{assert_has, assert_refused};

/// All dead messages: each with its id and the time of its death.
async fn all_dead(queue: &Queue) -> Result<Vec<(String, u64)>> {
    let (mut all, mut cursor) = (Vec::new(), None::<MessageCursor>);
    loop {
        let page = queue
            .list(MessageState::Dead, cursor.as_ref(), 1_000)
            .await?;
        let dead = page.messages.into_iter();
        all.extend(dead.map(|dead| (String::from_utf8_lossy(&dead.id).into_owned(), dead.time_ms)));
        cursor = page.next;
        if cursor.is_none() {
            return Ok(all);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requeue_leaves_messages_that_die_meanwhile() -> Result<()> {
    let (instance, size) = (Instance::open().await?, super::size());
    let (queue, before_ms) = dead(&instance, size).await?;
    // A message dies before the operation begins, but after `before_ms`.
    push(&queue, "between-", 1).await?;
    bury(&queue, 1).await?;
    let between_ms = queue.get("between-0").await?.expect("dead").time_ms;
    // A worker whose handler always fails: requeued messages die again while the operation runs.
    let other = instance.client.queue("orders")?;
    let stop = tokio_util::sync::CancellationToken::new();
    let stopped = stop.clone().cancelled_owned();
    let dying = tokio::spawn(async move {
        let handler = async |_: Vec<u8>, delivery: dueq::Delivery| {
            let _ = delivery.bury("again").await;
            anyhow::Ok(())
        };
        other.worker().concurrency(256).run(handler, stopped).await
    });
    let (address, shown) = begun(&instance, requeue(before_ms, 100_000)).await?;
    assert_eq!(
        (&shown["kind"], &shown["before_ms"], &shown["messages"]),
        (&json!("requeue"), &json!(before_ms), &json!("dead"))
    );
    push(&queue, "new-", size / 10).await?;
    let end = until(&instance, &address, |shown| shown["state"] != "running").await?;
    assert_has!(end, { "state": "done", "done": size, "of": size, "unknown": 0 });
    let all = size + size / 10 + 1;
    let until_all_died = std::time::Instant::now() + super::LIMIT;
    while queue.stats().await?.dead < all as u64 {
        anyhow::ensure!(
            std::time::Instant::now() < until_all_died,
            "{:?}",
            queue.stats().await?
        );
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    stop.cancel();
    dying.await??;
    // Each old message was requeued once, and no other message was.
    assert_eq!(queue.stats().await?.requeued, size as u64);
    let died = all_dead(&queue).await?;
    assert_eq!(died.len(), all);
    let earlier: Vec<_> = died.iter().filter(|(_, ms)| *ms <= before_ms).collect();
    assert!(earlier.is_empty(), "{} were left", earlier.len());
    let between = died.iter().find(|(id, _)| id == "between-0");
    assert_eq!(between.map(|(_, ms)| *ms), Some(between_ms));
    // A repeated call finds no messages to requeue.
    let again = run(&instance, requeue(before_ms, 100_000)).await?;
    assert_has!(again, { "state": "done", "done": 0 });
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_call_continues_a_stopped_requeue() -> Result<()> {
    let instance = Instance::open().await?;
    let (queue, _) = dead(&instance, 60).await?;
    let body = json!({ "kind": "requeue", "pace": 20 });
    let (address, shown) = begun(&instance, body).await?;
    let before_ms = shown["before_ms"].as_u64().expect("a time");
    until(&instance, &address, |shown| {
        shown["done"].as_u64() > Some(2)
    })
    .await?;
    // The continuation, too, leaves messages that die from now on.
    queue.push("x").id("new").await?;
    let stopped = instance.call(&format!("POST {address}/stop")).await?;
    assert_eq!(stopped.status, 202, "{stopped:?}");
    let first = ended(&instance, &address).await?;
    let done = first["done"].as_u64().expect("a count");
    assert_has!(first, { "state": "stopped", "reason": "\"loopback\" stopped it" });
    assert!((3..60).contains(&done), "{first}");
    assert_eq!(queue.stats().await?.requeued, done);
    bury(&queue, 1 + usize::try_from(done)?).await?;
    let second = run(&instance, requeue(before_ms, 100_000)).await?;
    assert_eq!(second["done"], json!(60 - done), "{second}");
    let stats = queue.stats().await?;
    assert_eq!((stats.requeued, stats.dead), (60, done + 1));
    // Stopping an ended operation changes nothing.
    let again = instance.call(&format!("POST {address}/stop")).await?;
    assert_eq!((again.status, again.json()?), (202, first));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn queue_runs_one_operation_of_a_kind_at_a_time() -> Result<()> {
    let instance = Instance::open().await?;
    let (queue, before_ms) = dead(&instance, 60).await?;
    let slow = requeue(before_ms, 1);
    let (address, shown) = begun(&instance, slow.clone()).await?;
    // The repeated call joins the running operation: its first answer may have been lost.
    let same = begin(&instance, slow).await?;
    assert_eq!(same.status, 200, "{same:?}");
    assert_eq!(same.json()?["id"], shown["id"]);
    let other = begin(&instance, requeue(before_ms, 2)).await?;
    assert_refused!(&other, 409, "operation_running");
    assert_eq!(other.json()?["operation"], shown["id"], "{other:?}");
    // A request without `before_ms` means the running operation, too: its lost answer contained the
    // time.
    let same = begin(&instance, json!({ "kind": "requeue", "pace": 1 })).await?;
    assert_eq!((same.status, &same.json()?["id"]), (200, &shown["id"]));
    // Operations of other kinds or on other queues can run at the same time.
    let counted = run(&instance, json!({ "kind": "audit" })).await?;
    assert_eq!(counted["state"], "done", "{counted}");
    instance.queue("mail").await?;
    let line = "POST /v1/queues/mail/operations";
    let answer = instance
        .ask(line, &[super::JSON], "{\"kind\": \"requeue\"}")
        .await?;
    assert_eq!(answer.status, 202, "{answer:?}");
    instance.call(&format!("POST {address}/stop")).await?;
    ended(&instance, &address).await?;
    let next = run(&instance, requeue(before_ms, 100_000)).await?;
    assert_eq!(next["state"], "done", "{next}");
    assert_eq!(depths(&queue).await?, [60, 0, 0, 0]);
    let listed = instance.read(&format!("GET {AT}")).await?;
    let all = listed["operations"].as_array().expect("a list").iter();
    let kinds: Vec<_> = all
        .map(|one| one["kind"].as_str().expect("a kind"))
        .collect();
    assert_eq!(kinds, ["requeue", "audit", "requeue"], "the newest first");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn instance_runs_sixteen_operations_at_once() -> Result<()> {
    let instance = Instance::open().await?;
    for number in 0..17 {
        let queue = instance.client.queue(&format!("queue-{number}"))?;
        push(&queue, "old-", 600).await?;
        bury(&queue, 600).await?;
        let line = format!("POST /v1/queues/queue-{number}/operations");
        let body = "{\"kind\": \"requeue\", \"pace\": 1}";
        let answer = instance.ask(&line, &[super::JSON], body).await?;
        match number {
            16 => assert_refused!(&answer, 503, "busy"),
            _ => assert_eq!(answer.status, 202, "{answer:?}"),
        }
    }
    // A refused operation does not count, and an ended one no longer counts.
    let first = instance.call("GET /v1/queues/queue-0/operations").await?;
    let href = first.json()?["operations"][0]["href"].clone();
    let href = href.as_str().expect("an address");
    instance.call(&format!("POST {href}/stop")).await?;
    ended(&instance, href).await?;
    let line = "POST /v1/queues/queue-16/operations";
    let answer = instance
        .ask(line, &[super::JSON], "{\"kind\": \"requeue\"}")
        .await?;
    assert_eq!(answer.status, 202, "{answer:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn each_message_is_requeued_once_by_two_instances() -> Result<()> {
    let instance = Instance::open().await?;
    let (queue, before_ms) = dead(&instance, 2_000).await?;
    let other = instance.beside().await?;
    let body = requeue(before_ms, 100_000);
    let (one, two) = tokio::join!(run(&instance, body.clone()), run(&other, body));
    let (one, two) = (one?, two?);
    let done = |shown: &serde_json::Value| shown["done"].as_u64().expect("a count");
    assert_eq!(
        (&one["state"], &two["state"]),
        (&json!("done"), &json!("done"))
    );
    assert_eq!(done(&one) + done(&two), 2_000, "{one} {two}");
    let stats = queue.stats().await?;
    assert_eq!((stats.requeued, stats.dead), (2_000, 0));
    // Each instance knows only its own operations.
    let id = one["id"].as_str().expect("an id");
    let foreign = other.call(&format!("GET {AT}/{id}")).await?;
    assert_refused!(foreign, 404, "no_such_operation");
    assert_eq!(
        end_line(&instance, &one).await?["operation"]["done"],
        one["done"]
    );
    Ok(())
}
