//! The program `dueq` as a person or a script uses it, on a private server.

mod absent;
mod away;
mod bench;
mod examined;
mod functions;
mod guide;
mod help;
mod history;
mod hostile;
mod import;
mod keys;
mod lost;
mod push;
mod queues;
mod roles;
mod schedules;
mod serving;
mod streams;
mod words;
mod work;
mod zones;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use anyhow::{Context, Result};
use dueq_testkit::Server;

const DUEQ: &str = env!("CARGO_BIN_EXE_dueq");

/// Runs the program, and returns its output. On a busy machine a command may give up a read after 2
/// s; a command that changes nothing is then run once more.
fn dueq(server: &Server, args: &[&str]) -> Result<Output> {
    let run = || command(server).args(args).output().context("dueq");
    let output = run()?;
    let reads = matches!(args.first(), Some(&("stats" | "queues" | "doctor")));
    if reads && output.err().contains("did not answer within") {
        return run();
    }
    Ok(output)
}

fn command(server: &Server) -> Command {
    let mut command = Command::new(DUEQ);
    command
        .env("REDIS_URL", server.url())
        .env("RUST_LOG", "error")
        .stdin(Stdio::null());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Splits a command line into words. A word in single quotes may be empty or contain spaces.
fn words(line: &str) -> Vec<&str> {
    let parts = line.split('\'').enumerate();
    parts
        .flat_map(|(number, part)| match number % 2 {
            0 => part.split_whitespace().collect(),
            _ => vec![part],
        })
        .collect()
}

/// The output of a program as text.
trait Said {
    fn out(&self) -> String;
    fn err(&self) -> String;
    fn code(&self) -> Option<i32>;
    fn json(&self) -> Result<serde_json::Value>;
}

impl Said for Output {
    fn out(&self) -> String {
        text(&self.stdout)
    }

    fn err(&self) -> String {
        text(&self.stderr)
    }

    fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// Parses the output of a program that prints one JSON value.
    fn json(&self) -> Result<serde_json::Value> {
        serde_json::from_slice(&self.stdout).with_context(|| format!("{self:?}"))
    }
}

/// A running `dueq work QUEUE --print --json`, stopped on drop.
struct Work {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Work {
    fn start(server: &Server, queue: &str) -> Result<Self> {
        Self::start_as(&server.url(), queue)
    }

    fn start_as(url: &str, queue: &str) -> Result<Self> {
        let mut child = Command::new(DUEQ)
            .env("REDIS_URL", url)
            .env("RUST_LOG", "error")
            .stdin(Stdio::null())
            .args(["work", queue, "--print", "--json"])
            .stdout(Stdio::piped())
            .spawn()
            .context("dueq work")?;
        let lines = BufReader::new(child.stdout.take().context("its output")?);
        Ok(Self { child, lines })
    }

    fn delivery(&mut self) -> Result<serde_json::Value> {
        let mut line = String::new();
        self.lines.read_line(&mut line)?;
        serde_json::from_str(&line).with_context(|| format!("a line of JSON, not {line:?}"))
    }

    /// Stops the worker by SIGINT, and returns its exit code.
    fn stop(mut self) -> Result<Option<i32>> {
        let pid = self.child.id().to_string();
        Command::new("kill").args(["-INT", &pid]).status()?;
        Ok(self.child.wait()?.code())
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Pushes with lua/dist/push.lua alone: by redis-cli where this machine has it, else by the Redis
/// protocol.
fn push_without_dueq(
    server: &Server,
    queue: &str,
    id: &str,
    due: &str,
    payload: &str,
) -> Result<String> {
    let script = include_str!("../../../lua/dist/push.lua");
    let keys = [
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
    ]
    .map(|suffix| format!("dueq:{{{queue}}}:{suffix}"));
    let rest = ["", "", id, due, payload, ""];
    let args: Vec<&str> = keys.iter().map(String::as_str).chain(rest).collect();
    if Command::new("redis-cli").arg("--version").output().is_err() {
        return server.command(&[&["EVAL", script, "10"], &args[..]].concat());
    }
    let port = server.port().to_string();
    let mut load = Command::new("redis-cli")
        .args(["-p", &port, "-x", "SCRIPT", "LOAD"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    load.stdin
        .take()
        .context("its input")?
        .write_all(script.as_bytes())?;
    let sha = load.wait_with_output()?.out().trim().to_owned();
    let output = Command::new("redis-cli")
        .args(["-p", &port, "EVALSHA", &sha, "10"])
        .args(args)
        .output()?;
    Ok(output.out())
}

#[test]
fn push_by_plain_redis_cli_is_delivered_and_never_early() -> Result<()> {
    let server = Server::start(&[])?;
    let mut work = Work::start(&server, "orders")?;
    let mut lateness = Vec::new();
    for number in 0..20 {
        let (id, payload) = (format!("order {number}"), format!("payload {number}"));
        let reply = push_without_dueq(&server, "orders", &id, "+50", &payload)?;
        assert!(!reply.contains("ERR"), "{reply}");
        let delivery = work.delivery()?;
        assert_eq!(delivery["id"], id);
        assert_eq!(delivery["attempt"], 1);
        let late_ms = delivery["lateness_ms"].as_f64().context("a lateness")?;
        assert!(late_ms >= 0.0, "{delivery}");
        lateness.push(late_ms);
    }
    lateness.sort_by(f64::total_cmp);
    // Only print it: a slow machine must not make a test fail.
    println!(
        "lateness of 20 pushes by redis-cli: p50 {:.1} ms, max {:.1} ms",
        lateness[10], lateness[19]
    );
    assert_eq!(work.stop()?, Some(0), "Ctrl-C is a clean stop");
    Ok(())
}

#[test]
fn push_work_and_stats_agree() -> Result<()> {
    let server = Server::start(&[])?;
    let output = dueq(&server, &["push", "mail", "hello", "--id", "m:1", "--json"])?;
    assert_eq!(
        output.out(),
        "{\"id\":\"m:1\",\"outcome\":\"created\",\"state\":null}\n"
    );
    let output = dueq(&server, &["push", "mail", "other", "--id", "m:1"])?;
    assert_eq!(output.out(), "exists (scheduled) m:1\n");
    let output = dueq(
        &server,
        &["push", "mail", "later", "--id", "m:2", "--delay", "48h"],
    )?;
    assert_eq!(output.out(), "created m:2\n");

    let mut work = Work::start(&server, "mail")?;
    assert_eq!(work.delivery()?["payload_base64"], "aGVsbG8=");
    assert_eq!(work.stop()?, Some(0));

    let stats = dueq(&server, &["stats", "mail", "--json"])?.json()?;
    for (name, value) in [
        ("scheduled", 1),
        ("ready", 0),
        ("leased", 0),
        ("pushed", 2),
        ("acked", 1),
        ("nodes", 0),
    ] {
        assert_eq!(stats[name], value, "{name} of {stats}");
    }
    assert!(
        dueq(&server, &["stats", "mail"])?
            .out()
            .contains("scheduled")
    );
    Ok(())
}

#[test]
fn payload_from_standard_input_keeps_every_byte() -> Result<()> {
    let server = Server::start(&[])?;
    let mut push = command(&server)
        .args(["push", "bytes", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()?;
    push.stdin
        .take()
        .context("its input")?
        .write_all(b"\0\xff\n\x1b[2J")?;
    assert!(push.wait()?.success());
    let mut work = Work::start(&server, "bytes")?;
    assert_eq!(work.delivery()?["payload_base64"], "AP8KG1sySg==");
    Ok(())
}

#[test]
fn wrong_values_exit_with_2_and_write_nothing() -> Result<()> {
    let server = Server::start(&[])?;
    for (args, reason) in [
        (&["push", "q", "x", "--delay", "-5s"][..], "negative"),
        (&["push", "q", "x", "--delay", "NaN"], "no delay"),
        (
            &["push", "q", "x", "--at", "2026-12-01T20:00:00"],
            "no zone",
        ),
        (
            &words("push q x --at '2027-03-14 02:30' --tz America/New_York"),
            "does not exist",
        ),
        (
            &words("push q x --at '2026-10-25 02:30' --tz Europe/Berlin"),
            "exists twice",
        ),
        (
            &["push", "q", "x", "--at", "soon", "--tz", "Mars"],
            "no time zone",
        ),
        (&["reschedule", "q", "x"], "--delay or --at"),
        (
            &["push", "q", "x", "--delay", "101 years"],
            "no fixed length",
        ),
        (&["push", "q", "x", "--delay", "900000h"], "100 years"),
        (&["push", "a/b", "x"], "queue name"),
        (&["push", "q", "x", "--id", ""], "id"),
        (&["push", "q", "x", "--max-attempts", "0"], "max_attempts"),
        (&["work", "q", "--print", "--concurrency", "0"], "handler"),
        (&["work", "q", "--print", "--lease", "0s"], "lease"),
        (&["push", "q", "x", "--tz", "UTC"], "add a time"),
        (
            &["push", "q", "x", "--delay", "1h", "--tz", "UTC"],
            "without --at",
        ),
        (
            &["push", "q", "x", "--at", "now", "--tz", "UTC"],
            "needs no zone",
        ),
        (&["reschedule", "q", "x", "--tz", "UTC"], "add a time"),
        (&["configure", "q", "--max-attempts", "0"], "max_attempts"),
        (
            &["push", "q", "x", "--fsync", "--durability-timeout", "2m"],
            "60s",
        ),
        (&["stats", "q", "--redis", "nonsense"], "Redis URL"),
    ] {
        let output = dueq(&server, args)?;
        assert_eq!(output.code(), Some(2), "{args:?}: {}", output.err());
        assert!(output.err().contains(reason), "{args:?}: {}", output.err());
    }
    assert_eq!(server.command(&["DBSIZE"])?, ":0\r\n");
    Ok(())
}

#[test]
fn unreachable_server_is_named_without_the_password() -> Result<()> {
    let output = Command::new(DUEQ)
        .args(["--redis", "redis://me:secret@127.0.0.1:1/", "stats", "q"])
        .output()?;
    let said = output.err();
    assert_eq!(output.code(), Some(1));
    assert_eq!(said.lines().count(), 1, "one clear line: {said}");
    assert!(
        said.contains("127.0.0.1:1") && !said.contains("secret"),
        "{said}"
    );
    Ok(())
}

#[test]
fn no_arguments_print_the_help() -> Result<()> {
    let output = Command::new(DUEQ)
        .env("REDIS_URL", "redis://127.0.0.1:1/")
        .output()?;
    assert_eq!(output.code(), Some(0));
    assert!(output.out().contains("Usage:"));
    Ok(())
}

/// The message is stored, and the error says that a failover may undo it.
#[test]
fn unconfirmed_push_fails_and_names_its_message() -> Result<()> {
    let server = Server::start(&[])?;
    let waiting = ["--replicas", "1", "--durability-timeout", "50ms"];
    let push = [
        &["push", "mail", "hello", "--id", "m:1", "--delay", "48h"],
        &waiting[..],
    ]
    .concat();
    for command in [push, [&["cancel", "mail", "m:1"], &waiting[..]].concat()] {
        let output = dueq(&server, &command)?;
        let error = output.err();
        assert_eq!(
            (output.code(), output.out().as_str()),
            (Some(1), ""),
            "{error}"
        );
        assert!(
            error.contains("m:1") && error.contains("only 0 of 1 replicas"),
            "{error}"
        );
    }
    assert_eq!(
        dueq(&server, &["cancel", "mail", "m:1"])?.out(),
        "cancelled m:1\n"
    );
    assert_eq!(
        dueq(&server, &["push", "mail", "x", "--replicas", "0"])?.code(),
        Some(2)
    );
    Ok(())
}
