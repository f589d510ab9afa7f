//! Worker processes that can be killed and stopped. They report by lines on standard output, which
//! outlive a kill, and take commands on standard input.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::worker::Role;

/// How long a worker may take to end after its standard input has ended.
const END: Duration = Duration::from_secs(10);

/// A line of a worker.
#[derive(Debug)]
pub(super) struct Line {
    /// The number of the worker: each process has its own.
    pub(super) worker: u64,
    pub(super) text: String,
}

pub(super) struct Crew {
    url: String,
    role: Role,
    members: Vec<Member>,
    lines: UnboundedSender<Line>,
    started: u64,
}

struct Member {
    number: u64,
    pid: Pid,
    child: Child,
    stdin: ChildStdin,
}

impl Crew {
    pub(super) fn start(
        url: &str,
        role: Role,
        count: usize,
    ) -> Result<(Self, UnboundedReceiver<Line>)> {
        let (lines, received) = unbounded_channel();
        let mut crew = Self {
            url: url.to_owned(),
            role,
            members: Vec::new(),
            lines,
            started: 0,
        };
        for _ in 0..count {
            let member = crew.member()?;
            crew.members.push(member);
        }
        Ok((crew, received))
    }

    fn member(&mut self) -> Result<Member> {
        let number = self.started;
        let mut child = Command::new(std::env::current_exe()?)
            .args(["uniqueness-worker", "--url", &self.url])
            .args(["--role", self.role.name(), "--number", &number.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("a worker")?;
        self.started += 1;
        let stdin = child.stdin.take().context("its standard input")?;
        let stdout = child.stdout.take().context("its standard output")?;
        let raw = child.id().context("the worker ended at once")?;
        let pid = Pid::from_raw(raw.cast_signed()).context("a process id")?;
        tokio::spawn(read(stdout, number, self.lines.clone()));
        Ok(Member {
            number,
            pid,
            child,
            stdin,
        })
    }

    /// Kills a worker with SIGKILL, and starts another one in its stead. Returns whether the worker
    /// was still there.
    pub(super) async fn kill(&mut self, number: u64) -> Result<bool> {
        let Some(index) = self.index_of(number) else {
            return Ok(false);
        };
        let member = self.member()?;
        let mut killed = std::mem::replace(&mut self.members[index], member);
        killed.child.kill().await?;
        Ok(true)
    }

    /// Sends a signal to a worker, if it is still there.
    pub(super) fn signal(&self, number: u64, signal: Signal) -> Result<()> {
        if let Some(index) = self.index_of(number) {
            kill_process(self.members[index].pid, signal)?;
        }
        Ok(())
    }

    /// Writes a line to a worker. One that was killed does not get it.
    pub(super) async fn tell(&mut self, number: u64, line: &str) -> Result<()> {
        if let Some(index) = self.index_of(number) {
            let stdin = &mut self.members[index].stdin;
            stdin.write_all(format!("{line}\n").as_bytes()).await?;
        }
        Ok(())
    }

    fn index_of(&self, number: u64) -> Option<usize> {
        self.members
            .iter()
            .position(|member| member.number == number)
    }

    /// The number of a worker at random.
    pub(super) fn any(&self) -> u64 {
        self.members[fastrand::usize(..self.members.len())].number
    }

    /// How many workers were started, replacements included.
    pub(super) fn started(&self) -> u64 {
        self.started
    }

    /// Ends all workers; then the receiver of their lines ends, too.
    pub(super) async fn end(self) -> Result<()> {
        for mut member in self.members {
            drop(member.stdin);
            if tokio::time::timeout(END, member.child.wait())
                .await
                .is_err()
            {
                member.child.kill().await?;
            }
        }
        Ok(())
    }
}

/// Passes on the complete lines of a worker: a kill may cut the last one.
async fn read(stdout: ChildStdout, worker: u64, lines: UnboundedSender<Line>) {
    let (mut reader, mut line) = (BufReader::new(stdout), String::new());
    while let Ok(1..) = reader.read_line(&mut line).await {
        let Some(text) = line.strip_suffix('\n') else {
            return;
        };
        let text = text.to_owned();
        if lines.send(Line { worker, text }).is_err() {
            return;
        }
        line.clear();
    }
}
