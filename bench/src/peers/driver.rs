//! Runs a driver, the program of one measured system.

use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use dueq_bench_driver::{Reply, Request};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};

use dueq_testkit::process::status_bytes;

/// A running driver process, ended on drop.
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
        Ok(Self {
            child,
            requests,
            replies,
        })
    }

    /// Sends a request and waits for its reply.
    pub(crate) async fn ask(&mut self, request: &Request, limit: Duration) -> Result<Reply> {
        let reply: Reply = self.exchange(request, limit).await?;
        match reply.error {
            Some(error) => bail!(error),
            None => Ok(reply),
        }
    }

    /// Sends any line and waits for its answer.
    pub(crate) async fn exchange<A: DeserializeOwned>(
        &mut self,
        line: &impl Serialize,
        limit: Duration,
    ) -> Result<A> {
        let mut line = serde_json::to_string(line)?;
        line.push('\n');
        self.requests
            .write_all(line.as_bytes())
            .await
            .context("the driver has ended")?;
        let reply = tokio::time::timeout(limit, self.replies.next_line())
            .await
            .map_err(|_| anyhow!("no reply within {limit:?}"))??
            .context("the driver has ended")?;
        serde_json::from_str(&reply).with_context(|| format!("not a reply: {reply}"))
    }

    /// Resets the driver's peak memory.
    pub(crate) fn forget_peak(&self) -> Result<()> {
        Ok(std::fs::write(
            format!("/proc/{}/clear_refs", self.pid()?),
            "5",
        )?)
    }

    /// The driver's peak resident memory since the reset, in bytes.
    pub(crate) fn peak_bytes(&self) -> Result<u64> {
        status_bytes(self.pid()?, "VmHWM")
    }

    pub(crate) fn pid(&self) -> Result<u32> {
        self.child.id().context("the driver has ended")
    }
}
