//! Commands that select a part of a queue by time; and the list of live nodes.

use anyhow::{Context, Result};
use dueq_testkit::Server;

use crate::queues::operator::{json, says};
use crate::{Said, dueq};

const FIRST_MS: u64 = 1_796_126_400_000;

/// A queue of 30 messages, each due one second after the previous one, beginning at 2026-12-01
/// 12:00:00.
fn filled(server: &Server, partitions: &str) -> Result<()> {
    dueq(server, &["partitions", "q", partitions])?;
    for place in 0..30 {
        let (id, at) = (format!("m{place:02}"), FIRST_MS + 1_000 * place);
        let args = ["push", "q", "x", "--id", &id, "--at", &at.to_string()];
        assert_eq!(dueq(server, &args)?.code(), Some(0));
    }
    Ok(())
}

fn listed(server: &Server, args: &[&str]) -> Result<(Vec<String>, Option<String>)> {
    let (mut ids, mut cursor) = (Vec::new(), None);
    for line in json(server, &[&["ls", "q"], args].concat())? {
        match line["cursor"].as_str() {
            Some(next) => cursor = Some(next.to_owned()),
            None => ids.push(line["id"].as_str().context("an id")?.to_owned()),
        }
    }
    Ok((ids, cursor))
}

#[test]
fn ls_lists_from_a_moment_on_in_both_orders() -> Result<()> {
    for partitions in ["1", "3"] {
        let server = Server::start(&[])?;
        filled(&server, partitions)?;
        let (ids, cursor) = listed(&server, &["--newest", "--limit", "2"])?;
        assert_eq!(ids, ["m29", "m28"]);
        let cursor = cursor.context("a cursor")?;
        let next = ["--newest", "--limit", "2", "--cursor", &cursor];
        assert_eq!(listed(&server, &next)?.0, ["m27", "m26"]);
        let from = ["--from", "2026-12-01T12:00:28Z"];
        assert_eq!(listed(&server, &from)?.0, ["m28", "m29"]);
        let zoned = ["--from", "2026-12-01 13:00:01", "--tz", "Europe/Paris"];
        let newest = listed(&server, &[&zoned[..], &["--newest"]].concat())?;
        assert_eq!(newest.0, ["m01", "m00"]);
        let wrong = dueq(&server, &["ls", "q", "--from", "soon"])?;
        assert_eq!(wrong.code(), Some(2), "{}", wrong.err());
    }
    Ok(())
}

#[test]
fn purge_and_requeue_reach_up_to_a_moment() -> Result<()> {
    let server = Server::start(&[])?;
    filled(&server, "1")?;
    let before = (FIRST_MS + 9_000).to_string();
    let purge = ["purge", "q", "--state", "scheduled", "--before", &before];
    let kept = dueq(&server, &purge)?;
    assert_eq!(kept.code(), Some(1));
    let selected = "q has 10 scheduled messages that the flags select";
    assert!(kept.err().contains(selected), "{}", kept.err());
    says(
        &server,
        &[&purge[..], &["--yes", "--json"]].concat(),
        0,
        "{\"count\":10,\"outcome\":\"purged\",\"queue\":\"q\"}\n",
    )?;
    server.command(&["ZADD", "dueq:{q}:dead", &before, "m10"])?;
    server.command(&["ZREM", "dueq:{q}:scheduled", "m10"])?;
    let since = |moment: u64| moment.to_string();
    let later = since(FIRST_MS + 9_001);
    let none = |what: &str| format!("{{\"count\":0,\"outcome\":\"{what}\",\"queue\":\"q\"}}\n");
    let purge = [
        "purge", "q", "--state", "dead", "--yes", "--json", "--after",
    ];
    says(
        &server,
        &[&purge[..], &[&later]].concat(),
        0,
        &none("purged"),
    )?;
    let requeue = ["requeue", "q", "--json", "--after", &later];
    says(&server, &requeue, 0, &none("requeued"))?;
    for (moment, count) in [(FIRST_MS, 0), (FIRST_MS + 9_000, 1)] {
        let moment = moment.to_string();
        says(
            &server,
            &["requeue", "q", "--before", &moment, "--json"],
            0,
            &format!("{{\"count\":{count},\"outcome\":\"requeued\",\"queue\":\"q\"}}\n"),
        )?;
    }
    server.command(&["ZADD", "dueq:{q}:dead", &before, "m10"])?;
    server.command(&["ZREM", "dueq:{q}:scheduled", "m10"])?;
    let (from, until) = (since(FIRST_MS), since(FIRST_MS + 9_000));
    says(
        &server,
        &[&purge[..], &[&from, "--before", &until]].concat(),
        0,
        "{\"count\":1,\"outcome\":\"purged\",\"queue\":\"q\"}\n",
    )?;
    // Without --yes a purge counts what the times and the filter select.
    for (flags, count) in [
        (&["--since", "10m"][..], "0 dead messages that"),
        (&["--error-text", "timeout"], "0 dead messages that"),
        (&["--before", &until], "0 dead messages that"),
    ] {
        let kept = dueq(
            &server,
            &[&["purge", "q", "--state", "dead"], flags].concat(),
        )?;
        assert!(kept.err().contains(count), "{flags:?}: {}", kept.err());
    }
    // It died in 2026, and so long ago.
    let requeue = ["requeue", "q", "--json", "--since"];
    says(
        &server,
        &[&requeue[..], &["10m"]].concat(),
        0,
        &none("requeued"),
    )?;
    for wrong in [
        &["requeue", "q", "--since", "10m", "--after", &before][..],
        &["requeue", "q", "--since", "yesterday"],
        &["requeue", "q", "--before", &before, "--all"],
        &["requeue", "q", "--tz", "UTC", "--all"],
        &[
            "purge", "q", "--state", "ready", "--yes", "--after", &before,
        ],
    ] {
        assert_eq!(dueq(&server, wrong)?.code(), Some(2), "{wrong:?}");
    }
    Ok(())
}

