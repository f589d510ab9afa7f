//! Pushes of a file that fail halfway: the report counts stored, unconfirmed and unknown lines.

use std::fs;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use dueq_testkit::{Proxy, Server};
use serde_json::Value;

use crate::lost::{PUSH, UNKNOWN, sha, through};
use crate::{Said, command, dueq};

fn scheduled(server: &Server, queue: &str) -> Result<u64> {
    let stats = dueq(server, &["stats", queue, "--json"])?.json()?;
    stats["scheduled"].as_u64().context("a number")
}

#[test]
fn unconfirmed_file_push_counts_unconfirmed_lines() -> Result<()> {
    let server = Server::start(&[])?;
    let path = server.folder().join("lines");
    fs::write(&path, "{\"payload\":\"x\",\"delay\":\"1h\"}\n".repeat(300))?;
    let path = path.display().to_string();
    let waiting = ["--replicas", "1", "--durability-timeout", "20ms"];
    let output = dueq(
        &server,
        &[&["push", "q", "--ndjson", &path], &waiting[..]].concat(),
    )?;
    let (counts, said) = (output.out(), output.err());
    assert_eq!(
        (output.code(), scheduled(&server, "q")?),
        (Some(1), 300),
        "{said}"
    );
    assert!(counts.contains("unconfirmed 300"), "{counts}");
    assert!(said.contains("only 0 of 1 replicas"), "{said}");
    let output = dueq(
        &server,
        &[&["push", "q", "--json", "--ndjson", &path], &waiting[..]].concat(),
    )?;
    let report = output.json()?;
    assert_eq!(
        (&report["unconfirmed"], &report["created"]),
        (&300.into(), &0.into())
    );
    Ok(())
}

/// The report counts lines with an unknown outcome separately from stored ones.
#[test]
fn file_push_with_a_lost_reply_counts_unknown_lines() -> Result<()> {
    let server = Server::start(&[])?;
    dueq(
        &server,
        &["push", "q", "warm", "--id", "warm", "--delay", "1h"],
    )?;
    let proxy = Proxy::start(server.port())?;
    let path = server.folder().join("lines");
    fs::write(&path, "{\"payload\":\"x\",\"delay\":\"1h\"}\n".repeat(100))?;
    proxy.cut_reply_then_refuse(sha(PUSH), "NOPERM no more");
    let output = through(
        &proxy,
        &[
            "push",
            "q",
            "--json",
            "--ndjson",
            &path.display().to_string(),
        ],
    )?;
    let (report, said): (Value, _) = (serde_json::from_slice(&output.stdout)?, output.err());
    assert_eq!(
        (&report["unknown"], &report["created"]),
        (&100.into(), &0.into()),
        "{report}"
    );
    assert!(
        said.contains("line 1: ") && said.contains(UNKNOWN),
        "{said}"
    );
    assert_eq!(scheduled(&server, "q")?, 101);
    Ok(())
}

/// A second Ctrl-C ends the wait for replicas.
#[test]
fn second_interrupt_counts_lines_in_flight_as_unknown() -> Result<()> {
    let server = Server::start(&[])?;
    dueq(&server, &["configure", "q", "--max-attempts", "20"])?;
    let path = server.folder().join("lines");
    fs::write(&path, "{\"payload\":\"x\",\"delay\":\"1h\"}\n".repeat(10))?;
    let mut child = command(&server)
        .args([
            "push",
            "q",
            "--json",
            "--replicas",
            "1",
            "--durability-timeout",
            "60s",
            "--ndjson",
        ])
        .arg(&path)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    while scheduled(&server, "q")? < 10 {}
    // No output shows that the program has handled the first signal, so send it repeatedly.
    while child.try_wait()?.is_none() {
        Command::new("kill")
            .args(["-INT", &child.id().to_string()])
            .status()?;
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let output = child.wait_with_output()?;
    let (report, said): (Value, _) = (serde_json::from_slice(&output.stdout)?, output.err());
    assert_eq!(
        (&report["unknown"], output.code()),
        (&10.into(), Some(1)),
        "{report}"
    );
    assert!(
        said.contains("interrupted after line 0") && said.contains("--from-line 1"),
        "{said}"
    );
    Ok(())
}

/// Pushing a file again after its messages were delivered would deliver them twice.
#[test]
fn stopped_file_push_warns_of_repeated_lines() -> Result<()> {
    let server = Server::start(&[])?;
    let path = server.folder().join("lines");
    fs::write(&path, "{\"payload\":\"x\"}\nnonsense\n")?;
    let output = command(&server)
        .args(["push", "q", "--ndjson"])
        .arg(&path)
        .output()?;
    let said = output.err();
    assert!(
        said.contains("line 2: ") && said.contains("delivered"),
        "{said}"
    );
    assert!(said.contains("--from-line 2"), "{said}");
    Ok(())
}
