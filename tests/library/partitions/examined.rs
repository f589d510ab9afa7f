//! The doctor examines a queue whose partitions change, and partitions that its map does not have.

use anyhow::{Context, Result};
use dueq::Client;
use dueq::admin::{Checkup, Finding};
use dueq_testkit::cluster::Cluster;

use super::{base, remap};
use crate::support::{Setup, setup};

const SETTLED: &str = "1700000000007|- 5|- 5";

/// A queue of two partitions.
async fn of_two() -> Result<Setup> {
    let setup = setup().await?;
    for tag in ["-", "5"] {
        assert_eq!(remap(&setup, tag, &["forward", SETTLED]).await?, "DONE");
    }
    assert_eq!(setup.queue.partitions().await?.len(), 2);
    Ok(setup)
}

fn of_code<'a>(found: &'a [Finding], code: &str) -> Vec<&'a Finding> {
    found.iter().filter(|one| one.code == code).collect()
}

/// The only finding of a checkup.
fn only<'a>(checkup: &'a Checkup, code: &str) -> Result<&'a Finding> {
    let found = of_code(&checkup.findings, code);
    assert_eq!(checkup.findings.len(), 1, "{checkup:#?}");
    found.first().copied().context(code.to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn empty_orphans_are_found_and_removed() -> Result<()> {
    let setup = of_two().await?;
    // The larger tag is found by the map of the smaller one.
    for tag in ["9", "70000"] {
        let map = ["forward", "1700000000003|- 9|- 9 70000"];
        assert_eq!(remap(&setup, tag, &map).await?, "DONE");
    }
    let brief = setup.queue.examine_briefly().await?;
    assert_eq!(of_code(&brief.findings, "orphan").len(), 0, "{brief:#?}");
    for repair in [false, true] {
        let checkup = setup.queue.examine(repair).await?;
        let orphans = of_code(&checkup.findings, "orphan");
        assert_eq!(orphans.len(), 2, "{checkup:#?}");
        for (orphan, tag) in orphans.iter().zip(["9", "70000"]) {
            assert_eq!(orphan.subject, tag.as_bytes());
            assert_eq!(orphan.repaired, repair);
        }
    }
    let checkup = setup.queue.examine(false).await?;
    assert_eq!(checkup.findings, [], "{checkup:#?}");
    for tag in ["9", "70000"] {
        let glob = format!("{}:*", base(&setup, tag));
        let keys: Vec<String> = setup.command(&["KEYS", &glob]).await?;
        assert_eq!(keys, [] as [String; 0]);
    }
    assert_eq!(setup.queue.partitions().await?.len(), 2);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_orphan_with_messages_is_left_alone() -> Result<()> {
    let setup = of_two().await?;
    let map = ["forward", "1700000000003|- 9|- 9"];
    assert_eq!(remap(&setup, "9", &map).await?, "DONE");
    let key = |name: &str| format!("{}:{name}", base(&setup, "9"));
    let (scheduled, stored) = (key("scheduled"), key("messages"));
    let due = "1900000000000";
    let _: i64 = setup
        .command(&["ZADD", &scheduled, due, "order:42"])
        .await?;
    let _: i64 = setup.command(&["HSET", &stored, "order:42", "x"]).await?;
    let checkup = setup.queue.examine(true).await?;
    let orphan = only(&checkup, "orphan")?;
    assert!(orphan.problem.contains("has 1 messages"), "{orphan:?}");
    assert!(!orphan.repaired);
    // The remedy's commands show the id, and remove the partition.
    let words = |command: &str| -> Vec<String> {
        let words = command.split(' ').skip_while(|word| *word != "-c").skip(1);
        words
            .map(|word| word.trim_matches('\'').to_owned())
            .collect()
    };
    let (look, remove) = orphan.remedy.split_once("    # ").context("two")?;
    let ids: Vec<String> = commanded(&setup, &words(look)).await?;
    assert!(ids.contains(&"order:42".to_owned()), "{ids:?}");
    let removed: i64 = commanded(&setup, &words(remove)).await?;
    assert!(removed > 5, "{removed}");
    let keys: Vec<String> = setup.command(&["KEYS", &key("*")]).await?;
    assert_eq!(keys, [] as [String; 0]);
    assert_eq!(setup.queue.examine(false).await?.findings, []);
    Ok(())
}

async fn commanded<T: redis::FromRedisValue>(setup: &Setup, words: &[String]) -> Result<T> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    setup.command(&words).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_home_with_older_data_gets_the_map_of_a_newer_partition() -> Result<()> {
    let cluster = Cluster::start(3).await?;
    let client = Client::connect(&cluster.url()).await?;
    let queue = client.queue("orders")?;
    queue.partition_into(6).await?;
    let place = cluster.place("orders").await?.1;
    let meta = "dueq:{orders}:meta";
    let newer: String = cluster.command(place, &["HGET", meta, "map"]).await?;
    // The home's master lost its last writes: it has the map from before the change.
    let older = ["epoch", "7", "map", "7|- 200|- 200"];
    let older = [&["HSET", meta][..], &older].concat();
    let _: i64 = cluster.command(place, &older).await?;
    let fresh = Client::connect(&cluster.url()).await?.queue("orders")?;
    let checkup = fresh.examine(true).await?;
    let lost = of_code(&checkup.findings, "map");
    let newer_map = lost.iter().find(|one| one.problem.contains("older data"));
    assert!(newer_map.is_some_and(|one| one.repaired), "{checkup:#?}");
    let stored: String = cluster.command(place, &["HGET", meta, "map"]).await?;
    assert_eq!(stored, newer);
    // The same repair made partition 200 of the older map again.
    let checkup = fresh.examine(true).await?;
    assert!(only(&checkup, "orphan")?.repaired, "{checkup:#?}");
    assert_eq!(fresh.examine(false).await?.findings, []);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_is_a_fault_only_if_nobody_drives_it() -> Result<()> {
    let setup = of_two().await?;
    let change = "1700000000008|- 5|- 5 9";
    for (tag, form) in [("-", "close"), ("5", "close"), ("9", "forward")] {
        let args = [form, "1700000000007", change];
        let args = if form == "close" {
            &args[..]
        } else {
            &[form, change]
        };
        assert_eq!(remap(&setup, tag, args).await?, "DONE");
    }
    let checkup = setup.queue.examine(true).await?;
    assert_eq!(checkup.findings, [], "{checkup:#?}");
    let remarks = of_code(&checkup.remarks, "changing");
    assert_eq!(remarks.len(), 1, "{checkup:#?}");
    assert!(remarks[0].problem.contains("from 2 to 3"), "{remarks:?}");
    // Nobody has driven the change for long.
    let meta = ["-", "5"].map(|tag| format!("{}:meta", base(&setup, tag)));
    let _: i64 = setup
        .command(&["HSET", &meta[0], "mapped_ms", "1700000000000"])
        .await?;
    let batch = ["HSET", &meta[1], "moving", "1700000000000000 9 17"];
    let _: i64 = setup.command(&batch).await?;
    for checkup in [
        setup.queue.examine(false).await?,
        setup.queue.examine_briefly().await?,
    ] {
        let finding = only(&checkup, "changing")?;
        assert!(
            finding.problem.contains("17 messages are on their way"),
            "{finding:?}"
        );
        assert!(finding.remedy.contains("dueq partitions orders 3"));
    }
    Ok(())
}
