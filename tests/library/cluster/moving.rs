//! Slots that move from one master to another under load.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use dueq::outcomes::RescheduleOutcome;
use dueq::{Client, Durability, Message};
use dueq_testkit::Server;
use dueq_testkit::cluster::Cluster;

use crate::faults::signal;
use crate::support::{HOUR, LIMIT, acking, ids, messages, push_all, stats_until, until};

#[tokio::test]
async fn messages_of_a_moved_queue_are_delivered() -> Result<()> {
    let cluster = Cluster::start(2).await?;
    let client = Client::connect(&cluster.url()).await?;
    let queue = client.queue("orders")?;
    let (worker, mut handled) = acking(queue.worker());
    queue.push("first").id("first").await?;
    assert_eq!(handled.next().await?, "first");
    let (slot, mut owner) = cluster.place("orders").await?;
    for round in 0..4 {
        // These messages are due only after the move.
        let id = format!("later-{round}");
        queue.push("").id(&id).delay(Duration::from_secs(1)).await?;
        cluster.begin_move(slot, owner, 1 - owner).await?;
        cluster.finish_move(slot, owner, 1 - owner).await?;
        owner = 1 - owner;
        assert_eq!(handled.next().await?, id);
        let id = format!("now-{round}");
        queue.push("").id(&id).await?;
        assert_eq!(handled.next().await?, id);
    }
    stats_until(&queue, "all acked", |stats| stats.leased == 0).await?;
    worker.stop().await
}

#[tokio::test]
async fn slot_moves_under_load_lose_and_double_no_message() -> Result<()> {
    let cluster = Cluster::start(2).await?;
    let client = Client::connect(&cluster.url()).await?;
    let queue = client.queue("orders")?;
    let (worker, mut handled) = acking(queue.worker());
    let (slot, mut owner) = cluster.place("orders").await?;
    let ended = Arc::new(AtomicBool::new(false));
    let (pushing, stop) = (queue.clone(), Arc::clone(&ended));
    let producer = tokio::spawn(async move {
        let mut pushed = BTreeSet::new();
        while !stop.load(Ordering::Relaxed) {
            let id = format!("{:06}", pushed.len());
            pushing.push("").id(&id).await?;
            pushed.insert(id);
        }
        Ok::<_, dueq::Error>(pushed)
    });
    for _ in 0..6 {
        handled.take(50).await?;
        cluster.begin_move(slot, owner, 1 - owner).await?;
        cluster.finish_move(slot, owner, 1 - owner).await?;
        owner = 1 - owner;
    }
    ended.store(true, Ordering::Relaxed);
    let pushed = producer.await??;
    let rest = handled.take(pushed.len() - 300).await?;
    stats_until(&queue, "all acked", |stats| {
        stats.leased + stats.ready + stats.scheduled == 0
    })
    .await?;
    let rest_alone: BTreeSet<_> = rest.iter().collect();
    assert_eq!(rest.len(), rest_alone.len(), "none came twice");
    worker.stop().await
}

#[tokio::test]
async fn calls_wait_until_a_slot_has_moved() -> Result<()> {
    let cluster = Cluster::start(2).await?;
    let client = Client::connect(&cluster.url()).await?;
    let queue = client.queue("orders")?;
    let hour = |id: &String| Message::new("").id(id).due(HOUR);
    push_all(&queue, ids(10).iter().map(hour).collect()).await?;
    let (slot, owner) = cluster.place("orders").await?;
    cluster.begin_move(slot, owner, 1 - owner).await?;
    let waiting = queue.clone();
    let call = tokio::spawn(async move { waiting.push("").id("during").delay(HOUR).await });
    cluster.finish_move(slot, owner, 1 - owner).await?;
    assert!(call.await??.is_created());
    assert_eq!(queue.stats().await?.scheduled, 11);
    Ok(())
}

/// All keys have moved, but the new master does not own the slot yet. It serves calls that the old
/// master redirects to it with ASK.
#[tokio::test]
async fn a_new_queue_in_a_moving_slot_is_found_by_ask() -> Result<()> {
    let cluster = Cluster::start(2).await?;
    let client = Client::connect(&cluster.url()).await?;
    let queue = client.queue("orders")?;
    let (slot, owner) = cluster.place("orders").await?;
    cluster.begin_move(slot, owner, 1 - owner).await?;
    assert!(!queue.exists().await?, "the new master is asked");
    let calls = |stats: String| {
        stats
            .lines()
            .any(|line| line.starts_with("cmdstat_asking:"))
    };
    let stats = cluster
        .command(1 - owner, &["INFO", "commandstats"])
        .await?;
    assert!(calls(stats));
    cluster.finish_move(slot, owner, 1 - owner).await?;
    push_all(&queue, messages(3)).await?;
    assert_eq!(queue.stats().await?.scheduled, 3);
    Ok(())
}

#[tokio::test]
async fn an_unrepeatable_call_follows_a_moved_slot() -> Result<()> {
    let cluster = Cluster::start(2).await?;
    let client = Client::connect(&cluster.url()).await?;
    let queue = client.queue("orders")?;
    queue.push("").id("a").delay(HOUR).await?;
    let (slot, mut owner) = cluster.place("orders").await?;
    for hours in 2..5 {
        cluster.begin_move(slot, owner, 1 - owner).await?;
        cluster.finish_move(slot, owner, 1 - owner).await?;
        owner = 1 - owner;
        let moved = queue.reschedule("a", HOUR * hours).await?;
        assert!(matches!(moved, RescheduleOutcome::Moved(_)));
    }
    Ok(())
}

/// The fault that hits the master of the queue.
#[derive(Clone, Copy)]
enum Fault {
    Killed,
    /// The master keeps its connections and answers nothing.
    Frozen,
}

impl Fault {
    fn strike(self, server: &mut Server) -> Result<()> {
        match self {
            Self::Killed => server.kill(),
            Self::Frozen => signal("-STOP", server.pid()),
        }
    }
}

async fn work_goes_on_after(fault: Fault) -> Result<()> {
    let mut cluster = Cluster::start(3).await?;
    let (_, master) = cluster.place("orders").await?;
    cluster.add_replica(master).await?;
    let client = Client::connect(&cluster.masters[(master + 1) % 3].url()).await?;
    let queue = client.queue("orders")?;
    let (worker, mut handled) = acking(queue.worker());
    queue.push("").id("before").await?;
    assert_eq!(handled.next().await?, "before");
    let copied = Durability::Replicated {
        replicas: 1,
        timeout: LIMIT,
    };
    let waits = queue.push("").id("waits").delay(HOUR);
    waits.durability(copied).await?;

    fault.strike(&mut cluster.masters[master])?;
    // The id makes a repetition harmless, so this may be repeated until the failover is over.
    let push = async || Ok(queue.push("").id("after").await.is_ok());
    until("a push", push, |pushed| *pushed).await?;
    assert_eq!(handled.next().await?, "after");
    stats_until(&queue, "the message that waits", |stats| {
        stats.scheduled == 1 && stats.leased == 0
    })
    .await?;
    let port = cluster.masters.last().context("a replica")?.port();
    assert!(
        client.address().contains(&port.to_string()),
        "{}",
        client.address()
    );
    worker.stop().await
}

#[tokio::test]
async fn work_continues_after_the_death_of_a_master() -> Result<()> {
    work_goes_on_after(Fault::Killed).await
}

#[tokio::test]
async fn work_continues_while_a_master_is_frozen() -> Result<()> {
    work_goes_on_after(Fault::Frozen).await
}
