//! A queue whose partitions are on several masters.

use std::collections::BTreeMap;

use anyhow::Result;
use dueq::{Applied, Client, Queue, Settled};
use dueq_testkit::cluster::Cluster;

use crate::support::{HOUR, LONG, ids, messages, push_all};

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
async fn each_master_has_its_share_of_the_partitions() -> Result<()> {
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
            assert_eq!(delivery.ack().await?, Settled::Done);
            claimed += 1;
        }
    }
    Ok(())
}

#[tokio::test]
async fn calls_on_all_partitions_name_those_that_cannot_be_reached() -> Result<()> {
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

    // The other partitions serve.
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
async fn ids_are_found_while_their_partition_moves() -> Result<()> {
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
