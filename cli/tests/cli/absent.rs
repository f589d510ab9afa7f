//! Queues that do not exist: operators' commands create none, and suggest near names.

use std::io::{BufRead, BufReader};
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use dueq_testkit::Server;
use serde_json::Value;

use crate::{Said, command, dueq};

/// The advice for the queue `ordres`.
const NEAR: &str = "did you mean orders?";

/// A server with the queues `orders` and `mail`.
fn server() -> Result<Server> {
    let server = Server::start(&[])?;
    for queue in ["orders", "mail"] {
        assert!(
            dueq(&server, &["configure", queue, "--max-attempts", "5"])?
                .status
                .success()
        );
    }
    Ok(server)
}

fn queues(server: &Server) -> Result<String> {
    Ok(dueq(server, &["queues"])?.out())
}

/// Asserts that the command fails, names the missing queue with this advice, and creates none.
fn refused(server: &Server, args: &[&str], advice: &str) -> Result<Output> {
    let before = server.command(&["DBSIZE"])?;
    let start = Instant::now();
    let mut output = dueq(server, args)?;
    // The search for near names gives up after 2 s, which a busy machine can take.
    if start.elapsed() >= Duration::from_secs(2) && !output.err().contains(advice) {
        output = dueq(server, args)?;
    }
    let said = output.err();
    assert_eq!(output.code(), Some(1), "{args:?}: {said}");
    assert!(
        said.contains(&format!("there is no queue {}: {advice}", args[1])),
        "{args:?}: {said}"
    );
    assert_eq!(
        server.command(&["DBSIZE"])?,
        before,
        "{args:?} wrote something"
    );
    Ok(output)
}

#[test]
fn a_number_of_partitions_for_a_mistyped_queue_names_the_near_one() -> Result<()> {
    let server = server()?;
    let made = dueq(&server, &["partitions", "ordres", "2"])?;
    assert_eq!(made.code(), Some(0), "{}", made.err());
    for words in ["made the new queue ordres", "near name: orders"] {
        assert!(made.err().contains(words), "{}", made.err());
    }
    let again = dueq(&server, &["partitions", "ordres", "3"])?;
    assert!(!again.err().contains("made the new"), "{}", again.err());
    Ok(())
}

#[test]
fn commands_on_an_absent_queue_suggest_a_near_name() -> Result<()> {
    let server = server()?;
    for (verb, rest) in [
        ("pause", &[][..]),
        ("resume", &[]),
        ("stats", &[]),
        ("stats", &["--json"]),
        ("stats", &["--watch"]),
        ("history", &[]),
        ("history", &["--days", "--json"]),
        ("ls", &[]),
        ("ls", &["--state", "dead", "--json"]),
        ("requeue", &["--all"]),
        ("end-lease", &["--node", "0123456"]),
        ("purge", &["--state", "dead"]),
        ("purge", &["--state", "dead", "--yes"]),
        ("nodes", &[]),
        ("workers", &[]),
        ("delete-queue", &[]),
        ("show", &["m3", "--payload"]),
    ] {
        for (name, near) in [
            ("ordres", "orders"),
            ("ordersX", "orders"),
            ("Mail", "mail"),
        ] {
            let args = [&[verb, name], rest].concat();
            let output = refused(&server, &args, &format!("did you mean {near}?"))?;
            assert_eq!(output.out(), "", "{verb} {name}");
        }
        let args = [&[verb, "payments"], rest].concat();
        refused(&server, &args, "`dueq queues` lists")?;
    }
    assert_eq!(queues(&server)?, "mail\norders\n");
    Ok(())
}

