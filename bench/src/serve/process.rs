//! Runs a process of `dueq serve`.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use super::http::Connection;
use dueq_testkit::process::{cpu_us, status_bytes};

/// A server process, killed on drop.
pub(super) struct Process {
    pub(super) address: SocketAddr,
    pid: u32,
    _child: Child,
}

impl Process {
    /// Starts `dueq serve` on a free port, with further arguments.
    pub(super) async fn serve(dueq: &Path, redis: &str, arguments: &[&str]) -> Result<Self> {
        let mut command = Command::new(dueq);
        command
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(arguments)
            .env("REDIS_URL", redis);
        let hint = "`make bench NAME=serve` builds it; --dueq names another program";
        Self::start(command)
            .await
            .with_context(|| format!("{}: {hint}", dueq.display()))
    }

    /// Starts a program that prints a line with `http://ADDRESS` once it listens.
    pub(super) async fn start(mut command: Command) -> Result<Self> {
        command.stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.kill_on_drop(true).spawn()?;
        let pid = child.id().context("it has ended")?;
        let mut lines = BufReader::new(child.stdout.take().context("its output")?).lines();
        let address = loop {
            let Some(line) = lines.next_line().await? else {
                bail!("it ended before it listened: {}", child.wait().await?);
            };
            if let Some(address) = address(&line) {
                break address;
            }
        };
        // Keep reading its output, so that a full pipe does not block it.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Ok(Self {
            address,
            pid,
            _child: child,
        })
    }

    pub(super) fn connection(&self) -> Connection {
        Connection::new(self.address)
    }

    /// The CPU time of the process so far, in microseconds.
    pub(super) fn cpu_us(&self) -> Result<f64> {
        cpu_us(self.pid)
    }

    /// The resident memory of the process.
    pub(super) fn memory_bytes(&self) -> Result<u64> {
        status_bytes(self.pid, "VmRSS")
    }
}

/// The CPU time of a process's main thread so far, in microseconds. Redis executes all calls on its
/// main thread.
pub(super) fn thread_us(pid: u32) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/schedstat"))?;
    let ns = stat.split_whitespace().next().context("no figures")?;
    Ok(ns.parse::<f64>()? / 1_000.0)
}

fn address(line: &str) -> Option<SocketAddr> {
    let (_, rest) = line.split_once("http://")?;
    let end = rest.find(|c: char| c != '.' && c != ':' && !c.is_ascii_digit());
    rest[..end.unwrap_or(rest.len())].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_read_from_the_line_that_a_server_prints() {
        let line = "listening on http://127.0.0.1:8377; Ctrl-C stops";
        assert_eq!(address(line), "127.0.0.1:8377".parse().ok());
        assert_eq!(address("http://127.0.0.1:1"), "127.0.0.1:1".parse().ok());
        assert_eq!(address("listening"), None);
    }

    #[test]
    fn time_of_a_thread_grows() {
        let before = thread_us(std::process::id()).expect("Linux");
        assert!(before >= 0.0 && thread_us(u32::MAX).is_err());
    }
}