#[test]
fn filter_selects_by_error_failures_and_crashes() -> Result<()> {
    let server = Server::start(&[])?;
    for (id, attributes) in [
        ("a", "3 0 - \nbank: Timeout after 5 s"),
        ("b", "1 2 - \nrefused"),
        ("c", "0 0 - \ntimeout"),
    ] {
        dueq(&server, &["push", "q", "x", "--id", id, "--delay", "48h"])?;
        server.command(&["ZREM", "dueq:{q}:scheduled", id])?;
        server.command(&["ZADD", "dueq:{q}:dead", "1796126400000", id])?;
        server.command(&["HSET", "dueq:{q}:attrs", id, attributes])?;
    }
    let dead = |flags: &[&str]| Ok::<_, anyhow::Error>(listed(&server, flags)?.0);
    let timeout = ["--state", "dead", "--error-text", "TIMEOUT"];
    assert_eq!(dead(&timeout)?, ["a", "c"]);
    assert_eq!(
        dead(&[&timeout[..], &["--min-failures", "2"]].concat())?,
        ["a"]
    );
    assert_eq!(dead(&["--state", "dead", "--min-crashes", "1"])?, ["b"]);
    let purge = [
        "purge",
        "q",
        "--json",
        "--error-text",
        "time",
        "--state",
        "dead",
    ];
    let kept = dueq(&server, &purge)?;
    assert!(
        kept.err().contains("2 dead messages that the flags select"),
        "{}",
        kept.err()
    );
    let count = |count: u64, word: &str| {
        format!("{{\"count\":{count},\"outcome\":\"{word}\",\"queue\":\"q\"}}\n")
    };
    says(
        &server,
        &[&purge[..], &["--yes"]].concat(),
        0,
        &count(2, "purged"),
    )?;
    // It died in the future, and a requeue takes what has died until now.
    let requeue = ["requeue", "q", "--json", "--all", "--min-crashes", "2"];
    says(&server, &requeue, 0, &count(0, "requeued"))?;
    server.command(&["ZADD", "dueq:{q}:dead", "5", "b"])?;
    says(&server, &requeue, 0, &count(1, "requeued"))?;
    let wrong = dueq(&server, &["requeue", "q", "b", "--min-crashes", "2"])?;
    assert_eq!(wrong.code(), Some(2), "{}", wrong.err());
    Ok(())
}

#[test]
fn nodes_are_listed_while_they_live() -> Result<()> {
    let server = Server::start(&[])?;
    dueq(&server, &["configure", "q", "--max-attempts", "3"])?;
    assert_eq!(json(&server, &["nodes", "q"])?.len(), 0);
    server.command(&["HSET", "dueq:{q}:meta", "leader", "far"])?;
    server.command(&["HSET", "dueq:{q}:meta", "leader_until", "99999999999999"])?;
    server.command(&["ZADD", "dueq:{q}:nodes", "99999999999999", "far"])?;
    server.command(&["ZADD", "dueq:{q}:nodes", "5", "gone"])?;
    let nodes = json(&server, &["nodes", "q"])?;
    assert_eq!((nodes.len(), &nodes[0]["node"]), (1, &"far".into()));
    assert_eq!(
        (&nodes[0]["leads"], &nodes[0]["attends"]),
        (&1.into(), &1.into())
    );
    let table = dueq(&server, &["nodes", "q"])?.out();
    assert!(
        table.contains("far") && table.contains("parked, again in"),
        "{table}"
    );
    Ok(())
}
