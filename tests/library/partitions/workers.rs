//! Workers of a queue of several partitions.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use dueq::{Client, Delivery, Message, Queue};
use dueq_testkit::cluster::Cluster;

use crate::support::child::{Process, Role};
use crate::support::{HOUR, Running, Seen, Setup, holding, ids, messages, push_all, seen};
use crate::support::{setup, stats_until, until};

/// The live nodes of each partition, by the key of the partition's node set.
type Attendants = BTreeMap<String, BTreeSet<String>>;

async fn attendants(setup: &Setup) -> Result<Attendants> {
    let keys: Vec<String> = setup.command(&["KEYS", "dueq:{orders*}:nodes"]).await?;
    let mut attendants = Attendants::new();
    for key in keys {
        let names: Vec<String> = setup.command(&["ZRANGEBYSCORE", &key, "0", "(inf"]).await?;
        attendants.insert(key, names.into_iter().collect());
    }
    Ok(attendants)
}

/// The ids of the nodes in the roster of the queue.
async fn roster(setup: &Setup) -> Result<Vec<String>> {
    let live = ["ZRANGEBYSCORE", "dueq:{orders}:nodes", "-inf", "(0"];
    setup.command(&live).await
}

/// Waits until each partition has the wanted nodes, and returns them.
async fn attended(
    setup: &Setup,
    what: &str,
    is_wanted: impl Fn(&BTreeSet<String>) -> bool,
) -> Result<Attendants> {
    let is_wanted = |found: &Attendants| found.values().all(&is_wanted);
    until(what, || attendants(setup), is_wanted).await
}

/// Starts workers that ack, each with its own connections.
async fn acking_workers(url: &str, count: usize) -> Result<(Vec<Running>, Seen<String>)> {
    let (sender, seen) = seen();
    let mut workers = Vec::new();
    for _ in 0..count {
        let queue = Client::connect(url).await?.queue("orders")?;
        let sender = sender.clone();
        let handler = move |delivery: Delivery| {
            let _ = sender.send(delivery.id().into_owned());
            async {}
        };
        workers.push(Running::start(queue.worker(), handler));
    }
    Ok((workers, seen))
}

