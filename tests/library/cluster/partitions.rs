//! A queue whose partitions are on several masters.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result};
use dueq::inspect::UnreadPart;
use dueq::outcomes::SettleOutcome;
use dueq::{Applied, Client, Queue, Receipt};
use dueq_testkit::Stopwatch;
use dueq_testkit::cluster::Cluster;
use tokio::task::JoinSet;

use super::away::{ALONE, Partitioned};
use crate::faults::signal;
use crate::support::{HOUR, LONG, ids, messages, push_all, within};

async fn partitioned(masters: usize, partitions: usize) -> Result<(Cluster, Queue)> {
    let cluster = Cluster::start(masters).await?;
    for master in 0..masters {
        let words = ["CONFIG", "SET", "cluster-require-full-coverage", "no"];
        cluster.command::<()>(master, &words).await?;
    }
    let queue = Client::connect(&cluster.url()).await?.queue("orders")?;
    queue.partition_into(partitions).await?;
    Ok((cluster, queue))
}

#[tokio::test]
async fn masters_have_equal_shares_of_the_partitions() -> Result<()> {
    let (_cluster, queue) = partitioned(3, 12).await?;
    let mut of_master = BTreeMap::<String, usize>::new();
    for partition in queue.partitions().await? {
        *of_master.entry(partition.server).or_default() += 1;
    }
    assert_eq!(of_master.into_values().collect::<Vec<_>>(), [4, 4, 4]);
    push_all(&queue, messages(300)).await?;
    assert_eq!(queue.stats().await?.pushed, 300);
    let mut claimed = 0;
    while claimed < 300 {
        for delivery in queue.claim(64, LONG).await? {
            assert_eq!(delivery.ack().await?, SettleOutcome::Done);
            claimed += 1;
        }
    }
    Ok(())
}

#[tokio::test]
async fn calls_on_all_partitions_name_the_unreachable_ones() -> Result<()> {
    let (mut cluster, queue) = partitioned(3, 6).await?;
    let (_, home) = cluster.place("orders").await?;
    let dead = (home + 1) % 3;
    let address = format!("127.0.0.1:{}", cluster.masters[dead].port());
    let partitions = queue.partitions().await?;
    let lost: Vec<_> = partitions
        .iter()
        .filter(|one| one.server == address)
        .collect();
    assert_eq!(lost.len(), 2);
    cluster.masters[dead].kill()?;

    let error = queue.pause().await.expect_err("a dead master");
    assert_eq!(error.was_applied(), Applied::Yes, "{error}");
    let text = error.to_string();
    assert!(text.contains("4 of the 6 partitions"), "{text}");
    for partition in &lost {
        let name = format!("{} ({})", partition.index, partition.tag);
        assert!(text.contains(&name), "{text}");
    }
    let error = queue.stats().await.expect_err("a dead master");
    assert!(error.to_string().contains("2 of 6"), "{error}");

    // The other partitions still serve.
    for id in ids(60) {
        let keys = queue.keys_of(&id).await?;
        let of_lost = |tag: &str| keys[0].starts_with(&format!("dueq:{{orders/{tag}}}"));
        if !lost.iter().any(|one| of_lost(&one.tag)) {
            assert!(queue.push("").id(&id).delay(HOUR).await?.is_created());
        }
    }
    Ok(())
}

#[tokio::test]
async fn ids_are_found_while_the_slot_of_a_partition_moves() -> Result<()> {
    let (cluster, queue) = partitioned(2, 4).await?;
    let partition = queue.partitions().await?.remove(1);
    let owner = |index: usize| cluster.masters[index].port().to_string();
    let from = (0..2).find(|index| partition.server.ends_with(&owner(*index)));
    let from = from.expect("a master");
    for round in 0..4 {
        let (from, to) = if round % 2 == 0 {
            (from, 1 - from)
        } else {
            (1 - from, from)
        };
        cluster.begin_move(partition.slot, from, to).await?;
        let names: Vec<_> = ids(40).iter().map(|id| format!("{round}:{id}")).collect();
        let pushing = queue.clone();
        let pushed = names.clone();
        let pushes = tokio::spawn(async move {
            for id in pushed {
                pushing.push("").id(id).delay(HOUR).await?;
            }
            Ok::<_, dueq::Error>(())
        });
        cluster.finish_move(partition.slot, from, to).await?;
        pushes.await??;
        for id in &names {
            assert!(queue.get(id).await?.is_some(), "{id}");
        }
    }
    Ok(())
}

