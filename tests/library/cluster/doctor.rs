//! The doctor examines a cluster, and the partitions of a queue.

use anyhow::{Context, Result};
use dueq::admin::{Checkup, Finding};
use dueq::{Client, Message};
use dueq_testkit::cluster::Cluster;

use crate::support::{command, setup};

async fn connected() -> Result<(Cluster, Client)> {
    let cluster = Cluster::start(3).await?;
    let client = Client::connect(&cluster.url()).await?;
    Ok((cluster, client))
}

/// The findings of the checkup with this code.
fn found<'a>(checkup: &'a Checkup, code: &str) -> Vec<&'a Finding> {
    let all = checkup.findings.iter();
    all.filter(|finding| finding.code == code).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_examines_settings_and_libraries_of_all_masters() -> Result<()> {
    let (cluster, client) = connected().await?;
    for master in 0..3 {
        for setting in [
            "cluster-require-full-coverage no",
            "cluster-allow-reads-when-down yes",
        ] {
            let (name, value) = setting.split_once(' ').context("a pair")?;
            let set: String = cluster
                .command(master, &["CONFIG", "SET", name, value])
                .await?;
            assert_eq!(set, "OK");
        }
    }
    let sound = client.examine().await?;
    for code in [
        "node_timeout",
        "full_coverage",
        "reads_when_down",
        "clocks",
        "open_slot",
        "functions",
    ] {
        assert_eq!(found(&sound, code), [] as [&Finding; 0], "{code}");
    }
    client.load_functions().await?;
    let second = format!("127.0.0.1:{}", cluster.masters[1].port());
    for command in [
        &["FUNCTION", "DELETE", "dueq"][..],
        &["CONFIG", "SET", "cluster-node-timeout", "15000"],
        &["CONFIG", "SET", "cluster-require-full-coverage", "yes"],
        &["CONFIG", "SET", "cluster-allow-reads-when-down", "no"],
    ] {
        let _: String = cluster.command(1, command).await?;
    }
    let checkup = client.examine().await?;
    for code in [
        "node_timeout",
        "full_coverage",
        "reads_when_down",
        "functions",
    ] {
        let found = found(&checkup, code);
        assert_eq!(found.len(), 1, "{code}: {checkup:#?}");
        assert!(found[0].problem.contains(&second), "{found:?}");
        assert!(!found[0].remedy.is_empty());
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slot_that_stays_half_moved_is_a_finding() -> Result<()> {
    let (cluster, client) = connected().await?;
    let (slot, from) = cluster.place("orders").await?;
    let to = (from + 1) % 3;
    cluster.begin_move(slot, from, to).await?;
    let checkup = client.examine().await?;
    let open = found(&checkup, "open_slot");
    // Both masters report the slot.
    assert_eq!(open.len(), 2, "{checkup:#?}");
    assert!(
        open.iter()
            .all(|one| one.problem.contains(&format!("slot {slot}")))
    );
    cluster.finish_move(slot, from, to).await?;
    assert_eq!(
        found(&client.examine().await?, "open_slot"),
        [] as [&Finding; 0]
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn uneven_partitions_are_named_with_their_moves() -> Result<()> {
    let (cluster, client) = connected().await?;
    let queue = client.queue("orders")?;
    queue.partition_into(6).await?;
    queue.push("").id("order:42").await?;
    let sound = queue.examine(false).await?;
    assert_eq!(sound.findings, [], "{sound:#?}");
    // Two partitions of the second master are moved to the first one.
    let partitions = queue.partitions().await?;
    let second = cluster.masters[1].port();
    let mut moved = Vec::new();
    for partition in partitions {
        if partition.server.ends_with(&format!(":{second}")) {
            cluster.begin_move(partition.slot, 1, 0).await?;
            cluster.finish_move(partition.slot, 1, 0).await?;
            moved.push(partition.slot);
        }
    }
    assert_eq!(moved.len(), 2);
    // A new client learns the present masters.
    let client = Client::connect(&cluster.url()).await?;
    let checkup = client.queue("orders")?.examine(false).await?;
    let uneven = found(&checkup, "uneven");
    assert_eq!(uneven.len(), 1, "{checkup:#?}");
    assert!(uneven[0].problem.contains("fair share"), "{uneven:?}");
    assert!(uneven[0].remedy.contains("-p "), "{uneven:?}");
    Ok(())
}

#[tokio::test]
async fn partition_that_lost_its_map_is_found_and_repaired() -> Result<()> {
    let setup = setup().await?;
    setup.queue.partition_into(4).await?;
    let mut redis = setup.redis().await?;
    let partitions = setup.queue.partitions().await?;
    let tag = format!("orders/{}", partitions[2].tag);
    let keys = format!("dueq:{{{tag}}}:meta");
    let all: Vec<String> = command(&mut redis, &["KEYS", &format!("dueq:{{{tag}}}:*")]).await?;
    let unlink: Vec<&str> = ["UNLINK"]
        .into_iter()
        .chain(all.iter().map(String::as_str))
        .collect();
    let _: i64 = command(&mut redis, &unlink).await?;
    for (repair, repaired) in [(false, false), (true, true)] {
        let checkup = setup.queue.examine(repair).await?;
        let lost = found(&checkup, "map");
        assert_eq!(lost.len(), 1, "{checkup:#?}");
        assert!(lost[0].problem.contains("has no map"), "{lost:?}");
        assert_eq!(lost[0].repaired, repaired);
    }
    let map: String = command(&mut redis, &["HGET", &keys, "map"]).await?;
    assert!(map.contains("|-"), "{map}");
    assert_eq!(setup.queue.examine(false).await?.findings, []);
    // A map that cannot be read ends the examination of the partitions.
    let _: i64 = command(&mut redis, &["HSET", "dueq:{orders}:meta", "map", "x"]).await?;
    let checkup = setup.queue.examine(true).await?;
    assert_eq!(found(&checkup, "map").len(), 1, "{checkup:#?}");
    Ok(())
}

#[tokio::test]
async fn damage_in_any_partition_is_found_and_named() -> Result<()> {
    let setup = setup().await?;
    setup.queue.partition_into(4).await?;
    let messages = (0..40).map(|n| Message::new("x").id(format!("order:{n}")));
    for receipt in setup.queue.push_many(messages).await {
        let _ = receipt?;
    }
    let partitions = setup.queue.partitions().await?;
    let mut redis = setup.redis().await?;
    let key = format!("dueq:{{orders/{}}}:messages", partitions[3].tag);
    let ids: Vec<String> = command(&mut redis, &["HKEYS", &key]).await?;
    let id = ids
        .iter()
        .find(|id| id.starts_with("order:"))
        .context("a message")?;
    let _: i64 = command(&mut redis, &["HDEL", &key, id]).await?;
    let checkup = setup.queue.examine(false).await?;
    let hollow = found(&checkup, "hollow");
    assert_eq!(hollow.len(), 1, "{checkup:#?}");
    assert!(hollow[0].problem.starts_with("partition 3 ("), "{hollow:?}");
    Ok(())
}
