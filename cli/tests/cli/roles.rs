//! `dueq acl`: a user with the printed rights can do the work of that role, and nothing else.

use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use dueq_testkit::Server;

use crate::{DUEQ, Said, Work, dueq};

/// Creates the user by the printed command, and returns its URL.
pub(crate) fn user(server: &Server, role: &str, queue: &str) -> Result<String> {
    let line = dueq(server, &["acl", role, queue, "--user", role])?.out();
    let line = line.trim().replace(">PASSWORD", ">secret");
    let words: Vec<&str> = line.split(' ').collect();
    assert_eq!(server.command(&words)?, "+OK\r\n", "{line}");
    Ok(format!(
        "redis://{role}:secret@127.0.0.1:{}/",
        server.port()
    ))
}

pub(crate) fn as_user(url: &str, args: &[&str]) -> Result<Output> {
    let mut command = Command::new(DUEQ);
    command
        .env("REDIS_URL", url)
        .env("RUST_LOG", "error")
        .stdin(Stdio::null());
    command.args(args).output().context("dueq")
}

fn done(url: &str, args: &[&str]) -> Result<()> {
    let output = as_user(url, args)?;
    assert_eq!(
        output.code(),
        Some(0),
        "{args:?}: {}{}",
        output.out(),
        output.err()
    );
    Ok(())
}

pub(crate) fn refused(url: &str, args: &[&str]) -> Result<()> {
    let output = as_user(url, args)?;
    let said = output.err();
    assert_eq!(output.code(), Some(1), "{args:?}: {said}");
    assert!(
        [
            "NOPERM",
            "ACL failure in script",
            "can't run this command",
            "can't access"
        ]
        .iter()
        .any(|why| said.contains(why)),
        "{args:?}: {said}"
    );
    Ok(())
}

#[test]
fn each_role_can_do_its_own_work_only() -> Result<()> {
    let server = Server::start(&["--appendonly", "yes"])?;
    let (producer, consumer) = (
        user(&server, "producer", "orders")?,
        user(&server, "consumer", "orders")?,
    );
    let operator = user(&server, "operator", "orders")?;

    refused(&producer, &["push", "orders", "x"])?; // the queue does not exist
    done(&operator, &["configure", "orders", "--max-attempts", "3"])?;
    done(
        &producer,
        &["push", "orders", "hello", "--id", "far", "--delay", "48h"],
    )?;
    done(
        &producer,
        &["push", "orders", "hello", "--id", "other", "--delay", "48h"],
    )?;
    done(
        &producer,
        &["reschedule", "orders", "far", "--delay", "24h"],
    )?;
    // Business hours need the server's clock, so the user must be allowed to read it.
    let always = ["--within", "Mon-Sun 00:00-24:00", "--tz", "UTC"];
    let far = ["reschedule", "orders", "far", "--delay", "24h"];
    done(&producer, &[&far[..], &always].concat())?;
    done(&producer, &["show", "orders", "far"])?;
    done(&producer, &["ls", "orders", "--state", "scheduled"])?;

    // The worker reads the wake-up list and the notices.
    let mut work = Work::start_as(&consumer, "orders")?;
    done(
        &producer,
        &["push", "orders", "soon", "--id", "soon", "--delay", "50ms"],
    )?;
    assert_eq!(work.delivery()?["id"], "soon");
    assert_eq!(
        server
            .command(&["PUBSUB", "SHARDNUMSUB", "dueq:{orders}:notice"])?
            .lines()
            .next(),
        Some("*2")
    );
    // The worker may not block on the wake-up list yet.
    let end = Instant::now() + Duration::from_secs(600);
    loop {
        let clients = server.command(&["CLIENT", "LIST"])?;
        let lines = clients
            .lines()
            .filter(|line| line.contains("user=consumer"));
        let has = |what: &str| lines.clone().any(|line| line.contains(what));
        if has("cmd=blpop") && has("ssub=1") {
            break;
        }
        anyhow::ensure!(Instant::now() < end, "{clients}");
    }
    done(&producer, &["run-now", "orders", "far"])?;
    assert_eq!(work.delivery()?["id"], "far");
    assert_eq!(work.stop()?, Some(0));
    done(&consumer, &["stats", "orders"])?;

    done(&producer, &["cancel", "orders", "other"])?;
    for url in [&producer, &consumer] {
        refused(url, &["pause", "orders"])?;
        refused(url, &["resume", "orders"])?;
        refused(url, &["configure", "orders", "--max-attempts", "5"])?;
        refused(url, &["purge", "orders", "--state", "dead", "--yes"])?;
        refused(url, &["requeue", "orders", "--all"])?;
        refused(url, &["delete-queue", "orders", "--yes"])?;
        refused(url, &["functions", "load"])?;
    }
    // A consumer's node finds the queues of a pattern by SCAN, which shows the names of all keys.
    refused(&producer, &["queues"])?;
    done(&consumer, &["queues"])?;
    refused(&producer, &["stats", "orders"])?;
    refused(&consumer, &["push", "orders", "x"])?;
    refused(&consumer, &["show", "orders", "far"])?;
    for url in [&producer, &consumer, &operator] {
        refused(url, &["push", "bills", "x"])?;
        refused(url, &["show", "bills", "x"])?;
        refused(url, &["stats", "bills"])?;
    }

    done(&operator, &["pause", "orders"])?;
    done(&operator, &["resume", "orders"])?;
    done(&operator, &["requeue", "orders", "--all"])?;
    done(&operator, &["stats", "orders"])?;
    done(&operator, &["ls", "orders", "--state", "dead"])?;
    done(
        &operator,
        &["purge", "orders", "--state", "scheduled", "--yes"],
    )?;
    done(&operator, &["doctor", "orders", "--repair"])?;
    let said = as_user(&operator, &["doctor", "orders"])?.out();
    assert!(
        said.contains("not checked: when snapshots are made (CONFIG GET save)"),
        "{said}"
    );
    assert!(said.contains("nothing found, 2 not checked"), "{said}");
    let said = as_user(&producer, &["doctor", "orders"])?.out();
    assert!(
        said.contains("not checked: the queue (verify, audit)"),
        "{said}"
    );
    done(&operator, &["delete-queue", "orders", "--yes"])
}

#[test]
fn names_that_no_acl_rule_can_hold_are_refused() -> Result<()> {
    let output = Command::new(DUEQ)
        .args(["acl", "producer", "a b"])
        .output()?;
    assert_eq!(output.code(), Some(2));
    let output = Command::new(DUEQ)
        .args(["acl", "producer", "q", "--user", "a b"])
        .output()?;
    assert_eq!(output.code(), Some(2));
    let output = Command::new(DUEQ)
        .args(["acl", "consumer", "q", "--json"])
        .output()?;
    let object = output.json()?;
    assert_eq!(
        (object["user"].as_str(), object["rules"][0].as_str()),
        (Some("q-consumer"), Some("reset"))
    );
    Ok(())
}
