//! A crew of worker processes; a killed one is replaced. They report by lines on standard output,
//! which survive a kill, and take commands on standard input.

use std::time::Duration;

use anyhow::Result;
use rustix::process::Signal;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::process::{self, Output, Process, Start};

/// How long a worker may take to end after its standard input has ended.
const END: Duration = Duration::from_secs(10);

/// A line of a worker.
#[derive(Debug)]
pub(crate) struct Line {
    /// The number of the worker's process; each process has another.
    pub(crate) worker: u64,
    pub(crate) text: String,
}

pub(crate) struct Crew {
    role: &'static str,
    url: String,
    members: Vec<(u64, Process)>,
    lines: UnboundedSender<Line>,
    started: u64,
}

impl Crew {
    /// Starts workers, each running this hidden subcommand.
    pub(crate) fn start(
        role: &'static str,
        url: String,
        count: usize,
    ) -> Result<(Self, UnboundedReceiver<Line>)> {
        let (lines, received) = unbounded_channel();
        let mut crew = Self {
            role,
            url,
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

    fn member(&mut self) -> Result<(u64, Process)> {
        let number = self.started;
        let name = number.to_string();
        let start = Start::role(self.role)?.args(["--url", &self.url, "--number", &name]);
        let mut process = start.heard().talking().start()?;
        self.started += 1;
        tokio::spawn(read(process.take_output()?, number, self.lines.clone()));
        Ok((number, process))
    }

    /// Kills a worker by SIGKILL, and starts another one in its place. Returns whether the worker
    /// still existed.
    pub(crate) async fn kill(&mut self, worker: u64) -> Result<bool> {
        let Some(index) = self.index_of(worker) else {
            return Ok(false);
        };
        let member = self.member()?;
        let (_, mut killed) = std::mem::replace(&mut self.members[index], member);
        killed.kill().await?;
        Ok(true)
    }

    /// Sends a signal to a worker. Does nothing if the worker was replaced.
    pub(crate) fn signal(&self, worker: u64, signal: Signal) -> Result<()> {
        let member = self.index_of(worker).map(|index| &self.members[index].1);
        match member.and_then(Process::pid) {
            Some(pid) => process::signal(pid, signal),
            None => Ok(()),
        }
    }

    /// The number of a random worker.
    pub(crate) fn any(&self) -> u64 {
        self.members[fastrand::usize(..self.members.len())].0
    }

    /// Writes a line to a worker. A killed worker does not get it.
    pub(crate) async fn tell(&mut self, worker: u64, line: &str) -> Result<()> {
        if let Some(index) = self.index_of(worker) {
            self.members[index].1.tell(line).await?;
        }
        Ok(())
    }

    fn index_of(&self, worker: u64) -> Option<usize> {
        self.members
            .iter()
            .position(|(number, _)| *number == worker)
    }

    /// The number of started workers, including replacements.
    pub(crate) fn started(&self) -> u64 {
        self.started
    }

    /// Ends all workers. After that the receiver of their lines ends, too.
    pub(crate) async fn end(self) -> Result<()> {
        for (_, process) in self.members {
            process.end_within(END).await?;
        }
        Ok(())
    }
}

/// Passes on the lines of a worker.
async fn read(mut output: Output, worker: u64, lines: UnboundedSender<Line>) {
    while let Ok(Some(text)) = output.next_line().await {
        if lines.send(Line { worker, text }).is_err() {
            return;
        }
    }
}
