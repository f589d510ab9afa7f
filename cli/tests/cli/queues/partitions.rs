//! `dueq partitions`: a change of the number of partitions of a queue with messages.

use anyhow::{Context, Result};
use dueq_testkit::Server;
use dueq_testkit::cluster::Cluster;

use crate::queues::operator::json;
use crate::{Said, dueq};

#[test]
fn partitions_of_a_queue_with_messages_change_and_report_it() -> Result<()> {
    let server = Server::start(&[])?;
    for id in ["a", "b", "c", "d", "e", "f"] {
        let args = ["push", "q", "x", "--id", id, "--delay", "1h"];
        assert_eq!(dueq(&server, &args)?.code(), Some(0));
    }
    let nothing = dueq(&server, &["partitions", "q", "--abort"])?;
    assert_eq!(nothing.code(), Some(2), "{}", nothing.err());
    assert!(
        nothing.err().contains("nothing to take back"),
        "{}",
        nothing.err()
    );
    let lines = json(&server, &["partitions", "q", "3", "--pace", "open"])?;
    let (progress, partitions) = lines.split_at(lines.len() - 3);
    let last = progress.last().context("no progress")?;
    assert_eq!(
        (&last["phase"], &last["left"]),
        (&"complete".into(), &0.into())
    );
    let messages: u64 = partitions
        .iter()
        .filter_map(|one| one["messages"].as_u64())
        .sum();
    assert_eq!(messages, 6);
    assert!(
        partitions.iter().all(|one| one["change"] == ""),
        "{partitions:?}"
    );
    let shown = dueq(&server, &["partitions", "q"])?;
    assert!(!shown.out().contains("changing"), "{}", shown.out());

    // A process has begun a change and ended.
    let meta = server.command(&["HGET", "dueq:{q}:meta", "map"])?;
    let (epoch, tags) = meta.trim().split_once('|').context("a map")?;
    let tags = tags.split('|').next().context("tags")?;
    let keys = dueq::admin::queue_keys("q")?;
    let next = format!("{}|{tags}|-", epoch.parse::<u64>()? + 1);
    assert_eq!(dueq(&server, &["functions", "load"])?.code(), Some(0));
    let mut remap = vec!["FCALL", "dueq_remap", "10"];
    remap.extend(keys.iter().map(String::as_str));
    remap.extend(["", "close", epoch, &next]);
    server.command(&remap)?;
    let shown = dueq(&server, &["partitions", "q"])?.out();
    let expected =
        "changing from 3 to 1 partitions, 0 messages on their way: `dueq partitions q 1`";
    assert!(
        shown.contains(expected) && shown.contains("leaves"),
        "{shown}"
    );
    assert_eq!(json(&server, &["stats", "q"])?[0]["changing_to"], 1);
    let other = dueq(&server, &["partitions", "q", "2"])?;
    assert_ne!(other.code(), Some(0));
    assert!(other.err().contains("from 3 to 1"), "{}", other.err());
    let back = dueq(&server, &["partitions", "q", "--abort"])?;
    assert_eq!(back.code(), Some(0), "{}", back.err());
    assert_eq!(json(&server, &["partitions", "q"])?.len(), 3);
    Ok(())
}

/// A queue with 2,000 messages of 1 kB each.
async fn filled(url: &str) -> Result<dueq::Queue> {
    let queue = dueq::Client::connect(url).await?.queue("q")?;
    let message = |number: usize| {
        let message = dueq::Message::new(vec![b'x'; 1_000]).id(format!("m{number}"));
        message.due(dueq::Due::at_ms(1_900_000_000_000))
    };
    for pushed in queue.push_many((0..2_000).map(message)).await {
        let _ = pushed?;
    }
    Ok(queue)
}

