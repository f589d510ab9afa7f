//! Repeated runs of `dueq push --ndjson`: after an interruption, from a pipe, and with a rewritten
//! file.

use std::fs;
use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use dueq_testkit::Server;

use crate::push::ndjson::{file, json, push, scheduled};
use crate::{Said, command, dueq};

/// The key that an error of a push names.
fn key(said: &str) -> Result<&str> {
    let rest = said.split_once("--idempotency-key ").context("a key")?.1;
    rest.split([' ', ',']).next().context("a key")
}

fn pipe(server: &Server, lines: &str, flags: &[&str]) -> Result<Output> {
    let mut child = command(server)
        .args(["push", "q", "--json", "--ndjson"])
        .args(flags)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut input = child.stdin.take().context("its input")?;
    input.write_all(lines.as_bytes())?;
    drop(input);
    Ok(child.wait_with_output()?)
}

#[test]
fn each_run_of_a_pipe_pushes_new_messages() -> Result<()> {
    let server = Server::start(&[])?;
    let line = "{\"payload\":\"tick\",\"delay\":\"1h\"}\n";
    for path in ["-", "-", "/dev/stdin", "/dev/stdin"] {
        let output = pipe(&server, line, &[path])?;
        assert_eq!(output.code(), Some(0), "{}", output.err());
        assert_eq!(json(&output.stdout)?["created"], 1, "{path}");
    }
    for created in [1, 0] {
        let output = pipe(&server, line, &["-", "--idempotency-key", "night 7"])?;
        assert_eq!(output.code(), Some(0), "{}", output.err());
        assert_eq!(json(&output.stdout)?["created"], created);
    }
    assert_eq!(scheduled(&server)?, 5);
    Ok(())
}

#[test]
fn file_that_was_written_again_pushes_new_messages() -> Result<()> {
    let server = Server::start(&[])?;
    for second in 0..3 {
        let path = file(&server, "{\"payload\":\"report\",\"delay\":\"1h\"}\n")?;
        let written = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000 + second);
        fs::File::open(&path)?.set_modified(written)?;
        let output = push(&server, &path, &[])?;
        assert_eq!(output.code(), Some(0), "{}", output.err());
        assert_eq!(json(&output.stdout)?["created"], 1);
    }
    Ok(())
}

#[test]
fn second_run_of_a_file_creates_nothing_and_reports_it() -> Result<()> {
    let server = Server::start(&[])?;
    // Two equal lines give two messages.
    let path = file(
        &server,
        "{\"payload\":\"x\"}\n{\"payload\":\"x\"}\n{\"payload\":\"y\",\"id\":\"y\"}\n",
    )?;
    let first = json(&push(&server, &path, &["--delay", "1h"])?.stdout)?;
    assert_eq!(
        (&first["created"], &first["exists"]),
        (&3.into(), &0.into())
    );
    let output = push(&server, &path, &["--delay", "1h"])?;
    let (second, said) = (json(&output.stdout)?, output.err());
    assert_eq!(
        (&second["created"], &second["exists"]),
        (&0.into(), &3.into())
    );
    assert_eq!(output.code(), Some(1), "{said}");
    assert!(
        said.contains("2 lines without an id stored nothing"),
        "{said}"
    );
    let rest = push(&server, &path, &["--delay", "1h", "--from-line", "3"])?;
    assert_eq!(rest.code(), Some(0), "a line with an id of its own");
    let rest = json(&rest.stdout)?;
    assert_eq!((&rest["exists"], &rest["line"]), (&1.into(), &3.into()));
    // With the run's key a changed file can be pushed again; a changed line gives another message.
    file(&server, "{\"payload\":\"z\"}\n{\"payload\":\"x\"}\n")?;
    let flags = ["--delay", "1h", "--idempotency-key", key(&said)?];
    let output = push(&server, &path, &flags)?;
    assert_eq!(output.code(), Some(0), "{}", output.err());
    let changed = json(&output.stdout)?;
    assert_eq!(
        (&changed["created"], &changed["exists"]),
        (&1.into(), &1.into())
    );
    Ok(())
}

#[test]
fn interrupted_file_push_can_be_continued() -> Result<()> {
    let server = Server::start(&[])?;
    let lines = |range: std::ops::Range<u32>| -> String {
        range
            .map(|number| format!("{{\"payload\":\"{number}\",\"delay\":\"1h\"}}\n"))
            .collect()
    };
    dueq(&server, &["configure", "q", "--max-attempts", "20"])?;
    let mut child = command(&server)
        .args(["push", "q", "--json", "--ndjson", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut input = child.stdin.take().context("its input")?;
    input.write_all(lines(0..5_000).as_bytes())?;
    // The program waits for further lines, after it has pushed those so far.
    while scheduled(&server)? < 5_000 {}
    Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()?;
    let output = child.wait_with_output()?;
    drop(input);
    assert_eq!(output.code(), Some(1));
    let said = output.err();
    assert!(said.contains("interrupted after line 5000"), "{said}");
    assert_eq!(json(&output.stdout)?["outcome"], "stopped");

    let flags = ["-", "--idempotency-key", key(&said)?];
    let report = json(&pipe(&server, &lines(0..6_000), &flags)?.stdout)?;
    assert_eq!(
        (&report["created"], &report["exists"]),
        (&1_000.into(), &5_000.into())
    );
    assert_eq!(scheduled(&server)?, 6_000);
    Ok(())
}
