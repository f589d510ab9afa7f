//! `dueq stats` and `dueq configure`: limits, and queues that cannot be read.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use anyhow::{Context, Result};
use dueq_testkit::Server;
use serde_json::Value;

use crate::{Said, command, dueq, text, words};

fn objects(bytes: &[u8]) -> Result<Vec<Value>> {
    text(bytes)
        .lines()
        .map(|line| serde_json::from_str(line).context(line.to_owned()))
        .collect()
}

#[test]
fn stats_reports_an_unreadable_queue_and_continues() -> Result<()> {
    let server = Server::start(&[])?;
    dueq(&server, &["push", "good", "x", "--delay", "1h"])?;
    dueq(&server, &["push", "wrong", "x", "--delay", "1h"])?;
    server.command(&["HSET", "dueq:{later}:meta", "layout", "99"])?;
    server.command(&["DEL", "dueq:{wrong}:leases"])?;
    server.command(&["SET", "dueq:{wrong}:leases", "x"])?;

    let output = dueq(&server, &["stats"])?;
    let said = output.out();
    assert_eq!(output.code(), Some(1), "{said}");
    assert!(
        said.lines()
            .any(|line| line.trim_start().starts_with("good ")),
        "{said}"
    );
    assert!(
        said.contains("later cannot be read: ") && said.contains("LAYOUT"),
        "{said}"
    );
    assert!(said.contains("run dueq doctor wrong"), "{said}");

    let output = dueq(&server, &["stats", "--json"])?;
    let lines = objects(&output.stdout)?;
    assert_eq!(output.code(), Some(1));
    assert_eq!(
        lines.iter().map(|line| &line["queue"]).collect::<Vec<_>>(),
        ["good", "later", "wrong"]
    );
    assert_eq!(
        lines
            .iter()
            .map(|line| line.get("error").is_some())
            .collect::<Vec<_>>(),
        [false, true, true]
    );

    let mut watch = command(&server)
        .args(["stats", "--watch", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .context("dueq stats")?;
    let lines = BufReader::new(watch.stdout.take().context("its output")?).lines();
    let second = lines.take(6).collect::<Result<Vec<_>, _>>();
    watch.kill()?;
    watch.wait()?;
    assert_eq!(second?.len(), 6, "it goes on after the bad queues");

    let output = dueq(&server, &["stats", "later"])?;
    assert_eq!(output.code(), Some(1));
    assert!(
        output.err().contains("later cannot be read"),
        "{}",
        output.err()
    );
    Ok(())
}

#[test]
fn stats_and_configure_show_the_limits() -> Result<()> {
    let server = Server::start(&[])?;
    let absent = dueq(&server, &["configure", "q"])?;
    assert_eq!(absent.code(), Some(1));
    assert!(
        absent.err().contains("there is no queue q"),
        "{}",
        absent.err()
    );
    dueq(
        &server,
        &words("configure q --max-messages 2 --keep-dead-for 1h"),
    )?;
    for verb in ["stats", "configure"] {
        let said = dueq(&server, &[verb, "q"])?.out();
        for (name, value) in [
            ("max_messages", "2"),
            ("max_attempts", "20"),
            ("keep_dead_ms", "3600000"),
        ] {
            let line = said
                .lines()
                .find(|line| line.trim_start().starts_with(name))
                .with_context(|| format!("{name}: {said}"))?;
            assert_eq!(line.split_whitespace().nth(1), Some(value), "{line}");
        }
        let object = objects(&dueq(&server, &[verb, "q", "--json"])?.stdout)?.remove(0);
        assert_eq!(
            (&object["max_messages"], &object["keep_dead"]),
            (&2.into(), &100_000.into()),
            "{object}"
        );
    }
    dueq(&server, &["configure", "q", "--max-messages", "none"])?;
    let object = objects(&dueq(&server, &["configure", "q", "--json"])?.stdout)?.remove(0);
    assert_eq!(object["max_messages"], Value::Null);
    let said = dueq(&server, &["configure", "q"])?.out();
    assert!(
        said.lines()
            .any(|line| line.split_whitespace().take(2).eq(["max_messages", "none"])),
        "{said}"
    );
    Ok(())
}

#[test]
fn reads_on_an_evicting_server_succeed_with_a_warning() -> Result<()> {
    let server = Server::start(&[])?;
    dueq(&server, &["push", "q", "x", "--id", "a", "--delay", "1h"])?;
    server.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"])?;
    for args in [
        &["stats", "q"][..],
        &["stats"],
        &["ls", "q"],
        &["show", "q", "a"],
        &["queues"],
    ] {
        let output = dueq(&server, args)?;
        let complaint = output.err();
        assert_eq!(output.code(), Some(0), "{args:?}: {complaint}");
        assert!(
            complaint.contains("warning: ") && complaint.contains("allkeys-lru"),
            "{args:?}: {complaint}"
        );
    }
    assert_eq!(dueq(&server, &["push", "q", "x"])?.code(), Some(1));
    Ok(())
}

#[test]
fn stats_of_a_paused_queue_names_the_resume_command() -> Result<()> {
    let server = Server::start(&[])?;
    dueq(&server, &["push", "q", "x"])?;
    dueq(&server, &["pause", "q"])?;
    let said = dueq(&server, &["stats", "q"])?.out();
    assert!(said.contains("`dueq resume q`"), "{said}");
    dueq(&server, &["resume", "q"])?;
    dueq(&server, &["pause", "q", "--for", "1h"])?;
    let said = dueq(&server, &["stats", "q"])?.out();
    assert!(said.contains("closed: nothing is claimed for"), "{said}");
    assert!(said.contains("`dueq resume q`"), "{said}");
    Ok(())
}
