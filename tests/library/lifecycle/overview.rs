//! When the messages of a queue are due, and which nodes are alive.

use anyhow::Result;
use dueq::inspect::{DueCounts, NodeInfo};
use dueq::{ErrorKind, MessageState, Queue, QueueStats};

use super::selections::{FAR_MS, filled};
use crate::support::{HOUR, LONG, acking, setup, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dues_counts_messages_between_times_in_all_partitions() -> Result<()> {
    for partitions in [1, 7] {
        let setup = filled(100, partitions, FAR_MS).await?;
        let DueCounts {
            counts,
            last_ms,
            now_ms,
            ..
        } = setup
            .queue
            .dues(&[FAR_MS, FAR_MS + 30, FAR_MS + 99])
            .await?;
        assert_eq!(counts, [0, 30, 69, 1]);
        assert_eq!(last_ms, Some(FAR_MS + 99));
        assert!(now_ms > 1_700_000_000_000 && now_ms < FAR_MS);
        let all = setup.queue.dues(&[]).await?;
        assert_eq!(all.counts, [100]);
    }
    Ok(())
}

#[tokio::test]
async fn dues_refuses_too_many_or_unordered_times() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let many: Vec<u64> = (1..=61).collect();
    for times in [&many[..], &[5, 5], &[6, 5], &[1, 2, 2]] {
        let error = queue.dues(times).await.expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{times:?}");
        assert_eq!(error.code(), None, "before the call");
    }
    let none = queue.dues(&many[..60]).await?;
    assert_eq!((none.counts.len(), none.last_ms), (61, None));
    assert!(!queue.exists().await?);
    Ok(())
}

async fn nodes_until(
    queue: &Queue,
    what: &str,
    good: impl Fn(&Vec<NodeInfo>) -> bool,
) -> Result<Vec<NodeInfo>> {
    until(what, async || Ok(queue.nodes().await?), good).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_are_live_workers_and_one_leads() -> Result<()> {
    for partitions in [1, 4] {
        let setup = filled(100, partitions, FAR_MS).await?;
        let queue = &setup.queue;
        assert_eq!(queue.nodes().await?, []);
        let (first, _) = acking(queue.worker());
        let (second, _) = acking(queue.worker());
        let led = |nodes: &Vec<NodeInfo>| -> usize { nodes.iter().map(|node| node.leads).sum() };
        let nodes = nodes_until(queue, "both nodes, and leaders", |nodes| {
            nodes.len() == 2 && led(nodes) == partitions
        })
        .await?;
        assert!(nodes[0].id < nodes[1].id, "sorted by their ids");
        for node in &nodes {
            assert!(node.silent_ms <= 3_000 && node.parked_ms == 0, "{node:?}");
            assert!(node.leads <= node.attends && node.attends <= partitions);
        }
        second.stop().await?;
        nodes_until(queue, "one node", |nodes| nodes.len() == 1).await?;
        first.stop().await?;
        nodes_until(queue, "no node", Vec::is_empty).await?;
    }
    Ok(())
}

#[tokio::test]
async fn queue_exists_from_its_first_push_to_its_deletion() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    assert!(!queue.exists().await?);
    assert_eq!(
        queue.stats().await?,
        QueueStats::default(),
        "reading creates no queue"
    );
    assert!(!queue.exists().await?);
    queue.push("").due(HOUR).await?;
    assert!(queue.exists().await?);
    assert!(queue.delete().await?);
    assert!(!queue.exists().await?);
    Ok(())
}

#[tokio::test]
async fn reading_an_absent_queue_finds_it_empty_and_creates_nothing() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    assert_eq!(queue.stats().await?, QueueStats::default());
    for state in [
        MessageState::Scheduled,
        MessageState::Ready,
        MessageState::Leased,
        MessageState::Dead,
    ] {
        let page = queue.list(state, None, 10).await?;
        assert!(page.messages.is_empty() && page.next.is_none(), "{state}");
    }
    assert_eq!(queue.claim(10, LONG).await?.len(), 0);
    assert_eq!(queue.purge(MessageState::Scheduled).await?, 0);
    queue.resume().await?;
    assert_eq!(
        setup.command::<Vec<String>>(&["KEYS", "*"]).await?,
        Vec::<String>::new()
    );
    Ok(())
}

#[tokio::test]
async fn queues_on_one_server_do_not_affect_each_other() -> Result<()> {
    let setup = setup().await?;
    let names = ["a", "a:b", "größe", "a b", "A", "1"];
    for name in names {
        setup
            .client
            .queue(name)?
            .push(name)
            .id("the same")
            .due(HOUR)
            .await?;
    }
    for name in names {
        let queue = setup.client.queue(name)?;
        assert_eq!(queue.name(), name);
        assert_eq!(queue.stats().await?.scheduled, 1, "{name}");
        assert_eq!(
            queue.get("the same").await?.expect("stored").payload,
            name.as_bytes()
        );
        assert_eq!(queue.purge(MessageState::Scheduled).await?, 1);
    }
    Ok(())
}