/// Unlike other calls, these reads do not wait for the frozen master. They report what they lack.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partial_reads_return_the_partitions_that_reply() -> Result<()> {
    let of = Partitioned::start().await?;
    of.push(&of.lost).await?;
    of.push(&of.intact).await?;
    let frozen = &of.cluster.masters[of.home];
    let address = format!("127.0.0.1:{}", frozen.port());
    let (client, queue) = (of.fresh().await?, of.fresh_queue().await?);
    let partitions = queue.partitions().await?.into_iter();
    let away = partitions.filter(|partition| partition.server == address);
    let away = away.map(|partition| format!("partition {} ({})", partition.index, partition.tag));
    let away: Vec<_> = away.collect();
    signal("-STOP", frozen.pid())?;
    let names =
        |unread: &[UnreadPart]| -> Vec<_> { unread.iter().map(|one| one.name.clone()).collect() };
    for queue in [queue, of.fresh_queue().await?] {
        let start = Stopwatch::start();
        let (stats, nodes, dues) = tokio::try_join!(
            queue.stats_reached(),
            queue.nodes_reached(),
            queue.dues_reached(&[])
        )?;
        // A call would be repeated for 10 s.
        assert!(
            start.elapsed() < Duration::from_secs(9),
            "{:?}",
            start.elapsed()
        );
        let counted = stats.value.scheduled + stats.value.ready;
        assert_eq!(counted, of.intact.len() as u64, "{stats:?}");
        for unread in [&stats.unread, &nodes.unread, &dues.unread] {
            assert_eq!(names(unread), away);
        }
        let checkup = queue.examine(false).await?;
        assert_eq!(checkup.findings[0].code, "unread", "{checkup:?}");
    }
    // A master that has just been silent is not waited for again; otherwise three reads would take
    // 6 s.
    let queue = of.fresh_queue().await?;
    let _ = queue.stats_reached().await?;
    let start = Stopwatch::start();
    for _ in 0..3 {
        assert_eq!(names(&queue.stats_reached().await?.unread), away);
        let history = queue
            .history_reached(dueq::inspect::HistoryResolution::Hours)
            .await?;
        assert_eq!(names(&history.unread), away);
    }
    assert!(
        start.elapsed() < Duration::from_secs(6),
        "{:?}",
        start.elapsed()
    );
    let found = client.queues_reached().await?;
    assert_eq!(found.value, ["orders"]);
    assert_eq!(names(&found.unread), [format!("the master at {address}")]);
    let checkup = client.examine().await?;
    assert_eq!(checkup.findings[0].code, "away", "{checkup:?}");
    let error = of
        .fresh_queue()
        .await?
        .stats()
        .await
        .expect_err("a master is away");
    let expected = format!("{} of 6 cannot be read: {}", away.len(), away.join(", "));
    assert!(error.to_string().starts_with(&expected), "{error}");
    signal("-CONT", frozen.pid())
}

/// While a master is silent, ids of the library's own go on to the partitions of the others: a
/// partition is open for 5 ms, also if its calls have no reply.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn library_ids_pass_the_partitions_of_a_silent_master() -> Result<()> {
    const PUSHES: usize = 60;
    let of = Partitioned::start_with(&ALONE).await?;
    let queue = of.fresh_queue().await?;
    // Opens the connections to all masters.
    push_all(&queue, messages(100)).await?;
    let frozen = of.cluster.masters[of.home].pid();
    signal("-STOP", frozen)?;
    let mut pushes = JoinSet::new();
    for _ in 0..PUSHES {
        let queue = queue.clone();
        pushes.spawn(async move { queue.push("").delay(HOUR).await });
        // Longer than a partition is open.
        tokio::time::sleep(Duration::from_millis(6)).await;
    }
    // Two of six partitions are on the silent master.
    let mut created = Vec::new();
    while created.len() < PUSHES / 2 {
        let ended = within("a push at another master", pushes.join_next()).await?;
        created.push(ended.context("a push")???);
    }
    while let Some(ended) = pushes.try_join_next() {
        created.push(ended??);
    }
    assert!(!pushes.is_empty(), "no push waits for the silent master");
    signal("-CONT", frozen)?;
    while let Some(ended) = pushes.join_next().await {
        created.push(ended??);
    }
    assert!(created.iter().all(Receipt::is_created), "{created:?}");
    let ids: BTreeSet<_> = created.iter().map(Receipt::id_bytes).collect();
    assert_eq!(ids.len(), PUSHES);
    let scheduled = queue.stats().await?.scheduled;
    assert_eq!(scheduled, 100 + PUSHES as u64);
    Ok(())
}

/// Most masters are dead, and the last one is configured to answer reads all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partial_reads_answer_while_the_cluster_is_down() -> Result<()> {
    let arguments = [
        "--cluster-require-full-coverage",
        "no",
        "--cluster-allow-reads-when-down",
        "yes",
    ];
    let mut cluster = Cluster::start_with(3, &arguments).await?;
    let (_, home) = cluster.place("orders").await?;
    let client = Client::connect(&cluster.url()).await?;
    assert!(client.queue("orders")?.push("").await?.is_created());
    for number in (0..3).filter(|number| *number != home) {
        cluster.masters[number].kill()?;
    }
    let alone = &cluster.masters[home];
    let mut connection = dueq_testkit::cluster::connection(alone.port()).await?;
    loop {
        let info: String = redis::cmd("CLUSTER")
            .arg("INFO")
            .query_async(&mut connection)
            .await?;
        if info.contains("cluster_state:fail") {
            break;
        }
    }
    // Both a client that starts now and one that already knows the cluster can read.
    for client in [Client::connect(&alone.url()).await?, client] {
        let queue = client.queue("orders")?;
        let start = Stopwatch::start();
        assert_eq!(queue.stats_reached().await?.value.scheduled, 1);
        // A call would be repeated for 10 s.
        assert!(start.elapsed() < Duration::from_secs(9));
        let refused = queue.push("").await.expect_err("the cluster is down");
        assert!(refused.to_string().contains("no majority"), "{refused}");
        assert_eq!(refused.was_applied(), dueq::Applied::No);
    }
    Ok(())
}