#[test]
fn commands_with_ids_print_absent_and_the_missing_queue() -> Result<()> {
    let server = server()?;
    for (verb, rest) in [
        ("show", &["m3"][..]),
        ("cancel", &["m3"]),
        ("requeue", &["m3"]),
        ("end-lease", &["m3"]),
        ("bury", &["m3"]),
        ("run-now", &["m3"]),
        ("reschedule", &["m3", "--delay", "1h"]),
    ] {
        let output = refused(&server, &[&[verb, "ordres"], rest].concat(), NEAR)?;
        assert_eq!(output.out(), "absent m3\n", "{verb}");
        let known = dueq(&server, &[&[verb, "orders"], rest].concat())?;
        assert_eq!(
            (known.out().as_str(), known.err().as_str()),
            ("absent m3\n", ""),
            "{verb}"
        );
    }
    let output = refused(&server, &["delete-queue", "ordres", "--yes"], NEAR)?;
    assert_eq!(output.out(), "absent ordres\n");
    Ok(())
}

#[test]
fn pause_creates_a_queue_only_with_create() -> Result<()> {
    let server = server()?;
    refused(&server, &["pause", "ordres"], NEAR)?;
    let output = dueq(&server, &["pause", "new", "--create"])?;
    assert_eq!(
        (output.out().as_str(), output.code()),
        ("made the new queue new\npaused new\n", Some(0))
    );
    let output = dueq(&server, &["pause", "new", "--create"])?;
    assert_eq!(
        (output.out().as_str(), output.code()),
        ("paused new\n", Some(0))
    );
    assert_eq!(queues(&server)?, "mail\nnew\norders\n");
    Ok(())
}

#[test]
fn configure_reports_that_it_created_a_queue() -> Result<()> {
    let server = server()?;
    let output = dueq(&server, &["configure", "ordres", "--max-attempts", "3"])?;
    assert_eq!(
        output.out(),
        "made the new queue ordres\nconfigured ordres\n"
    );
    assert!(
        output.err().contains("near name: orders"),
        "{}",
        output.err()
    );
    let made = |args: &[&str]| -> Result<Value> {
        Ok(serde_json::from_slice(
            &dueq(
                &server,
                &[args, &["--max-attempts", "3", "--json"]].concat(),
            )?
            .stdout,
        )?)
    };
    assert_eq!(made(&["configure", "other"])?["made"], true);
    assert_eq!(made(&["configure", "other"])?["made"], false);
    Ok(())
}

#[test]
fn work_on_an_absent_queue_warns_and_waits() -> Result<()> {
    let server = server()?;
    let mut work = command(&server)
        .env("RUST_LOG", "warn")
        .args(["work", "ordres", "--print"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut errors = BufReader::new(work.stderr.take().context("its errors")?).lines();
    let warning = loop {
        let line = errors.next().context("a warning")??;
        if line.contains("there is no queue") {
            break line;
        }
    };
    assert!(
        warning.contains("ordres") && warning.contains("did you mean orders"),
        "{warning}"
    );
    dueq(&server, &["push", "ordres", "hello", "--id", "m"])?;
    let mut lines = BufReader::new(work.stdout.take().context("its output")?).lines();
    assert!(lines.next().context("a delivery")??.contains("hello"));
    work.kill()?;
    work.wait()?;
    Ok(())
}

/// Near names need the right to SCAN.
#[test]
fn user_without_scan_gets_no_near_names() -> Result<()> {
    let server = server()?;
    let line = dueq(&server, &["acl", "operator", "ordres", "--user", "op"])?.out();
    let line = line.trim().replace(">PASSWORD", ">secret");
    assert_eq!(
        server.command(&line.split(' ').collect::<Vec<_>>())?,
        "+OK\r\n",
        "{line}"
    );
    let url = format!("redis://op:secret@127.0.0.1:{}/", server.port());
    for verb in ["pause", "stats", "ls"] {
        let output = command(&server)
            .env("REDIS_URL", &url)
            .args([verb, "ordres"])
            .output()?;
        let said = output.err();
        assert_eq!(output.code(), Some(1), "{said}");
        assert!(
            said.contains("there is no queue ordres") && !said.contains("did you mean"),
            "{verb}: {said}"
        );
        assert!(!said.contains("NOPERM"), "{verb}: {said}");
    }
    Ok(())
}
