//! Signals that end a worker: it releases its messages, so that none waits until its lease expires.

use std::process::Command;

use anyhow::{Context, Result};
use dueq::{Message, MessageState};

use crate::work::http::{Receiver, post};
use crate::work::support::{Dueq, queue};

#[tokio::test]
async fn every_end_signal_releases_running_messages() -> Result<()> {
    let signals = ["HUP", "QUIT", "TERM", "INT"];
    for signal in &signals[usize::from(ignores_hup()?)..] {
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

/// Whether nohup started this process: then its children ignore SIGHUP, too.
fn ignores_hup() -> Result<bool> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let ignored = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .context("SigIgn")?;
    Ok(u64::from_str_radix(ignored.trim(), 16)? & 1 == 1)
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
