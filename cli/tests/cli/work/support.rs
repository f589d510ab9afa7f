//! A running program and its output.

use std::io::{BufRead, BufReader, Lines};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use dueq::{Client, Queue, QueueStats, StoredMessage};
use dueq_testkit::Server;

/// A limit that only a broken program reaches.
pub(crate) const LIMIT: Duration = Duration::from_secs(600);

/// A running `dueq`, killed on drop. Its standard output and that of its commands are read by
/// lines.
pub(crate) struct Dueq {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Dueq {
    pub(crate) fn start(url: &str, args: &[&str]) -> Result<Self> {
        Self::run(&mut command(url, args))
    }

    pub(crate) fn run(command: &mut Command) -> Result<Self> {
        let mut child = command.stdout(Stdio::piped()).spawn().context("dueq")?;
        let lines = BufReader::new(child.stdout.take().context("its output")?).lines();
        Ok(Self { child, lines })
    }

    /// Reads the next line; fails at the end of the output.
    pub(crate) fn says(&mut self) -> Result<String> {
        Ok(self.lines.next().context("the output has ended")??)
    }

    /// Reads all lines until the program and its commands have closed the output.
    pub(crate) fn rest(&mut self) -> Result<Vec<String>> {
        Ok(self.lines.by_ref().collect::<Result<_, _>>()?)
    }

    /// The pipe of the standard error, if the command has one. A second call returns nothing.
    pub(crate) fn stderr(&mut self) -> Option<ChildStderr> {
        self.child.stderr.take()
    }

    pub(crate) fn signal(&self, name: &str) -> Result<()> {
        signal(name, &self.child.id().to_string())
    }

    pub(crate) fn wait(&mut self) -> Result<ExitStatus> {
        Ok(self.child.wait()?)
    }
}

impl Drop for Dueq {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn command(url: &str, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dueq"));
    command
        .args(args)
        .env("REDIS_URL", url)
        .env("RUST_LOG", "error")
        .stdin(Stdio::null());
    command
}

pub(crate) fn signal(name: &str, target: &str) -> Result<()> {
    let status = Command::new("sh")
        .args(["-c", "kill -s \"$0\" -- \"$1\"", name, target])
        .status()?;
    anyhow::ensure!(status.success(), "kill -{name} {target}");
    Ok(())
}

/// Starts a private server, and opens a queue on it.
pub(crate) async fn queue(name: &str) -> Result<(Server, Queue)> {
    let server = Server::start(&[])?;
    let queue = Client::connect(&server.url()).await?.queue(name)?;
    Ok((server, queue))
}

/// Polls until `found` returns something, for states that Redis or the kernel does not report.
pub(crate) async fn until<T>(
    what: &str,
    mut found: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let start = Instant::now();
    while start.elapsed() < LIMIT {
        if let Some(found) = found().await? {
            return Ok(found);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    bail!("{what}: not within {LIMIT:?}")
}

pub(crate) async fn stats(
    queue: &Queue,
    what: &str,
    is: impl Fn(&QueueStats) -> bool,
) -> Result<QueueStats> {
    until(what, async || {
        Ok(Some(queue.stats().await?).filter(|stats| is(stats)))
    })
    .await
}

/// Waits until the message fulfils the condition, and returns it.
pub(crate) async fn stored(
    queue: &Queue,
    id: &str,
    is: impl Fn(&StoredMessage) -> bool,
) -> Result<StoredMessage> {
    until(id, async || {
        Ok(queue.get(id).await?.filter(|stored| is(stored)))
    })
    .await
}

/// Whether a process of this group is alive. A zombie is not.
pub(crate) fn group_lives(group: &str) -> Result<bool> {
    let output = Command::new("ps")
        .args(["-e", "-o", "pgid=,stat="])
        .output()?;
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(table.lines().any(|line| {
        let mut words = line.split_whitespace();
        words.next() == Some(group) && words.next().is_some_and(|state| !state.starts_with('Z'))
    }))
}

/// A folder for the test, removed on drop.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Result<Self> {
        let path = std::env::temp_dir().join(format!("dueq-cli-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