async fn deliver_all(queue: &Queue, seen: &mut Seen<String>) -> Result<()> {
    let soon = messages(600).into_iter().enumerate();
    let soon = soon.map(|(n, message)| message.due(Duration::from_millis(n as u64 % 3 * 200)));
    push_all(queue, soon.collect()).await?;
    let mut handled = seen.take(600).await?;
    handled.sort_unstable();
    assert_eq!(handled, ids(600));
    let stats = stats_until(queue, "all acked", |stats| stats.acked == 600).await?;
    assert_eq!((stats.claimed, stats.crashed, stats.leased), (600, 0, 0));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_workers_deliver_all_messages_of_12_partitions() -> Result<()> {
    let setup = setup().await?;
    setup.queue.partition_into(12).await?;
    let (workers, mut seen) = acking_workers(&setup.server.url(), 3).await?;
    deliver_all(&setup.queue, &mut seen).await?;
    for worker in workers {
        worker.stop().await?;
    }
    let attendants = attendants(&setup).await?;
    assert!(attendants.len() == 12 && attendants.values().all(BTreeSet::is_empty));
    let roster = roster(&setup).await?;
    assert_eq!(roster, [""; 0], "workers that stop leave the roster");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_worker_follows_a_change_of_partitions() -> Result<()> {
    let setup = setup().await?;
    let (workers, mut seen) = acking_workers(&setup.server.url(), 2).await?;
    setup.queue.partition_into(5).await?;
    deliver_all(&setup.queue, &mut seen).await?;
    for count in [1, 3] {
        setup.queue.partition_into(count).await?;
        push_all(&setup.queue, messages(100)).await?;
        let mut handled = seen.take(100).await?;
        handled.sort_unstable();
        assert_eq!(handled, ids(100));
        stats_until(&setup.queue, "none", |stats| {
            stats.ready + stats.leased == 0
        })
        .await?;
    }
    for worker in workers {
        worker.stop().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn survivors_attend_the_partitions_of_killed_workers() -> Result<()> {
    let setup = setup().await?;
    setup.queue.partition_into(16).await?;
    let url = setup.server.url();
    let mut processes = Vec::new();
    for _ in 0..5 {
        processes.push(Process::start(Role::Handle, &url, &[])?);
    }
    let all = |nodes: &BTreeSet<String>| nodes.len() >= 3;
    let before = attended(&setup, "three nodes each", all).await?;
    let pairs: usize = before.values().map(BTreeSet::len).sum();
    assert!(pairs < 5 * 16, "not every node attends every partition");
    let mut survivors = processes.split_off(3);
    for process in &mut processes {
        process.kill().await?;
    }
    let killed = Instant::now();
    // Redis forgets the killed nodes, and the two survivors share all partitions.
    let mut history = Vec::new();
    let look = async || {
        let found = attendants(&setup).await?;
        history.push((killed.elapsed(), found.clone()));
        Ok(found)
    };
    let both = |found: &Attendants| found.values().all(|nodes| nodes.len() == 2);
    let after = until("both survivors everywhere", look, both).await?;
    let nodes: BTreeSet<_> = after.values().flatten().cloned().collect();
    assert_eq!(nodes.len(), 2);
    let is_attended = |found: &Attendants| found.values().all(|all| !all.is_disjoint(&nodes));
    let first = history.iter().find(|(_, found)| is_attended(found));
    let after = first.map(|(after, _)| *after);
    println!("a survivor attends each partition after {after:?}");
    push_all(&setup.queue, messages(100)).await?;
    let mut handled = BTreeSet::new();
    let [one, two] = &mut survivors[..] else {
        anyhow::bail!("two are left");
    };
    while handled.len() < 100 {
        let said = tokio::select! {
            said = one.says() => said?,
            said = two.says() => said?,
        };
        handled.insert(said);
    }
    assert_eq!(handled.into_iter().collect::<Vec<_>>(), ids(100));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_workers_take_the_partitions_of_stopping_ones() -> Result<()> {
    let setup = setup().await?;
    setup.queue.partition_into(32).await?;
    let url = setup.server.url();
    let mut stopping = Vec::new();
    for _ in 0..6 {
        let queue = Client::connect(&url).await?.queue("orders")?;
        stopping.push(holding(queue.worker().concurrency(20).grace(HOUR)));
    }
    push_all(&setup.queue, messages(30)).await?;
    stats_until(&setup.queue, "all held", |stats| stats.leased == 30).await?;
    let (workers, mut seen) = acking_workers(&url, 1).await?;
    let all = |nodes: &BTreeSet<String>| nodes.len() >= 3;
    attended(&setup, "three nodes each", all).await?;
    for (worker, _) in &stopping {
        worker.ask_to_stop();
    }
    // A stopping worker claims nothing after it has left the roster.
    let only_one = |roster: &Vec<String>| roster.len() == 1;
    until("the others left", || roster(&setup), only_one).await?;
    let late = (0..100).map(|n| Message::new("").id(format!("late-{n}")));
    push_all(&setup.queue, late.collect()).await?;
    let handled: BTreeSet<String> = seen.take(100).await?.into_iter().collect();
    assert_eq!(handled.len(), 100);
    stopping.retain(|(worker, _)| !worker.is_finished());
    assert!(!stopping.is_empty(), "none has a handler that runs");
    for (worker, _) in stopping {
        worker.abort().await?;
    }
    for worker in workers {
        worker.stop().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_with_free_handlers_help_a_busy_partition() -> Result<()> {
    const WORKERS: usize = 6;
    let setup = setup().await?;
    setup.queue.partition_into(32).await?;
    let url = setup.server.url();
    let mut workers = Vec::new();
    for _ in 0..WORKERS {
        let queue = Client::connect(&url).await?.queue("orders")?;
        workers.push(holding(queue.worker().concurrency(1)));
    }
    let is_shared = |nodes: &BTreeSet<String>| (3..WORKERS).contains(&nodes.len());
    until(
        "a partition without some of the workers",
        || attendants(&setup),
        |found| found.values().all(|nodes| nodes.len() >= 3) && found.values().any(&is_shared),
    )
    .await?;
    let shared = attendants(&setup).await?;
    let (set, _) = shared
        .iter()
        .find(|(_, nodes)| is_shared(nodes))
        .context("one")?;
    // Finds an id that belongs to the busy partition.
    let mut group = 0;
    let group = loop {
        let id = format!("{{{group}}}");
        if &setup.queue.keys_of(&id).await?[8] == set {
            break id;
        }
        group += 1;
    };
    let held = (0..WORKERS).map(|n| Message::new("").id(format!("{group}{n}")));
    push_all(&setup.queue, held.collect()).await?;
    for (_, seen) in &mut workers {
        // Each handler keeps its message, so only another worker can get the next one.
        seen.next().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_attend_partitions_on_every_master() -> Result<()> {
    let cluster = Cluster::start(3).await?;
    let queue = Client::connect(&cluster.url()).await?.queue("orders")?;
    queue.partition_into(6).await?;
    let (workers, mut seen) = acking_workers(&cluster.url(), 2).await?;
    deliver_all(&queue, &mut seen).await?;
    for worker in workers {
        worker.stop().await?;
    }
    Ok(())
}
