//! One worker node in a process of its own, and a crew of them whose members are killed.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use dueq::{Client, Delivery};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use super::QUEUE;
use super::record::{Recorder, wall_us};

/// How long a node waits before it tries again to connect.
const RECONNECT: Duration = Duration::from_millis(100);

/// Handles the messages of the queue `limits` until it is killed, and logs its script calls.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[arg(long)]
    url: String,
    #[arg(long)]
    log: PathBuf,
    #[arg(long)]
    lease_ms: u64,
    /// How long a handler takes
    #[arg(long)]
    handler_ms: u64,
    /// Scripts that replace those of the library
    #[arg(long)]
    scripts: Option<PathBuf>,
}

#[tokio::main(worker_threads = 1)]
pub(crate) async fn run(arguments: &Arguments) -> Result<()> {
    if let Some(folder) = &arguments.scripts {
        dueq::harness::replace_scripts(folder)?;
    }
    Recorder::begin(&arguments.log)?;
    let queue = loop {
        // The server may be away: then the process is a node that starts late.
        match Client::connect(&arguments.url).await {
            Ok(client) => break client.queue(QUEUE)?,
            Err(error) if error.is_retryable() => tokio::time::sleep(RECONNECT).await,
            Err(error) => return Err(error.into()),
        }
    };
    let length = Duration::from_millis(arguments.handler_ms);
    let handler = move |_: Delivery| tokio::time::sleep(length);
    queue
        .worker()
        .lease(Duration::from_millis(arguments.lease_ms))
        .run(handler, std::future::pending::<()>())
        .await?;
    Ok(())
}

/// How the nodes of a crew work.
pub(crate) struct Work {
    pub(crate) url: String,
    pub(crate) lease_ms: u64,
    pub(crate) handler_ms: u64,
    pub(crate) scripts: Option<PathBuf>,
}

/// Nodes that are replaced when they end.
pub(crate) struct Crew {
    work: Work,
    folder: PathBuf,
    nodes: Vec<Node>,
    /// How many processes have been started.
    started: usize,
    /// Stopped processes, and when they continue.
    stopped: Vec<(Pid, Instant)>,
    /// How many were stopped.
    pub(crate) stops: u64,
    /// How many were killed.
    pub(crate) kills: u64,
    /// How many nodes exited without a kill of this run.
    pub(crate) ended: u64,
}

struct Node {
    child: Child,
    log: PathBuf,
}

impl Crew {
    /// Starts nodes that log into this folder.
    pub(crate) fn start(count: usize, work: Work, folder: &Path) -> Result<Self> {
        let mut crew = Self {
            work,
            folder: folder.to_owned(),
            nodes: Vec::new(),
            started: 0,
            stopped: Vec::new(),
            stops: 0,
            kills: 0,
            ended: 0,
        };
        for _ in 0..count {
            let node = crew.another()?;
            crew.nodes.push(node);
        }
        Ok(crew)
    }

    fn another(&mut self) -> Result<Node> {
        let log = self.folder.join(format!("node-{}", self.started));
        self.started += 1;
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(["limits-node", "--url", &self.work.url, "--log"])
            .arg(&log)
            .args(["--lease-ms", &self.work.lease_ms.to_string()])
            .args(["--handler-ms", &self.work.handler_ms.to_string()]);
        if let Some(folder) = &self.work.scripts {
            command.arg("--scripts").arg(folder);
        }
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("cannot start a node")?;
        Ok(Node { child, log })
    }

    /// Kills a random node with kill -9 and starts another in its place. Returns the time of its
    /// end.
    pub(crate) async fn kill_any(&mut self) -> Result<u64> {
        let index = fastrand::usize(..self.nodes.len());
        self.kill(index).await
    }

    /// The same with the node whose log ends with a claim, if there is one: it probably has a
    /// message.
    pub(crate) async fn kill_holder(&mut self) -> Result<u64> {
        let holder = self
            .nodes
            .iter()
            .position(|node| ends_with_claim(&node.log));
        let index = holder.unwrap_or_else(|| fastrand::usize(..self.nodes.len()));
        self.kill(index).await
    }

    async fn kill(&mut self, index: usize) -> Result<u64> {
        let pid = self.nodes[index].child.id();
        self.stopped
            .retain(|(stopped, _)| Some(stopped.as_raw_nonzero().get() as u32) != pid);
        self.nodes[index].child.kill().await?;
        let killed_us = wall_us();
        self.kills += 1;
        self.nodes[index] = self.another()?;
        Ok(killed_us)
    }

    /// Stops a random node with SIGSTOP; [`continue_due`](Self::continue_due) lets it go on after this time.
    pub(crate) fn stop_any(&mut self, time: Duration) -> Result<()> {
        let node = &self.nodes[fastrand::usize(..self.nodes.len())];
        let pid = node.child.id().and_then(|pid| Pid::from_raw(pid as i32));
        let Some(pid) = pid else {
            return Ok(()); // it has ended
        };
        kill_process(pid, Signal::STOP)?;
        self.stopped.push((pid, Instant::now() + time));
        self.stops += 1;
        Ok(())
    }

    /// Lets stopped nodes go on whose time is over.
    pub(crate) fn continue_due(&mut self) {
        self.stopped.retain(|(pid, until)| {
            let is_due = *until <= Instant::now();
            if is_due {
                let _ = kill_process(*pid, Signal::CONT); // it may have been killed
            }
            !is_due
        });
    }

    /// Replaces nodes that exited without a kill of this run.
    pub(crate) fn replace_ended(&mut self) -> Result<()> {
        for index in 0..self.nodes.len() {
            if let Some(status) = self.nodes[index].child.try_wait()? {
                eprintln!("a node ended: {status}");
                self.ended += 1;
                self.nodes[index] = self.another()?;
            }
        }
        Ok(())
    }

    /// Kills all nodes for good.
    pub(crate) async fn end(&mut self) -> Result<()> {
        for node in &mut self.nodes {
            node.child.kill().await?;
        }
        Ok(())
    }
}

fn ends_with_claim(log: &Path) -> bool {
    let mut end = String::new();
    let read = File::open(log).and_then(|mut file| {
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(400)))?;
        file.read_to_string(&mut end)
    });
    let last = end.lines().rfind(|line| !line.contains("\"beat\""));
    read.is_ok() && last.is_some_and(|line| line.contains("\"Granted\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holder_is_the_node_whose_log_ends_with_a_claim() {
        let log = std::env::temp_dir().join(format!("dueq-holder-{}", std::process::id()));
        let ends = |text: &str| {
            std::fs::write(&log, text).expect("a file");
            ends_with_claim(&log)
        };
        let (claim, beat) = ("{\"Granted\":{}}\n", "{\"Asked\":{\"verb\":\"beat\"}}\n");
        assert!(ends(&format!("{}{claim}{beat}", beat.repeat(50))));
        assert!(!ends(&format!("{claim}{{\"Settled\":{{}}}}\n")));
        assert!(!ends(""));
        std::fs::remove_file(&log).expect("the file");
        assert!(!ends_with_claim(&log));
    }
}
