//! Moves of a queue to another store, while it is in use.

use std::time::Duration;

use anyhow::Result;
use dueq::outcomes::{CancelOutcome, SettleOutcome};
use dueq::{Client, Delivery, ErrorKind, Queue, QueueLimits};
use dueq_testkit::cluster::Cluster;
use tokio::sync::mpsc::unbounded_channel;

use super::call;
use super::interrupted::all_of;
use super::live::{has_all, polled};
use super::traffic::{change_used, due, group, stock};
use crate::support::{HOUR, Running, claim, push_all, setup, stats_until, until, within};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_moves_to_another_server() -> Result<()> {
    let (here, there) = (setup().await?, setup().await?);
    let ids = group("far", 3_000);
    push_all(&here.queue, due(&ids, |_| HOUR)).await?;
    here.queue
        .move_to(&there.server.url(), Some(3))
        .without_rests()
        .await?;
    has_all(&there.queue, &ids, 3).await?;
    has_all(&here.queue, &ids, 3).await?;
    let fresh = Client::connect(&here.server.url()).await?.queue("orders")?;
    has_all(&fresh, &ids, 3).await?;
    // A client of release 0.1 is refused.
    let scripts = dueq_testkit::scripts::frozen()?;
    let mut push = redis::cmd("EVAL");
    push.arg(&scripts["push"]).arg(10).arg(here.queue.keys());
    push.arg(&["", "", "late", "+1000", "x", ""]);
    let pushed: redis::RedisResult<redis::Value> = push.query_async(&mut here.redis().await?).await;
    let error = pushed.expect_err("a queue that is elsewhere");
    assert_eq!(error.code(), Some("LAYOUT"), "{error}");
    Ok(())
}

