//! A driver: the program of one system.

use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use dueq_bench_driver::{Reply, Request};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};

/// A running driver, ended when it is dropped.
pub(crate) struct Driver {
    child: Child,
    requests: ChildStdin,
    replies: Lines<BufReader<ChildStdout>>,
}

impl Driver {
    pub(crate) fn start(command: Command) -> Result<Self> {
        let mut child = tokio::process::Command::from(command)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("cannot be started")?;
        let requests = child.stdin.take().context("a pipe")?;
        let replies = BufReader::new(child.stdout.take().context("a pipe")?).lines();
        Ok(Self { child, requests, replies })
    }

    /// Sends a request and waits for its reply.
    pub(crate) async fn ask(&mut self, request: &Request, limit: Duration) -> Result<Reply> {
        let mut line = serde_json::to_string(request)?;
        line.push('\n');
        self.requests.write_all(line.as_bytes()).await.context("the driver has ended")?;
        let reply = tokio::time::timeout(limit, self.replies.next_line())
            .await
            .map_err(|_| anyhow!("no reply within {limit:?}"))??
            .context("the driver has ended")?;
        let reply: Reply = serde_json::from_str(&reply).with_context(|| format!("not a reply: {reply}"))?;
        match reply.error {
            Some(error) => bail!(error),
            None => Ok(reply),
        }
    }

    /// From now on the peak of its memory counts.
    pub(crate) fn forget_peak(&self) -> Result<()> {
        Ok(std::fs::write(format!("/proc/{}/clear_refs", self.pid()?), "5")?)
    }

    /// The most memory it has had resident, in bytes.
    pub(crate) fn peak_bytes(&self) -> Result<u64> {
        status_bytes(self.pid()?, "VmHWM")
    }

    fn pid(&self) -> Result<u32> {
        self.child.id().context("the driver has ended")
    }
}

/// A line of /proc/PID/status, in bytes.
pub(crate) fn status_bytes(pid: u32, field: &str) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    kilobytes(&status, field).map(|kb| kb * 1_024).with_context(|| format!("no {field} of process {pid}"))
}

fn kilobytes(status: &str, field: &str) -> Option<u64> {
    let rest = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    rest.trim().strip_suffix(" kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_from_the_status_of_a_process() {
        let status = "Name:\tx\nVmHWM:\t    1234 kB\nVmRSS:\t 12 kB\n";
        assert_eq!(kilobytes(status, "VmHWM"), Some(1_234));
        assert_eq!(kilobytes(status, "VmSwap"), None);
        assert!(status_bytes(std::process::id(), "VmRSS").expect("our own") > 100_000);
    }
}
