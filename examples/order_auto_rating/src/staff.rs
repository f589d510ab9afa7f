//! The worker processes and their parent's control of them.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::progress::Progress;

/// Delay before a replacement starts, so that a program that dies at once does not keep the machine
/// busy.
const SHORTEST_LIFE: Duration = Duration::from_millis(200);

/// Child processes of this program, each a node of the queue. The parent replaces one that is
/// killed.
pub(crate) struct Staff {
    members: JoinSet<Result<()>>,
    stop: watch::Sender<bool>,
}

impl Staff {
    pub(crate) fn hire(number: u16, queue: &str, database: &Path, progress: &Progress) -> Self {
        let (stop, stopped) = watch::channel(false);
        let mut members = JoinSet::new();
        for number in 1..=number {
            let (queue, database) = (queue.to_owned(), database.to_owned());
            let (progress, stopped) = (progress.clone(), stopped.clone());
            members
                .spawn(async move { member(number, &queue, &database, &progress, stopped).await });
        }
        Self { members, stop }
    }

    /// Returns when a worker process has failed.
    pub(crate) async fn failed(&mut self) -> anyhow::Error {
        match self.members.join_next().await {
            Some(Ok(Err(error))) => error,
            other => anyhow::anyhow!("a worker ended unasked: {other:?}"),
        }
    }

    /// Lets all workers finish their messages, and waits for their end.
    pub(crate) async fn dismiss(mut self) -> Result<()> {
        self.stop.send_replace(true);
        let mut result = Ok(());
        while let Some(member) = self.members.join_next().await {
            result = result.and(member?);
        }
        result
    }
}

async fn member(
    number: u16,
    queue: &str,
    database: &Path,
    progress: &Progress,
    mut stop: watch::Receiver<bool>,
) -> Result<()> {
    loop {
        let (mut process, begin) = (start(queue, database)?, Instant::now());
        progress.say(&format!(
            "worker {number} is process {}",
            process.id().unwrap_or_default()
        ));
        // Take stdin out, because `wait` closes it, and a closed stdin asks the worker to stop.
        let lifeline = process.stdin.take();
        let ended = tokio::select! {
            ended = process.wait() => ended?,
            () = async { stop.wait_for(|stop| *stop).await.map(drop).unwrap_or_default() } => {
                drop(lifeline);
                process.wait().await?;
                return Ok(());
            }
        };
        if ended.code().is_some_and(|code| code != 0) {
            bail!("worker {number} failed: {ended}");
        }
        progress.say(&format!(
            "worker {number} is gone ({ended}); starting another one"
        ));
        tokio::time::sleep(SHORTEST_LIFE.saturating_sub(begin.elapsed())).await;
    }
}

fn start(queue: &str, database: &Path) -> Result<Child> {
    // The Redis URL is in the environment, because other users can read arguments.
    Command::new(std::env::current_exe()?)
        .args(["work", "--queue", queue, "--database"])
        .arg(database)
        .stdin(Stdio::piped()) // closes when the parent ends for any reason
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .context("cannot start a worker")
}
