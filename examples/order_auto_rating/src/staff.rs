//! The worker processes, as their parent sees them.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::progress::Progress;

/// How soon after a worker the next one takes its place: a program that dies at once must not keep the machine busy.
const SHORTEST_LIFE: Duration = Duration::from_millis(200);

/// Some processes of this very program, each a node of the queue. One that is killed is replaced.
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

    /// Completes when one of them gave up.
    pub(crate) async fn failed(&mut self) -> anyhow::Error {
        match self.members.join_next().await {
            Some(Ok(Err(error))) => error,
            other => anyhow::anyhow!("a worker ended unasked: {other:?}"),
        }
    }

    /// Lets all of them finish what they have, and waits for them.
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
        // Taken out, because `wait` closes it: it is the sign to stop.
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
            "worker {number} is gone ({ended}); another one takes its place"
        ));
        tokio::time::sleep(SHORTEST_LIFE.saturating_sub(begin.elapsed())).await;
    }
}

fn start(queue: &str, database: &Path) -> Result<Child> {
    // Redis's URL is in the environment, and not among the arguments that everybody can read.
    Command::new(std::env::current_exe()?)
        .args(["work", "--queue", queue, "--database"])
        .arg(database)
        .stdin(Stdio::piped()) // it ends with us, however we end
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .context("cannot start a worker")
}