/// Checks that the queue has one partition and all its messages.
async fn unchanged(queue: &dueq::Queue) -> Result<()> {
    assert_eq!(queue.partitions().await?.len(), 1);
    let stats = queue.stats().await?;
    assert_eq!((stats.scheduled, stats.moving), (2_000, 0));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_numbers_of_partitions_change_nothing() -> Result<()> {
    let server = Server::start(&[])?;
    let queue = filled(&server.url()).await?;
    for count in ["0", "257", "many", "-1", "1.5"] {
        let refused = dueq(&server, &["partitions", "q", "--", count])?;
        assert_eq!(refused.code(), Some(2), "{count}: {}", refused.err());
    }
    let same = dueq(&server, &["partitions", "q", "1"])?;
    assert_eq!(same.code(), Some(0), "{}", same.err());
    let said = "queue q has 1 partitions: nothing to do";
    assert!(same.err().contains(said), "{}", same.err());
    unchanged(&queue).await
}

#[tokio::test(flavor = "multi_thread")]
async fn present_number_of_partitions_is_nothing_to_do() -> Result<()> {
    let server = Server::start(&[])?;
    let first = dueq(&server, &["partitions", "q", "5"])?;
    assert_eq!(first.code(), Some(0), "{}", first.err());
    let crowded = "5 partitions on 1 masters are up to 5 on each";
    assert!(first.err().contains(crowded), "{}", first.err());
    assert!(first.err().contains("2 masters for 5"), "{}", first.err());
    let map = server.command(&["HGET", "dueq:{q}:meta", "map"])?;
    let again = dueq(&server, &["partitions", "q", "5"])?;
    assert_eq!(again.code(), Some(0));
    assert_eq!(again.err(), "queue q has 5 partitions: nothing to do\n");
    assert_eq!(server.command(&["HGET", "dueq:{q}:meta", "map"])?, map);
    let fewer = dueq(&server, &["partitions", "q", "4"])?;
    assert_eq!((fewer.code(), fewer.err()), (Some(0), String::new()));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_stay_if_replicas_are_missing() -> Result<()> {
    let server = Server::start(&[])?;
    let queue = filled(&server.url()).await?;
    server.command(&["CONFIG", "SET", "min-replicas-to-write", "2"])?;
    // An operator may not read the setting.
    let operator = crate::roles::user(&server, "operator", "q")?;
    for (url, least) in [(server.url(), "2"), (operator, "more")] {
        let refused = crate::roles::as_user(&url, &["partitions", "q", "3"])?;
        assert_eq!(refused.code(), Some(1), "{}", refused.err());
        let said =
            format!("0 replicas follow in time, but min-replicas-to-write is {least}: bring");
        assert!(refused.err().contains(&said), "{}", refused.err());
    }
    unchanged(&queue).await
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_stay_if_the_user_is_no_operator() -> Result<()> {
    let server = Server::start(&[])?;
    let queue = filled(&server.url()).await?;
    for role in ["producer", "consumer"] {
        let user = crate::roles::user(&server, role, "q")?;
        crate::roles::refused(&user, &["partitions", "q", "3"])?;
    }
    unchanged(&queue).await
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_stay_if_a_server_has_no_room() -> Result<()> {
    let cluster = Cluster::start(3).await?;
    let queue = filled(&cluster.url()).await?;
    let full = (cluster.place("q").await?.1 + 1) % 3;
    let info: String = cluster.command(full, &["INFO", "memory"]).await?;
    let used = info
        .lines()
        .find_map(|line| line.strip_prefix("used_memory:"));
    let used: u64 = used.context("used_memory")?.trim().parse()?;
    // A third of 2 MB would come to this server.
    for (room, fits) in [(300_000, false), (4_000_000, true)] {
        let most = (used + room).to_string();
        let _: String = cluster
            .command(full, &["CONFIG", "SET", "maxmemory", &most])
            .await?;
        let changed = crate::roles::as_user(&cluster.url(), &["partitions", "q", "3"])?;
        if fits {
            assert_eq!(changed.code(), Some(0), "{}", changed.err());
            assert_eq!(queue.partitions().await?.len(), 3);
        } else {
            assert_eq!(changed.code(), Some(1), "{}", changed.err());
            let port = format!(":{} has no room", cluster.masters[full].port());
            assert!(changed.err().contains(&port), "{}", changed.err());
            assert!(changed.err().contains(&most), "{}", changed.err());
            unchanged(&queue).await?;
        }
    }
    assert_eq!(queue.stats().await?.scheduled, 2_000);
    Ok(())
}
