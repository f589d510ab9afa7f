//! Requeues of one group: dead messages with one error.

use std::collections::HashMap;

use anyhow::{Context, Result};
use dueq::{MessageState, Queue};
use serde_json::{Value, json};

use super::{LIMIT, begun, bury, bury_as, ended, lines_of, push, run, until};
use crate::assert_has;
use crate::instance::Instance;

/// The text of the script, which only the first call of it sends to Redis.
const REQUEUE: &str = include_str!("../../../../lua/dist/requeue.lua");
const ERRORS: [&str; 3] = ["timeout\nat line 3", "gone: <b>", ""];

/// A queue with this number of dead messages.
async fn dead(instance: &Instance, count: usize) -> Result<Queue> {
    let queue = instance.client.queue("orders")?;
    push(&queue, "old-", count).await?;
    bury_as(&queue, count, &ERRORS).await?;
    Ok(queue)
}

/// The number of dead messages with each error.
async fn errors(queue: &Queue) -> Result<HashMap<String, usize>> {
    let mut counts = HashMap::new();
    for message in queue.list(MessageState::Dead, None, 1_000).await?.messages {
        *counts.entry(message.error).or_default() += 1;
    }
    Ok(counts)
}

/// The number of due messages, and that of dead ones.
async fn due_and_dead(queue: &Queue) -> Result<[u64; 2]> {
    let stats = queue.stats().await?;
    Ok([stats.scheduled + stats.ready, stats.dead])
}

fn group(error: &str) -> Value {
    json!({ "kind": "requeue", "error": error, "crashed": false, "pace": 100_000 })
}

