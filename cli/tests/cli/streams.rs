//! Standard output and standard error: closed pipes, signals, errors as JSON.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use dueq_testkit::Server;
use serde_json::Value;

use crate::{DUEQ, Said, command, dueq};

#[test]
fn closed_pipe_is_no_error() -> Result<()> {
    let server = Server::start(&[])?;
    for number in 0..3 {
        dueq(
            &server,
            &[
                "push",
                "q",
                "x",
                "--id",
                &number.to_string(),
                "--delay",
                "1h",
            ],
        )?;
    }
    let script = format!("{{ {DUEQ} ls q --json; echo $? >&2; }} | true");
    let output = Command::new("sh")
        .args(["-c", &script])
        .env("REDIS_URL", server.url())
        .env("RUST_LOG", "error")
        .output()?;
    assert_eq!(output.err(), "0\n");
    Ok(())
}

#[test]
fn ctrl_c_ends_stats_watch_without_an_error() -> Result<()> {
    let server = Server::start(&[])?;
    dueq(&server, &["configure", "q", "--max-attempts", "20"])?;
    let mut child = command(&server)
        .args(["stats", "q", "--watch", "--json"])
        .stdout(Stdio::piped())
        .spawn()?;
    let mut lines = BufReader::new(child.stdout.take().context("its output")?).lines();
    let first: Value = serde_json::from_str(&lines.next().context("a line")??)?;
    assert_eq!(first["queue"], "q");
    Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()?;
    assert_eq!(child.wait()?.code(), Some(0));
    Ok(())
}

#[test]
fn errors_are_json_with_log_json() -> Result<()> {
    let output = Command::new(DUEQ)
        .args([
            "stats",
            "q",
            "--log",
            "json",
            "--redis",
            "redis://127.0.0.1:1/",
        ])
        .output()?;
    let said: Value = serde_json::from_slice(&output.stderr)?;
    assert_eq!(said["level"], "ERROR");
    assert!(
        said["message"]
            .as_str()
            .is_some_and(|message| message.contains("127.0.0.1:1")),
        "{said}"
    );
    Ok(())
}
