//! `--print` to an output that cannot be written; and blank commands.

use std::fs::{self, File};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use dueq::{Message, Queue, QueueLimits};

use crate::work::support::{Folder, LIMIT, command, queue};

/// Pushes messages that die after one failed attempt, so that a counted attempt becomes visible.
async fn filled(queue: &Queue, count: u64) -> Result<()> {
    queue.configure(QueueLimits::new().max_attempts(1)).await?;
    for pushed in queue
        .push_many((0..count).map(|number| Message::new("x").id(format!("m{number}"))))
        .await
    {
        pushed?;
    }
    Ok(())
}

/// Asserts that all messages are due, without a counted attempt and without a lease. The first
/// `printed` ones are acked instead.
async fn given_back(queue: &Queue, count: u64, printed: u64) -> Result<()> {
    let stats = queue.stats().await?;
    assert_eq!(
        (stats.dead, stats.leased, stats.retried, stats.acked),
        (0, 0, 0, printed),
        "{stats:?}"
    );
    assert_eq!(stats.ready + stats.scheduled, count - printed, "{stats:?}");
    for number in 0..count {
        if let Some(stored) = queue.get(format!("m{number}")).await? {
            assert_eq!(
                (stored.failures, stored.crashes, stored.error.as_str()),
                (0, 0, ""),
                "m{number}"
            );
        }
    }
    Ok(())
}

#[tokio::test]
async fn print_to_a_full_disk_counts_no_attempt() -> Result<()> {
    let (server, full) = queue("full").await?;
    for json in [&[][..], &["--json"]] {
        filled(&full, 20).await?;
        let output = command(
            &server.url(),
            &[&["work", "full", "--print"], json].concat(),
        )
        .stdout(File::options().write(true).open("/dev/full")?)
        .stderr(Stdio::piped())
        .spawn()?
        .wait_with_output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(
            said.contains("cannot write to standard output: No space left on device"),
            "{said}"
        );
        given_back(&full, 20, 0).await?;
    }
    Ok(())
}

#[tokio::test]
async fn print_to_a_closed_pipe_counts_no_attempt() -> Result<()> {
    let (server, closed) = queue("closed").await?;
    filled(&closed, 20).await?;
    let script = format!(
        "{{ {} work closed --print --json; echo $? >&2; }} | true",
        env!("CARGO_BIN_EXE_dueq")
    );
    let output = Command::new("sh")
        .args(["-c", &script])
        .env("REDIS_URL", server.url())
        .env("RUST_LOG", "error")
        .stdin(Stdio::null())
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("cannot write to standard output: Broken pipe") && said.ends_with("\n1\n"),
        "{said}"
    );
    // `true` may close the pipe after it got some lines; these count as printed.
    let printed = closed.stats().await?.acked;
    given_back(&closed, 20, printed).await
}

#[tokio::test]
async fn blank_command_is_wrong_usage() -> Result<()> {
    let (server, orders) = queue("orders").await?;
    orders.push_message(Message::new("x").id("m")).await?;
    for blank in ["", "   ", "\t\n"] {
        let mut work = command(
            &server.url(),
            &["work", "orders", "--exec", blank, "--grace", "0s"],
        );
        let output = stopped(&mut work)?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{blank:?}: {said}");
        assert!(said.contains("the command is empty"), "{said}");
    }
    let stats = orders.stats().await?;
    assert_eq!((stats.claimed, stats.acked), (0, 0), "nothing is claimed");
    assert!(orders.get("m").await?.is_some());
    Ok(())
}

/// Runs the command until it ends. The program `timeout` ends a worker that keeps running.
fn stopped(work: &mut Command) -> Result<std::process::Output> {
    let folder = Folder::new("blank")?;
    let errors = folder.path().join("stderr");
    let mut child = work
        .stdout(Stdio::null())
        .stderr(File::create(&errors)?)
        .spawn()?;
    let start = std::time::Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if start.elapsed() > LIMIT {
            child.kill()?;
            break child.wait()?;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    };
    let stderr = fs::read(errors).context("its errors")?;
    Ok(std::process::Output {
        status,
        stdout: Vec::new(),
        stderr,
    })
}