#[tokio::test(flavor = "multi_thread")]
async fn group_requeue_leaves_other_groups_dead() -> Result<()> {
    for partitions in [1, 3] {
        let instance = Instance::open().await?;
        if partitions > 1 {
            let queue = instance.client.queue("orders")?;
            queue.partition_into(partitions).await?;
        }
        let queue = dead(&instance, 750).await?;
        let dry = json!({ "kind": "requeue", "error": "timeout", "dry_run": true });
        let end = run(&instance, dry).await?;
        assert_has!(end, { "done": 250, "of": 250 });
        let end = run(&instance, group("timeout")).await?;
        assert_has!(end, { "state": "done", "done": 250, "of": 250, "unknown": 0 });
        assert_has!(end, { "error": "timeout", "crashed": false });
        let lines = lines_of(&instance, &end)?;
        assert_eq!(lines[0]["operation"]["error"], "timeout", "{lines:?}");
        assert_eq!(due_and_dead(&queue).await?, [250, 500]);
        let left = errors(&queue).await?;
        assert_eq!((left.len(), left.get(ERRORS[0])), (2, None), "{left:?}");
        // Messages without an error are a group, too. None of them crashed.
        for (body, done) in [
            (json!({ "kind": "requeue", "crashed": true }), 0),
            (group("none of them"), 0),
            (group(""), 250),
        ] {
            assert_eq!(run(&instance, body.clone()).await?["done"], done, "{body}");
        }
        assert_eq!(queue.stats().await?.requeued, 500);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn group_requeue_skips_messages_that_died_again() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = dead(&instance, 600).await?;
    let (other, stop) = (queue.clone(), tokio_util::sync::CancellationToken::new());
    let stopped = stop.clone().cancelled_owned();
    let dying = tokio::spawn(async move {
        let handler = async |_: Vec<u8>, delivery: dueq::Delivery| {
            let _ = delivery.bury(ERRORS[0]).await;
            anyhow::Ok(())
        };
        other.worker().concurrency(64).run(handler, stopped).await
    });
    let end = run(&instance, group("timeout")).await?;
    assert_has!(end, { "state": "done", "done": 200 });
    let until_all_died = std::time::Instant::now() + LIMIT;
    while queue.stats().await?.dead < 600 {
        anyhow::ensure!(std::time::Instant::now() < until_all_died, "not all died");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    stop.cancel();
    dying.await??;
    assert_eq!(queue.stats().await?.requeued, 200);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn canary_of_a_group_takes_messages_of_the_group_only() -> Result<()> {
    let instance = Instance::open().await?;
    // The first page has fewer messages of the group than the canary takes.
    let queue = instance.client.queue("orders")?;
    push(&queue, "first-", 150).await?;
    bury(&queue, 150).await?;
    dead(&instance, 300).await?;
    let mut body = group("gone: <b>");
    body["canary"] = json!(10);
    let (address, _) = begun(&instance, body).await?;
    until(&instance, &address, |shown| {
        shown["canary"]["waiting"] == 10
    })
    .await?;
    assert_eq!(due_and_dead(&queue).await?, [10, 440]);
    bury_as(&queue, 10, &ERRORS[1..2]).await?;
    let end = ended(&instance, &address).await?;
    assert_has!(end, { "state": "stopped", "done": 10 });
    assert_eq!(queue.stats().await?.requeued, 10);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn group_requeue_is_not_repeated_after_a_lost_reply() -> Result<()> {
    // The server repeats the read before a requeue, but not a requeue whose reply was lost.
    for is_unknown in [false, true] {
        let instance = Instance::open().await?;
        let queue = dead(&instance, 30).await?;
        let all = queue.list(MessageState::Dead, None, 1_000).await?.messages;
        let first = all.iter().find(|message| message.error == ERRORS[0]);
        let first = first.context("one of the group")?.id.to_vec();
        let request = if is_unknown { REQUEUE.into() } else { first };
        let proxy = dueq_testkit::Proxy::start(instance.redis.port())?;
        let other = Instance::before(&proxy.url()).await?;
        proxy.cut_reply_of(request);
        let mut body = group("timeout");
        body["pace"] = json!(20);
        let end = run(&other, body).await?;
        assert_eq!((&end["state"], proxy.cuts()), (&json!("done"), 1), "{end}");
        let count = |name: &str| end[name].as_u64().unwrap_or_default();
        let (done, unknown) = (count("done"), count("unknown"));
        assert_eq!(unknown > 0, is_unknown, "{end}");
        assert!((done..=done + unknown).contains(&10), "{end}");
        assert_eq!(queue.stats().await?.requeued, 10, "{end}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn limit_counts_a_requeue_whose_reply_was_lost() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = dead(&instance, 30).await?;
    let proxy = dueq_testkit::Proxy::start(instance.redis.port())?;
    let other = Instance::before(&proxy.url()).await?;
    proxy.cut_reply_of(REQUEUE);
    let mut body = group("timeout");
    body["limit"] = json!(1);
    let end = run(&other, body).await?;
    assert_has!(end, { "state": "done", "done": 0 });
    assert_eq!((proxy.cuts(), queue.stats().await?.requeued), (1, 1));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn requeue_from_a_time_leaves_earlier_deaths() -> Result<()> {
    for partitions in [1, 3] {
        let instance = Instance::open().await?;
        let queue = instance.client.queue("orders")?;
        if partitions > 1 {
            queue.partition_into(partitions).await?;
        }
        let mut began = Vec::new();
        for name in ["before-", "incident-", "after-"] {
            // A time before the next message dies: no message has died in this millisecond.
            let earlier = queue.dues(&[]).await?.now_ms;
            while queue.dues(&[]).await?.now_ms <= earlier {}
            began.push(queue.dues(&[]).await?.now_ms);
            push(&queue, name, 5).await?;
            bury_as(&queue, 5, &ERRORS).await?;
        }
        let (after_ms, before_ms) = (began[1], began[2] - 1);
        for (body, done) in [
            (json!({ "after_ms": after_ms }), 10),
            (json!({ "after_ms": after_ms, "before_ms": before_ms }), 5),
            (json!({ "after_ms": after_ms, "error": "timeout" }), 4),
            (json!({ "after_ms": before_ms + 60_000 }), 0),
        ] {
            let mut body = body;
            (body["kind"], body["dry_run"]) = ("requeue".into(), true.into());
            let end = run(&instance, body.clone()).await?;
            assert_eq!(
                (&end["done"], &end["of"]),
                (&json!(done), &json!(done)),
                "{body}: {end}"
            );
        }
        let body = json!({ "kind": "requeue", "after_ms": after_ms, "before_ms": before_ms });
        let end = run(&instance, body).await?;
        assert_has!(end, { "done": 5, "after_ms": after_ms });
        let left = queue.list(MessageState::Dead, None, 100).await?.messages;
        let is_left = |name: &str| {
            left.iter()
                .filter(|dead| dead.id.starts_with(name.as_bytes()))
                .count()
        };
        assert_eq!(
            [is_left("before-"), is_left("incident-"), is_left("after-")],
            [5, 0, 5]
        );
    }
    Ok(())
}
