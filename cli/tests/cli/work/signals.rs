//! Signals that end a worker: it releases its messages, so that none waits until its lease expires.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::process::Command;

use anyhow::{Context, Result};
use dueq::{Message, MessageState};
use dueq_testkit::Server;
use rustix::pty::OpenptFlags;

use crate::work::http::{Receiver, post};
use crate::work::service::Systemd;
use crate::work::support::{Dueq, queue};

#[tokio::test]
async fn every_end_signal_releases_running_messages() -> Result<()> {
    for signal in ["QUIT", "TERM", "INT"] {
        for is_http in [false, true] {
            let (server, orders) = queue("orders").await?;
            let mut receiver = Receiver::start(&[]).await?;
            orders.push_message(Message::new("x").id("x")).await?;
            let grace = ["--grace", "0s"];
            let mut worker = if is_http {
                post(&server.url(), &receiver.url, &grace)?
            } else {
                let command = "echo started; exec sleep 60";
                let args = ["work", "orders", "--exec", command];
                Dueq::start(&server.url(), &[&args[..], &grace].concat())?
            };
            if is_http {
                receiver.request().await?;
            } else {
                assert_eq!(worker.says()?, "started");
            }
            worker.signal(signal)?;
            let status = worker.wait()?;
            assert!(status.success(), "{signal}: {status}");
            let stored = orders.get("x").await?.context("given back")?;
            assert_ne!(stored.state, MessageState::Leased, "{signal}");
            assert_eq!((stored.failures, stored.crashes), (0, 0), "{signal}");
        }
    }
    Ok(())
}

/// Opens a terminal: this program's end, and the end that another program may have as its own.
fn terminal() -> Result<(OwnedFd, File)> {
    let master =
        rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    rustix::pty::grantpt(&master)?;
    rustix::pty::unlockpt(&master)?;
    let name = rustix::pty::ptsname(&master, Vec::new())?;
    let terminal = File::options()
        .read(true)
        .write(true)
        .open(name.to_str()?)?;
    Ok((master, terminal))
}

/// A worker with this terminal as its own.
fn work_on(terminal: File, server: &Server, how: &[&str]) -> Command {
    // `env` undoes nohup, under which these tests may run.
    let mut command = Command::new("setsid");
    command
        .args(["--ctty", "env", "--default-signal=HUP"])
        .arg(env!("CARGO_BIN_EXE_dueq"))
        .args(["work", "orders"])
        .args(how)
        .env("REDIS_URL", server.url())
        .env("RUST_LOG", "error")
        .stdin(terminal);
    command
}

#[tokio::test]
async fn closed_terminal_ends_a_worker() -> Result<()> {
    let (server, orders) = queue("orders").await?;
    let (ours, terminal) = terminal()?;
    let mut worker = Dueq::run(&mut work_on(terminal, &server, &["--print"]))?;
    orders.push_message(Message::new("one").id("one")).await?;
    assert!(worker.says()?.contains("one"));
    drop(ours);
    assert!(worker.wait()?.success());
    Ok(())
}

/// A shell and the kernel both send SIGHUP when the terminal is closed.
#[tokio::test]
async fn further_hang_up_of_a_closed_terminal_does_not_end_the_grace() -> Result<()> {
    let (server, orders) = queue("orders").await?;
    let systemd = Systemd::listen("terminal")?;
    let (ours, terminal) = terminal()?;
    let go = systemd.path("go");
    let script = "echo started; until test -e \"$GO\"; do sleep 0.05; done; sleep 0.5";
    let mut worker = Dueq::run(
        work_on(terminal, &server, &["--exec", script])
            .env("GO", &go)
            .env("NOTIFY_SOCKET", systemd.path("notify")),
    )?;
    orders.push_message(Message::new("x").id("x")).await?;
    assert_eq!(worker.says()?, "started");
    assert_eq!(systemd.heard()?, "READY=1");
    drop(ours);
    assert_eq!(systemd.heard()?, "STOPPING=1");
    worker.signal("HUP")?;
    std::fs::write(go, "")?;
    assert!(worker.wait()?.success());
    assert_eq!(orders.stats().await?.acked, 1, "the command had its grace");
    Ok(())
}

#[tokio::test]
async fn worker_of_nohup_outlives_its_terminal() -> Result<()> {
    let (server, orders) = queue("orders").await?;
    let mut worker = Dueq::run(
        Command::new("sh")
            .args(["-c", "trap '' HUP; exec \"$0\" work orders --print"])
            .arg(env!("CARGO_BIN_EXE_dueq"))
            .env("REDIS_URL", server.url())
            .env("RUST_LOG", "error"),
    )?;
    for payload in ["one", "two"] {
        orders
            .push_message(Message::new(payload).id(payload))
            .await?;
        let line = worker.says()?;
        assert!(line.contains(payload), "{line}");
        worker.signal("HUP")?;
    }
    worker.signal("TERM")?;
    assert!(worker.wait()?.success());
    Ok(())
}
