//! `delete-queue` refuses queues of another layout and keys of other programs, and drops unused queues.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use dueq_testkit::Server;

use crate::{Said, dueq};

const DELETE: [&str; 3] = ["delete-queue", "q", "--yes"];

fn queue() -> Result<Server> {
    let server = Server::start(&[])?;
    assert!(
        dueq(&server, &["push", "q", "x", "--id", "m", "--delay", "1h"])?
            .status
            .success()
    );
    Ok(server)
}

#[test]
fn delete_queue_refuses_another_layout() -> Result<()> {
    let server = queue()?;
    server.command(&["HSET", "dueq:{q}:meta", "layout", "99"])?;
    let before = server.command(&["DBSIZE"])?;
    let output = dueq(&server, &DELETE)?;
    assert_eq!(output.code(), Some(1), "{}", output.out());
    assert!(output.err().contains("LAYOUT"), "{}", output.err());
    assert_eq!(server.command(&["DBSIZE"])?, before);
    Ok(())
}

#[test]
fn delete_queue_refuses_a_key_of_another_program() -> Result<()> {
    let suffixes = [
        "scheduled",
        "ready",
        "leases",
        "claims",
        "messages",
        "attrs",
        "dead",
        "recent",
        "nodes",
        "meta",
        "wake",
    ];
    let server = queue()?;
    for suffix in suffixes {
        let (key, kept) = (format!("dueq:{{q}}:{suffix}"), format!("kept:{suffix}"));
        let exists = server.command(&["EXISTS", &key])? == ":1\r\n";
        if exists {
            server.command(&["RENAME", &key, &kept])?;
        }
        server.command(&["SET", &key, "mine"])?;
        let before = server.command(&["DBSIZE"])?;
        let output = dueq(&server, &DELETE)?;
        let said = output.err();
        assert_eq!(output.code(), Some(1), "{suffix}: {}", output.out());
        assert!(
            said.contains(&key) && said.contains("string"),
            "{suffix}: {said}"
        );
        assert_eq!(
            (
                server.command(&["GET", &key])?,
                server.command(&["DBSIZE"])?
            ),
            ("mine".to_owned(), before)
        );
        server.command(&["DEL", &key])?;
        if exists {
            server.command(&["RENAME", &kept, &key])?;
        }
    }
    assert_eq!(dueq(&server, &DELETE)?.out(), "deleted q\n");
    assert_eq!(server.command(&["DBSIZE"])?, ":0\r\n");
    Ok(())
}

/// A damaged queue must still be deletable.
#[test]
fn delete_queue_removes_a_damaged_queue() -> Result<()> {
    for damage in [
        &["HSET", "dueq:{q}:meta", "seq", "abc"][..],
        &["DEL", "dueq:{q}:meta"],
        &["DEL", "dueq:{q}:ready", "dueq:{q}:scheduled"],
        &["HSET", "dueq:{q}:meta", "incarnation", ""],
    ] {
        let server = queue()?;
        server.command(damage)?;
        let output = dueq(&server, &DELETE)?;
        assert_eq!(output.out(), "deleted q\n", "{damage:?}: {}", output.err());
        assert_eq!(server.command(&["DBSIZE"])?, ":0\r\n", "{damage:?}");
    }
    Ok(())
}

#[test]
fn delete_queue_drops_only_unused_queues_of_the_pattern() -> Result<()> {
    let server = Server::start(&[])?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis();
    let record = format!(
        "{}|1 0 0 0 0 0 0 0 1 0 0 0 0 0 0|0 0 0 0|",
        now - 31 * 86_400_000
    );
    for name in ["hook-1", "hook-2", "hook-3", "other"] {
        dueq(&server, &["push", name, "x", "--id", "m", "--delay", "1h"])?;
        if name != "hook-2" {
            dueq(&server, &["cancel", name, "m"])?;
        }
        let meta = format!("dueq:{{{name}}}:meta");
        server.command(&["HSET", &meta, "history", &record])?;
    }
    dueq(&server, &["configure", "hook-3", "--max-attempts", "5"])?;
    let command = ["delete-queue", "--empty-for", "30d", "hook-*"];
    let output = dueq(&server, &command)?;
    let kept = "kept hook-2 (messages)\nkept hook-3 (settings)\n";
    assert_eq!(output.out(), format!("unused hook-1\n{kept}"));
    assert_eq!(output.code(), Some(1), "{}", output.err());
    let output = dueq(&server, &[&command[..], &["--yes"]].concat())?;
    assert_eq!(output.out(), format!("deleted hook-1\n{kept}"));
    assert_eq!(output.code(), Some(0), "{}", output.err());
    let left = dueq(&server, &["queues"])?.out();
    assert_eq!(left, "hook-2\nhook-3\nother\n");
    let output = dueq(&server, &["delete-queue", "--empty-for", "90d", "hook-*"])?;
    assert!(output.err().contains("1h to 89d"), "{}", output.err());
    Ok(())
}
