//! The processes that run the scripts, and their logs.

use std::fs::{File, OpenOptions};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Result, ensure};

use crate::serving::{Random, Serving};

const CONSUMERS: usize = 4;

pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(0))
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn appended(path: &Path) -> Result<File> {
    Ok(OpenOptions::new().create(true).append(true).open(path)?)
}

/// Four consumer processes, killed on drop.
pub(crate) struct Consumers {
    processes: Vec<(Child, Command)>,
    /// The number of killed consumers.
    pub(crate) kills: u64,
    folder: PathBuf,
    url: String,
    token: String,
}

impl Consumers {
    pub(crate) fn start(serving: &Serving, lease: Duration, slow: Duration) -> Result<Self> {
        let folder = serving.folder().to_owned();
        let mut processes = Vec::new();
        for number in 0..CONSUMERS {
            let mut command = Command::new("sh");
            command
                .arg(script("../examples/http_consumer/consume.sh"))
                .arg("jobs")
                .arg("sh")
                .arg(script("tests/consumers/handle.sh"))
                .arg(folder.join(format!("handled-{number}.log")))
                .env("DUEQ_SERVE", serving.url())
                .env("DUEQ_TOKEN", serving.token())
                .env("LEASE_S", lease.as_secs().to_string())
                .env("SLOW_S", slow.as_secs().to_string())
                .env("WAIT_MS", "3000")
                .env("RETRY_DELAY", "1s")
                .stdin(Stdio::null())
                .stdout(appended(&folder.join(format!("settled-{number}.log")))?)
                .stderr(appended(&folder.join("consumers.err"))?)
                .process_group(0);
            processes.push((command.spawn()?, command));
        }
        Ok(Self {
            processes,
            kills: 0,
            folder,
            url: serving.url().to_owned(),
            token: serving.token().to_owned(),
        })
    }

    /// Kills a consumer: either its whole process group, or the script alone.
    pub(crate) fn kill_one(&mut self, random: &mut Random) -> Result<()> {
        let number = random.below(CONSUMERS as u64) as usize;
        let (child, _) = &mut self.processes[number];
        if child.try_wait()?.is_some() {
            return Ok(());
        }
        let id = child.id();
        match random.below(2) {
            0 => signal("-KILL", &id.to_string())?,
            _ => signal("-KILL", &format!("-{id}"))?,
        }
        child.wait()?;
        self.kills += 1;
        Ok(())
    }

    pub(crate) fn restart_ended(&mut self) -> Result<()> {
        for (child, command) in &mut self.processes {
            if child.try_wait()?.is_some() {
                *child = command.spawn()?;
            }
        }
        Ok(())
    }

    /// Starts a producer of messages.
    pub(crate) fn producer(
        &self,
        prefix: &str,
        count: usize,
        begin_ms: u64,
        spread: Duration,
    ) -> Result<Producer> {
        let log = self.folder.join("producer.log");
        appended(&log)?;
        let mut command = Command::new("sh");
        command
            .arg(script("tests/consumers/produce.sh"))
            .arg(log)
            .args([prefix, &count.to_string(), &begin_ms.to_string()])
            .arg(spread.as_millis().to_string())
            .env("DUEQ_SERVE", &self.url)
            .env("DUEQ_TOKEN", &self.token)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(appended(&self.folder.join("producer.err"))?)
            .process_group(0);
        Ok(Producer {
            child: command.spawn()?,
            command,
        })
    }

    /// Asks all consumers to end, and waits until they have.
    pub(crate) fn stop(&mut self, limit: Duration) -> Result<()> {
        for (child, _) in &self.processes {
            signal("-TERM", &child.id().to_string())?;
        }
        let end = Instant::now() + limit;
        for (child, _) in &mut self.processes {
            while child.try_wait()?.is_none() {
                ensure!(Instant::now() < end, "a consumer does not end");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        Ok(())
    }
}

impl Drop for Consumers {
    fn drop(&mut self) {
        for (child, _) in &mut self.processes {
            if matches!(child.try_wait(), Ok(None)) {
                let _ = signal("-KILL", &format!("-{}", child.id()));
                let _ = child.wait();
            }
        }
    }
}

/// A producer process, killed on drop.
pub(crate) struct Producer {
    child: Child,
    command: Command,
}

impl Producer {
    pub(crate) fn kill(&mut self) -> Result<()> {
        if self.child.try_wait()?.is_none() {
            signal("-KILL", &format!("-{}", self.child.id()))?;
            self.child.wait()?;
        }
        Ok(())
    }

    /// Whether the producer has pushed all messages. If it was killed, starts it again.
    pub(crate) fn is_done(&mut self) -> Result<bool> {
        match self.child.try_wait()? {
            None => Ok(false),
            Some(status) if status.success() => Ok(true),
            Some(_) => {
                self.child = self.command.spawn()?;
                Ok(false)
            }
        }
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

fn signal(signal: &str, target: &str) -> Result<()> {
    let status = Command::new("kill").args([signal, "--", target]).status()?;
    ensure!(status.success(), "kill {signal} {target}: {status}");
    Ok(())
}
