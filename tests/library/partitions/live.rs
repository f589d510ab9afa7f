//! Changes of the number of partitions of a queue that is in use.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use dueq::admin::RepartitionPhase;
use dueq::{Client, ErrorKind, Queue};
use dueq_testkit::cluster::Cluster;
use tokio::sync::mpsc::unbounded_channel;

use super::traffic::{change_live, due, group, stock};
use crate::support::proxy::Proxy;
use crate::support::{HOUR, push_all, setup, until, within};

const DEPART: &str = include_str!("../../../lua/dist/depart.lua");
const ARRIVE: &str = include_str!("../../../lua/dist/arrive.lua");
const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_live_queue_grows_from_1_to_3_partitions() -> Result<()> {
    let setup = setup().await?;
    let stock = stock(&setup.queue).await?;
    change_live(&setup.queue, stock, 3, false).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_live_queue_shrinks_from_3_to_1_partition() -> Result<()> {
    let setup = setup().await?;
    setup.queue.partition_into(3).await?;
    let stock = stock(&setup.queue).await?;
    change_live(&setup.queue, stock, 1, false).await?;
    let keys: Vec<String> = setup.command(&["KEYS", "dueq:{*/*"]).await?;
    assert_eq!(keys, [] as [String; 0]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_live_queue_gets_its_old_partitions_back() -> Result<()> {
    let setup = setup().await?;
    setup.queue.partition_into(2).await?;
    let stock = stock(&setup.queue).await?;
    change_live(&setup.queue, stock, 5, true).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_live_queue_grows_over_the_masters_of_a_cluster() -> Result<()> {
    let cluster = Cluster::start(3).await?;
    let queue = Client::connect(&cluster.url()).await?.queue("orders")?;
    let stock = stock(&queue).await?;
    change_live(&queue, stock, 6, false).await
}

/// Checks that the queue has exactly these far messages, each where it belongs.
pub(super) async fn has_all(queue: &Queue, ids: &[String], partitions: usize) -> Result<()> {
    assert_eq!(queue.partitions().await?.len(), partitions);
    let stats = queue.stats().await?;
    assert_eq!((stats.scheduled, stats.moving), (ids.len() as u64, 0));
    for id in ids {
        let stored = queue.get(id).await?.map(|one| one.payload);
        assert_eq!(stored.as_deref(), Some(id.as_bytes()), "{id}");
    }
    Ok(())
}

/// Polls a future at most so many times; `None` if it was dropped before its end.
pub(super) async fn polled<T>(future: impl Future<Output = T>, mut polls: u32) -> Option<T> {
    let mut future = pin!(future);
    std::future::poll_fn(move |context| {
        if polls == 0 {
            return std::task::Poll::Ready(None);
        }
        polls -= 1;
        future.as_mut().poll(context).map(Some)
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_is_dropped_anywhere_goes_on_in_the_next_call() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let ids = group("far", 1_500);
    push_all(queue, due(&ids, |_| HOUR)).await?;
    for polls in 1..60 {
        let fresh = Client::connect(&setup.server.url())
            .await?
            .queue("orders")?;
        if let Some(result) = polled(fresh.partition_into(3).into_future(), polls).await {
            result?;
        }
        let probe = &ids[polls as usize];
        let push = queue.push("").id(probe).delay(HOUR);
        match tokio::time::timeout(SECOND / 10, push.into_future()).await {
            Ok(receipt) => assert!(!receipt?.is_created(), "{probe}"),
            // It is on its way.
            Err(_) => continue,
        }
    }
    queue.partition_into(3).await?;
    has_all(queue, &ids, 3).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_aborted_change_moves_all_messages_back() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let limits = dueq::QueueLimits::new()
        .max_leased(7)
        .max_messages(Some(20_000));
    queue.configure(limits).await?;
    let ids = group("far", 4_000);
    push_all(queue, due(&ids, |_| HOUR)).await?;
    let (sender, mut moved) = unbounded_channel();
    let first = queue.clone();
    let change = tokio::spawn(async move {
        let change = first.partition_into(3);
        let change = change.on_progress(move |now| _ = sender.send(now.moved));
        change.await
    });
    while within("messages that moved", moved.recv())
        .await?
        .is_some_and(|moved| moved == 0)
    {}
    let error = queue.partition_into(5).await.expect_err("another change");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("from 1 to 3"), "{error}");
    let mut is_back = false;
    for polls in [2, 4, 7, 11] {
        let fresh = Client::connect(&setup.server.url())
            .await?
            .queue("orders")?;
        if let Some(result) = polled(fresh.abort_repartition().into_future(), polls).await {
            result?;
            is_back = true;
            break;
        }
    }
    if !is_back {
        queue.abort_repartition().await?;
    }
    let error = change.await?.expect_err("it was taken back");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    has_all(queue, &ids, 1).await?;
    let stats = queue.stats().await?;
    assert_eq!((stats.max_leased, stats.max_messages), (7, 20_000));
    let keys: Vec<String> = setup.command(&["KEYS", "dueq:{*/*"]).await?;
    assert_eq!(keys, [] as [String; 0]);
    let error = queue.abort_repartition().await.expect_err("no change runs");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_that_make_the_same_change_do_no_harm() -> Result<()> {
    let setup = setup().await?;
    setup.queue.partition_into(2).await?;
    let ids = group("far", 3_000);
    push_all(&setup.queue, due(&ids, |_| HOUR)).await?;
    let phases = Arc::new(std::sync::Mutex::new(Vec::new()));
    let other = Client::connect(&setup.server.url())
        .await?
        .queue("orders")?;
    let seen = Arc::clone(&phases);
    let watched = setup.queue.partition_into(4).on_progress(move |now| {
        seen.lock().expect("no panic").push(now.phase);
    });
    let start = async {
        until(
            "the change",
            async || Ok(setup.queue.partitions().await?.iter().any(|one| one.joins)),
            |joins| *joins,
        )
        .await?;
        Ok::<_, anyhow::Error>(other.partition_into(4).without_rests().await?)
    };
    let (first, second) = tokio::join!(watched.into_future(), start);
    first?;
    second?;
    assert!(
        phases
            .lock()
            .expect("no panic")
            .contains(&RepartitionPhase::Moving)
    );
    has_all(&setup.queue, &ids, 4).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_have_each_batch_before_the_next_one_departs() -> Result<()> {
    let setup = setup().await?;
    let port = setup.server.port().to_string();
    let replica = dueq_testkit::Server::start(&["--replicaof", "127.0.0.1", &port])?;
    let is_online = |info: &String| info.contains("state=online");
    let replication = async || setup.command::<String>(&["INFO", "replication"]).await;
    until("a replica", replication, is_online).await?;
    let ids = group("far", 2_000);
    push_all(&setup.queue, due(&ids, |_| HOUR)).await?;
    setup.queue.partition_into(3).await?;
    has_all(&setup.queue, &ids, 3).await?;
    let calls: String = setup.command(&["INFO", "commandstats"]).await?;
    let waits = calls.lines().find(|line| line.starts_with("cmdstat_wait:"));
    let waits = waits.and_then(|line| line.split(['=', ',']).nth(1));
    // A batch has 256 messages, and two calls.
    let waits: u64 = waits.unwrap_or("0").parse()?;
    assert!(waits >= 2 * (2_000 * 2 / 3) / 256, "{waits}");
    drop(replica);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_replies_of_a_move_lose_and_double_no_message() -> Result<()> {
    let setup = setup().await?;
    let ids = group("far", 1_500);
    push_all(&setup.queue, due(&ids, |_| HOUR)).await?;
    let proxy = Proxy::start(setup.server.port()).await?;
    let queue = Client::connect(&proxy.url()).await?.queue("orders")?;
    for script in [DEPART, ARRIVE, ARRIVE, DEPART, DEPART] {
        proxy.cut_reply_of(script);
    }
    queue.partition_into(3).await?;
    assert_eq!(proxy.cuts(), 5);
    has_all(&setup.queue, &ids, 3).await
}