/// A worker of the old store ends the batch of a process that died, as far as it reaches the new one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_puts_back_what_was_on_its_way_to_another_store() -> Result<()> {
    let (here, there) = (setup().await?, setup().await?);
    let worker = Running::start(here.queue.worker(), |_: Delivery| async {});
    let ids = group("far", 1_500);
    push_all(&here.queue, due(&ids, |_| HOUR)).await?;
    let url = there.server.url();
    let moving = here.queue.move_to(&url, None).into_future();
    let is_open = async {
        let all = async || Ok(here.queue.partitions().await?);
        until("the map", all, |all| {
            all.iter().any(|one| one.store.is_some())
        })
        .await
    };
    tokio::select! {
        open = is_open => drop(open?),
        moved = moving => panic!("{moved:?}"),
    }
    // Another process takes a batch out, and dies.
    let epoch: String = here
        .command(&["HGET", "dueq:{orders}:meta", "epoch"])
        .await?;
    let fence = format!("m{epoch}");
    let mut args = [&fence, "", "0", "@-", "5000"].map(str::as_bytes).to_vec();
    args.extend(ids.iter().take(200).map(String::as_bytes));
    let (_, number, ..): (redis::Value, u64, String, u64, Vec<u8>) =
        call(&here, "-", "dueq_depart", &args).await?;
    assert!(number > 0);
    stats_until(&here.queue, "the end of the batch", |stats| {
        stats.moving == 0
    })
    .await?;
    assert_eq!(here.queue.stats().await?.scheduled, ids.len() as u64);
    for queue in [&here.queue, &there.queue] {
        let receipts = queue.push_many(due(&ids, |_| HOUR)).await;
        for receipt in receipts {
            assert!(!receipt?.is_created());
        }
    }
    worker.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_live_queue_moves_from_a_server_into_a_cluster() -> Result<()> {
    let (here, cluster) = (setup().await?, Cluster::start(3).await?);
    let there = Client::connect(&cluster.url()).await?.queue("orders")?;
    let stock = stock(&here.queue).await?;
    let url = cluster.url();
    let change = || here.queue.move_to(&url, Some(6));
    change_used(&[&here.queue, &there], stock, change, 6, false).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_live_queue_that_was_to_move_stays() -> Result<()> {
    let (here, there) = (setup().await?, setup().await?);
    here.queue.partition_into(2).await?;
    let stock = stock(&here.queue).await?;
    let url = there.server.url();
    let change = || here.queue.move_to(&url, Some(3));
    change_used(&[&here.queue, &there.queue], stock, change, 3, true).await
}

/// Moves the queue with this call dropped after so many polls, and then with a second one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_that_is_dropped_anywhere_goes_on_in_the_next_call() -> Result<()> {
    let (here, there) = (setup().await?, setup().await?);
    let ids = group("far", 1_500);
    push_all(&here.queue, due(&ids, |_| HOUR)).await?;
    let url = there.server.url();
    for polls in 1..90 {
        let fresh = Client::connect(&here.server.url()).await?.queue("orders")?;
        let moving = fresh.move_to(&url, Some(2)).into_future();
        if let Some(result) = polled(moving, polls).await {
            result?;
        }
        let probe = &ids[polls as usize];
        let push = here.queue.push("").id(probe).delay(HOUR);
        match tokio::time::timeout(SECOND / 10, push.into_future()).await {
            Ok(receipt) => assert!(!receipt?.is_created(), "{probe}"),
            // It is on its way.
            Err(_) => continue,
        }
    }
    here.queue.move_to(&url, Some(2)).without_rests().await?;
    has_all(&there.queue, &ids, 2).await?;
    // The end, again.
    here.queue.move_to(&url, None).await?;
    has_all(&here.queue, &ids, 2).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_is_taken_back_wherever_it_was_dropped() -> Result<()> {
    let (here, there) = (setup().await?, setup().await?);
    let limits = QueueLimits::new().max_leased(7).max_messages(Some(300));
    let taken_back = async |polls: u32| {
        let name = format!("orders-{polls}");
        let queue = here.client.queue(&name)?;
        queue.configure(limits.clone()).await?;
        queue.pause().await?;
        let ids = group("far", 20);
        push_all(&queue, due(&ids, |_| HOUR)).await?;
        let moving = queue.move_to(&there.server.url(), Some(3)).into_future();
        polled(moving, polls).await;
        let fresh = Client::connect(&here.server.url()).await?.queue(&name)?;
        polled(fresh.abort_repartition().into_future(), polls).await;
        if let Err(error) = fresh.abort_repartition().await {
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{polls}: {error}");
        }
        has_all(&fresh, &ids, 1).await?;
        // Who was sent to the other store is sent back.
        let other = Client::connect(&there.server.url()).await?.queue(&name)?;
        if other.exists().await? {
            has_all(&other, &ids, 1).await?;
        }
        let stats = fresh.stats().await?;
        let limits = (stats.max_messages, stats.max_leased, stats.paused);
        assert_eq!(limits, (300, 7, true), "{polls} polls");
        Ok(())
    };
    all_of((1..60).map(|polls| Box::pin(taken_back(polls))).collect()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_and_pause_come_along() -> Result<()> {
    let (here, there) = (setup().await?, setup().await?);
    let limits = QueueLimits::new()
        .max_leased(12)
        .max_messages(Some(300))
        .keep_dead(50);
    here.queue.configure(limits).await?;
    here.queue.pause().await?;
    here.queue.move_to(&there.server.url(), Some(3)).await?;
    let stats = there.queue.stats().await?;
    let limits = (stats.max_messages, stats.max_leased, stats.keep_dead);
    assert_eq!((limits, stats.paused), ((300, 12, 51), true));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_that_cannot_work_is_refused_and_changes_nothing() -> Result<()> {
    let (here, there) = (setup().await?, setup().await?);
    let ids = group("far", 300);
    let refused = async |queue: &Queue, url: &str, kind: ErrorKind, words: &str| {
        let error = queue.move_to(url, None).await.expect_err(words);
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(words), "{error}");
        has_all(&here.queue, &ids, 1).await
    };
    let (url, own) = (there.server.url(), here.server.url());
    let queue = &here.queue;
    let error = queue.move_to(&url, None).await.expect_err("no queue");
    assert!(error.to_string().contains("no queue orders"), "{error}");
    push_all(queue, due(&ids, |_| HOUR)).await?;
    let (input, away) = (ErrorKind::InvalidInput, ErrorKind::Unavailable);
    refused(queue, &own, input, "is the store in which").await?;
    refused(queue, "redis://127.0.0.1:1/", away, "redis://127.0.0.1:1/").await?;
    refused(queue, "redis://10.0.0.1/", input, "each machine itself").await?;
    refused(queue, "http://127.0.0.1/", input, "redis+cluster://").await?;
    let with_user = url.replace("redis://", "redis://someone:secret@");
    refused(queue, &with_user, input, "leave them out").await?;
    there.queue.push("").id("a").delay(HOUR).await?;
    refused(queue, &url, input, "has 1 messages").await?;
    assert_eq!(there.queue.cancel("a").await?, CancelOutcome::Cancelled);
    refused(queue, &url, away, "remembers calls").await?;
    let error = queue.abort_repartition().await.expect_err("none");
    assert!(
        error.to_string().contains("nothing to take back"),
        "{error}"
    );
    there.queue.delete().await?;
    there.queue.partition_into(2).await?;
    let error = queue.move_to(&url, Some(3)).await.expect_err("2 there");
    assert!(error.to_string().contains("2 partitions"), "{error}");
    there.queue.delete().await?;
    let used = there.server.command(&["INFO", "memory"])?;
    let used = used
        .lines()
        .find_map(|line| line.strip_prefix("used_memory:"));
    let used: u64 = used.expect("a size").trim().parse()?;
    let most = (used + 10_000).to_string();
    there
        .server
        .command(&["CONFIG", "SET", "maxmemory", &most])?;
    refused(queue, &url, ErrorKind::Full, "no room").await?;
    there.server.command(&["CONFIG", "SET", "maxmemory", "0"])?;
    assert!(!there.queue.exists().await?);
    queue.move_to(&url, None).await?;
    has_all(&there.queue, &ids, 1).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_moves_on_and_back() -> Result<()> {
    let (here, there) = (setup().await?, setup().await?);
    let ids = group("far", 100);
    push_all(&here.queue, due(&ids, |_| HOUR)).await?;
    let (own, url) = (here.server.url(), there.server.url());
    here.queue.move_to(&url, Some(2)).await?;
    let error = here.queue.move_to("redis://127.0.0.1:1/", None).await;
    let error = error.expect_err("it is elsewhere");
    assert!(error.to_string().contains(&url), "{error}");
    there.queue.move_to(&own, None).await?;
    for queue in [&here.queue, &there.queue] {
        has_all(queue, &ids, 1).await?;
    }
    // What is left there is no queue, and its deletion deletes no message.
    assert!(there.queue.delete().await?);
    assert!(!there.queue.exists().await?);
    has_all(&here.queue, &ids, 1).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_idles_after_the_move_and_serves_after_the_return() -> Result<()> {
    let (here, there) = (setup().await?, setup().await?);
    let (sender, mut handled) = unbounded_channel();
    let handler = move |delivery: Delivery| {
        let _ = sender.send(delivery.id().into_owned());
        async {}
    };
    let worker = Running::start(here.queue.worker(), handler);
    here.queue.push("").id("first").await?;
    assert_eq!(
        within("a message", handled.recv()).await?.as_deref(),
        Some("first")
    );
    let (own, url) = (here.server.url(), there.server.url());
    here.queue.move_to(&url, None).await?;
    here.queue.push("").id("there").await?;
    for delivery in claim(&there.queue, 1).await? {
        assert_eq!(delivery.id(), "there");
        assert_eq!(delivery.ack().await?, SettleOutcome::Done);
    }
    there.queue.move_to(&own, None).await?;
    there.queue.push("").id("back").await?;
    assert_eq!(
        within("a message", handled.recv()).await?.as_deref(),
        Some("back")
    );
    worker.stop().await
}
