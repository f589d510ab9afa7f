//! Reads that answer with what they reach, while a master is away.

use std::time::{Duration, Instant};

use anyhow::Result;
use dueq::{Client, Unread};
use dueq_testkit::cluster::Cluster;

use super::away::Partitioned;
use crate::faults::signal;

/// Reads do not wait for the frozen master as calls do, and say what they lack.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_answer_with_the_partitions_that_they_reach() -> Result<()> {
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
        |unread: &[Unread]| -> Vec<_> { unread.iter().map(|one| one.name.clone()).collect() };
    for queue in [queue, of.fresh_queue().await?] {
        let start = Instant::now();
        let (stats, nodes, dues) = tokio::try_join!(
            queue.stats_reached(),
            queue.nodes_reached(),
            queue.dues_reached(&[])
        )?;
        // A call is repeated for 10 s.
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
    // A master that was silent a moment ago is not waited for again: three reads would take 6 s.
    let queue = of.fresh_queue().await?;
    let _ = queue.stats_reached().await?;
    let start = Instant::now();
    for _ in 0..3 {
        assert_eq!(names(&queue.stats_reached().await?.unread), away);
        let history = queue.history_reached(dueq::Resolution::Hours).await?;
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

/// The majority of the masters is dead, and the last one is configured to answer reads all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_answer_while_the_cluster_is_down() -> Result<()> {
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
    // Both that start now, and those that know the cluster.
    for client in [Client::connect(&alone.url()).await?, client] {
        let queue = client.queue("orders")?;
        let start = Instant::now();
        assert_eq!(queue.stats_reached().await?.value.scheduled, 1);
        // A call is repeated for 10 s.
        assert!(start.elapsed() < Duration::from_secs(9));
        let refused = queue.push("").await.expect_err("the cluster is down");
        assert!(refused.to_string().contains("no majority"), "{refused}");
        assert_eq!(refused.was_applied(), dueq::Applied::No);
    }
    Ok(())
}
