//! The processes of the workload: each runs behind its own proxy, and is restarted when it dies.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal};
use tokio::sync::watch;
use tokio::time::timeout;

use super::process::{Process, Start, signal};
use super::proxy::Proxy;
use crate::history::{Phase, Role};
use crate::run::log::Log;
use crate::run::shim::Control;
use crate::workload::POISON;

/// Limit for a process to start, to end, or to answer: far longer than it needs.
const LIMIT: Duration = Duration::from_secs(60);

/// A place in the crew. It runs one process after the other.
pub struct Place {
    pub name: String,
    pub role: Role,
    pub proxy: Proxy,
    /// A proxy in front of the process, if it listens.
    pub front: Option<Proxy>,
    /// The URL by which the process reaches the server through its proxy; on a cluster, several
    /// servers.
    url: String,
    pub shim: Control,
    pub folder: PathBuf,
    /// The arguments of the role, except for the name and the history.
    arguments: Vec<String>,
    status: watch::Sender<Status>,
}

#[derive(Debug, Clone, Default)]
pub struct Status {
    /// The number of the present process of this place; the first is 1.
    pub life: u32,
    pub pid: Option<Pid>,
    pub ready: bool,
    /// The wall clock that the process last reported, in Unix ms; and how often it did.
    clock: (i64, u64),
    /// How often the process has removed a queue from its worker and added it again.
    pub removed: u64,
    pub added: u64,
    /// How the previous process ended.
    last_end: String,
    /// Whether the harness killed the process or asked it to end.
    expected: bool,
    stopping: bool,
    over: bool,
}

impl Place {
    pub fn new(
        name: &str,
        role: Role,
        (proxy, front): (Proxy, Option<Proxy>),
        url: String,
        shim: Control,
        folder: PathBuf,
        arguments: Vec<String>,
    ) -> Arc<Self> {
        let status = watch::Sender::new(Status::default());
        Arc::new(Self {
            name: name.to_owned(),
            role,
            proxy,
            front,
            url,
            shim,
            folder,
            arguments,
            status,
        })
    }

    /// Whether a program in another language runs here.
    pub fn is_program(&self) -> bool {
        self.arguments.first().is_some_and(|role| role == "program")
    }

    pub fn status(&self) -> Status {
        self.status.borrow().clone()
    }

    /// The name of this place's process number `life`.
    pub fn process(&self, life: u32) -> String {
        if life == 1 {
            self.name.clone()
        } else {
            format!("{}.{life}", self.name)
        }
    }

    pub fn history(&self, life: u32) -> PathBuf {
        self.folder.join(format!("{}.jsonl", self.process(life)))
    }

    /// Keeps a process running, until the harness stops the place or a process ends with success.
    pub async fn keep(self: Arc<Self>, log: Arc<Log>) -> Result<()> {
        loop {
            let life = self.status.borrow().life + 1;
            let process = self.spawn(life)?;
            let pid = process.pid();
            self.status.send_modify(|status| {
                let last_end = std::mem::take(&mut status.last_end);
                let clock = status.clock;
                *status = Status {
                    life,
                    pid,
                    last_end,
                    clock,
                    stopping: status.stopping,
                    ..Status::default()
                };
            });
            let end = self.listen(process).await?;
            let status = self.status();
            if !status.expected && !status.stopping {
                self.died(&log, life, &end);
            }
            let over = status.stopping || end == "exit status: 0" && !status.expected;
            self.status.send_modify(|status| {
                (status.last_end, status.pid, status.ready, status.over) = (end, None, false, over);
            });
            if over {
                return Ok(());
            }
        }
    }

    fn spawn(&self, life: u32) -> Result<Process> {
        let process = self.process(life);
        let mut start = Start::role("role")?;
        for (name, value) in self.shim.environment() {
            start = start.env(name, value);
        }
        start
            .args(&self.arguments)
            .args(["--name", &process, "--url", &self.url, "--history"])
            .args([self.history(life)])
            .env_remove("RUST_LOG")
            .env_remove("RUST_BACKTRACE")
            .log(&self.folder.join(format!("{process}.log")))?
            .telling()
            .start()
    }

