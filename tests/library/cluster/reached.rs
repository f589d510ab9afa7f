//! Reads that answer with what they reach, while a master is away.

use std::time::{Duration, Instant};

use anyhow::Result;
use dueq::Unread;

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
