//! `dueq partitions`: a change of the number of partitions of a queue with messages.

use anyhow::{Context, Result};
use dueq_testkit::Server;

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
    let other = dueq(&server, &["partitions", "q", "2"])?;
    assert_ne!(other.code(), Some(0));
    assert!(other.err().contains("from 3 to 1"), "{}", other.err());
    let back = dueq(&server, &["partitions", "q", "--abort"])?;
    assert_eq!(back.code(), Some(0), "{}", back.err());
    assert_eq!(json(&server, &["partitions", "q"])?.len(), 3);
    Ok(())
}
