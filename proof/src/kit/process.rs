//! The processes of a proof. Only this module starts, signals and kills them.

use std::ffi::OsStr;
use std::fs::File;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

/// The complete lines of a process.
pub(crate) type Output = Lines<BufReader<ChildStdout>>;

/// The description of a process to start. By default it has no input, and its output is dropped.
pub(crate) struct Start(Command);

impl Start {
    /// This program with a hidden subcommand.
    pub(crate) fn role(name: &str) -> Result<Self> {
        let mut start = Self::program(&std::env::current_exe()?);
        start.0.arg(name);
        Ok(start)
    }

    pub(crate) fn program(path: &Path) -> Self {
        let mut command = Command::new(path);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        Self(command)
    }

    pub(crate) fn args(mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.0.args(args);
        self
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.0.env(name, value);
        self
    }

    pub(crate) fn env_remove(mut self, name: &str) -> Self {
        self.0.env_remove(name);
        self
    }

    /// Writes the standard error of the process into this file.
    pub(crate) fn log(mut self, path: &Path) -> Result<Self> {
        let file = File::create(path).with_context(|| path.display().to_string())?;
        self.0.stderr(file);
        Ok(self)
    }

    /// Lets the process use our standard error.
    pub(crate) fn heard(mut self) -> Self {
        self.0.stderr(Stdio::inherit());
        self
    }

    /// Appends the output of the process to this file.
    pub(crate) fn recording(mut self, path: &Path) -> Result<Self> {
        let file = File::options().append(true).open(path);
        self.0
            .stdout(file.with_context(|| path.display().to_string())?);
        Ok(self)
    }

    /// Makes the output of the process readable by lines.
    pub(crate) fn telling(mut self) -> Self {
        self.0.stdout(Stdio::piped());
        self
    }

    /// Makes the output readable by lines, and the input writable.
    pub(crate) fn talking(mut self) -> Self {
        self.0.stdin(Stdio::piped());
        self.telling()
    }

    pub(crate) fn start(mut self) -> Result<Process> {
        let mut child = self
            .0
            .spawn()
            .with_context(|| format!("cannot start {:?}", self.0.as_std().get_program()))?;
        let output = child.stdout.take();
        Ok(Process {
            input: child.stdin.take(),
            output: output.map(|output| BufReader::new(output).lines()),
            child,
        })
    }
}

/// A started process. It is killed on drop.
pub(crate) struct Process {
    child: Child,
    input: Option<ChildStdin>,
    output: Option<Output>,
}

impl Process {
    /// The process id; `None` if the end of the process is known.
    pub(crate) fn pid(&self) -> Option<Pid> {
        let pid = self.child.id()?;
        Pid::from_raw(pid.cast_signed())
    }

    pub(crate) fn number(&self) -> Result<u32> {
        self.child.id().context("the process has ended")
    }

    /// Takes the output, so that another task can read its lines.
    pub(crate) fn take_output(&mut self) -> Result<Output> {
        self.output.take().context("no standard output")
    }

    /// Writes a line to the standard input of the process.
    pub(crate) async fn tell(&mut self, line: &str) -> Result<()> {
        let input = self.input.as_mut().context("no standard input")?;
        let line = format!("{line}\n");
        Ok(input.write_all(line.as_bytes()).await?)
    }

    /// Writes a request as a line of JSON, and reads the answer.
    pub(crate) async fn ask<A: DeserializeOwned>(
        &mut self,
        request: &impl Serialize,
        limit: Duration,
    ) -> Result<A> {
        self.tell(&serde_json::to_string(request)?).await?;
        let output = self.output.as_mut().context("no standard output")?;
        let answer = timeout(limit, output.next_line())
            .await
            .with_context(|| format!("no answer within {limit:?}"))??
            .context("the process has ended")?;
        serde_json::from_str(&answer).with_context(|| format!("not an answer: {answer}"))
    }

    /// The exit status, if the process has ended.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Waits until the process has ended.
    pub(crate) async fn end(&mut self) -> Result<ExitStatus> {
        Ok(self.child.wait().await?)
    }

    /// Closes the standard input and waits for the end; kills the process at the time limit.
    pub(crate) async fn end_within(mut self, limit: Duration) -> Result<()> {
        drop(self.input.take());
        match timeout(limit, self.child.wait()).await {
            Ok(status) => status.map(drop)?,
            Err(_) => self.kill().await?,
        }
        Ok(())
    }

    /// Kills the process by SIGKILL.
    pub(crate) async fn kill(&mut self) -> Result<()> {
        Ok(self.child.kill().await?)
    }
}

/// Sends a signal to a process of a proof.
pub(crate) fn signal(pid: Pid, signal: Signal) -> Result<()> {
    Ok(kill_process(pid, signal)?)
}