    /// Reads the standard output of a process until it ends.
    async fn listen(&self, mut process: Process) -> Result<String> {
        let mut lines = process.take_output()?;
        while let Ok(Some(line)) = lines.next_line().await {
            if line == "ready" {
                self.status.send_modify(|status| status.ready = true);
            } else if line.starts_with("removed ") {
                self.status.send_modify(|status| status.removed += 1);
            } else if line.starts_with("added ") {
                self.status.send_modify(|status| status.added += 1);
            } else if let Some(port) = line.strip_prefix("listens ")
                && let (Some(front), Ok(port)) = (&self.front, port.parse())
            {
                front.lead_to(port);
            } else if let Some(clock) = line.strip_prefix("clock ").and_then(|ms| ms.parse().ok()) {
                self.status
                    .send_modify(|status| status.clock = (clock, status.clock.1 + 1));
            }
        }
        Ok(process.end().await?.to_string())
    }

    /// Handles a death that the harness did not cause: only a poison message may be the reason.
    fn died(&self, log: &Log, life: u32, end: &str) {
        let process = self.process(life);
        if end == "exit status: 0" {
            return;
        }
        if self.ended_by_poison(life, end) {
            let number = log.next();
            let what = format!("{process} died of a poison message");
            for phase in [Phase::Begin, Phase::Trace, Phase::End] {
                log.fault("poison", number, phase, &what);
            }
            return;
        }
        log.wrong(format!("{process} ended unexpectedly: {end}; see its log"));
    }

    fn ended_by_poison(&self, life: u32, end: &str) -> bool {
        self.role == Role::Worker && end.starts_with("signal: 6") && self.was_poisoned(life)
    }

    /// Whether the history of the process ends with the start of a handler for a poison message.
    fn was_poisoned(&self, life: u32) -> bool {
        let text = std::fs::read(self.history(life)).unwrap_or_default();
        let tail = &text[text.len().saturating_sub(4_096)..];
        let tail = String::from_utf8_lossy(tail);
        tail.lines()
            .any(|line| line.contains("\"started\"") && line.contains(POISON))
    }

    /// Waits until the status of the place satisfies `is`.
    pub async fn until(&self, what: &str, is: impl FnMut(&Status) -> bool) -> Result<Status> {
        let mut statuses = self.status.subscribe();
        let status = timeout(LIMIT, statuses.wait_for(is)).await;
        let status = status
            .with_context(|| format!("{}: {what} took longer than {LIMIT:?}", self.name))??;
        Ok(status.clone())
    }

    pub fn signal(&self, what: Signal) -> Result<u32> {
        let status = self.status.borrow();
        let pid = status
            .pid
            .with_context(|| format!("{} is not running", self.name))?;
        signal(pid, what)?;
        Ok(status.life)
    }

    /// Kills the process by SIGKILL; returns its number.
    pub fn signal_kill(&self) -> Result<u32> {
        // Set this first, so that `keep` does not report the death.
        self.status.send_modify(|status| status.expected = true);
        self.signal(Signal::KILL)
            .inspect_err(|_| self.status.send_modify(|status| status.expected = false))
    }

    /// How a killed process ended.
    pub async fn ended(&self, life: u32) -> Result<String> {
        let status = self
            .until("its end", |status| {
                status.life > life || status.pid.is_none()
            })
            .await?;
        Ok(status.last_end)
    }

    /// The wall clock of the process, in Unix ms.
    pub async fn clock_ms(&self) -> Result<i64> {
        let Status {
            life,
            clock: (_, asked),
            ..
        } = self.status();
        self.signal(Signal::USR1)?;
        let answered = |status: &Status| status.clock.1 > asked;
        let over =
            |status: &Status| answered(status) || status.life != life || status.pid.is_none();
        let status = self.until("an answer about its clock", over).await?;
        ensure!(
            answered(&status),
            "{} ended before it reported its clock",
            self.process(life)
        );
        Ok(status.clock.0)
    }

    /// Asks the process to end, waits for that, and starts no other.
    pub async fn stop(&self) -> Result<()> {
        // Repeated, because a process that has just started does not handle signals yet.
        let over = self
            .until("its start", |status| status.ready || status.over)
            .await?
            .over;
        self.status.send_modify(|status| status.stopping = true);
        if over {
            return Ok(());
        }
        self.signal(Signal::TERM)?;
        let status = self.until("its end", |status| status.over).await?;
        // A poison message in back-off may become due while the worker ends.
        ensure!(
            status.last_end == "exit status: 0"
                || self.ended_by_poison(status.life, &status.last_end),
            "{} was asked to end, but: {}",
            self.name,
            status.last_end
        );
        Ok(())
    }

    /// Waits for the end of a process that ends without being asked to.
    pub async fn done(&self, limit: Duration) -> Result<()> {
        let mut statuses = self.status.subscribe();
        let Ok(status) = timeout(limit, statuses.wait_for(|status| status.over)).await else {
            bail!("{} does not end within {limit:?}", self.name)
        };
        status?;
        Ok(())
    }
}
