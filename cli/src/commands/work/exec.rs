//! `--exec`: runs a command for each message, in its own process group.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use dueq::{Delivery, Settlement};
use rustix::process::Pid;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStderr, Command};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::group::{self, Guard};

/// The exit code for "no further attempt will help": EX_DATAERR of sysexits.h.
const BURY: i32 = 65;
/// How many bytes are kept of the end of a command's stderr.
const TAIL: usize = 1_000;
/// How long to wait for the end of stderr after the end of the group. A process outside of the
/// group may keep stderr open.
const STDERR_LIMIT: Duration = Duration::from_secs(1);

/// Waits for a line before it runs the command. The line comes when the guard knows the group; if
/// the worker is killed before that, the command never runs. A shell reads a line byte by byte, and
/// so leaves the payload to the command.
const BEGIN: &str = "IFS= read -r go && exec sh -c \"$1\"";

pub(super) struct Exec {
    command: String,
    queue: String,
    timeout: Option<Duration>,
    /// Cancelled at the end of the grace.
    over: CancellationToken,
    guard: Arc<Guard>,
    running: TaskTracker,
}

impl Exec {
    pub(super) fn new(
        command: String,
        queue: String,
        timeout: Option<Duration>,
        over: CancellationToken,
    ) -> io::Result<Self> {
        Ok(Self {
            command,
            queue,
            timeout,
            over,
            guard: Arc::new(Guard::start()?),
            running: TaskTracker::new(),
        })
    }

    /// Waits until no command runs, even if its handler was dropped.
    pub(super) async fn finish(&self) {
        self.running.close();
        self.running.wait().await;
    }

    pub(super) async fn handle(&self, delivery: &Delivery) -> Settlement {
        let child = match self.spawn(delivery) {
            Ok(child) => child,
            Err(error) => return Settlement::retry(format_args!("cannot run sh: {error}")),
        };
        let dropped = CancellationToken::new();
        // A separate task ends the command: this future may be dropped, and a drop cannot wait.
        let _drop = dropped.clone().drop_guard();
        let (guard, timeout, over) = (Arc::clone(&self.guard), self.timeout, self.over.clone());
        let (id, delivery) = (delivery.id(), delivery.clone());
        let task = self.running.spawn(async move {
            let timeout = async {
                match timeout {
                    Some(timeout) => tokio::time::sleep(timeout).await,
                    None => std::future::pending().await,
                }
            };
            let stop = async {
                tokio::select! {
                    () = dropped.cancelled() => Stop::Dropped,
                    () = delivery.lost() => Stop::Lost,
                    () = over.cancelled() => Stop::Over,
                    () = timeout => Stop::Timeout,
                }
            };
            attend(child, &delivery, &guard, stop).await
        });
        match task.await {
            Ok(Ended::By(Stop::Over | Stop::Dropped)) => Settlement::Release,
            Ok(Ended::By(Stop::Lost)) => {
                tracing::warn!(%id, "the lease was lost: the command was killed");
                Settlement::Release
            }
            Ok(Ended::By(Stop::Timeout)) => Settlement::retry(format_args!(
                "killed: it took longer than {:?}",
                self.timeout.unwrap_or_default()
            )),
            Ok(Ended::Exited(status, tail)) => settlement(status, &tail),
            Ok(Ended::Unknown(error)) => {
                Settlement::retry(format_args!("cannot wait for the command: {error}"))
            }
            Err(error) => Settlement::retry(error),
        }
    }

    fn spawn(&self, delivery: &Delivery) -> io::Result<Child> {
        let mut command = Command::new("sh");
        // The worker's own trace is not the message's.
        command.env_remove("TRACEPARENT").env_remove("TRACESTATE");
        if let Some(trace_parent) = delivery.trace_parent() {
            command.env("TRACEPARENT", trace_parent);
        }
        command
            .args(["-c", BEGIN, "sh", &self.command])
            .env("DUEQ_ID", OsStr::from_bytes(delivery.id_bytes()))
            .env("DUEQ_ATTEMPT", delivery.attempt().to_string())
            .env("DUEQ_DUE_MS", delivery.due_ms().to_string())
            .env("DUEQ_QUEUE", &self.queue)
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
    }
}

/// Why the worker ended a command.
enum Stop {
    Dropped,
    Lost,
    Over,
    Timeout,
}

enum Ended {
    Exited(ExitStatus, Vec<u8>),
    By(Stop),
    Unknown(io::Error),
}

/// Writes the payload to a command, awaits or enforces its end, and ends its whole group.
async fn attend(
    mut child: Child,
    delivery: &Delivery,
    guard: &Guard,
    stop: impl Future<Output = Stop>,
) -> Ended {
    let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    if let Some(group) = group {
        guard.add(group);
    }
    let stderr = child.stderr.take().map(|stderr| tokio::spawn(copy(stderr)));
    let stdin = child.stdin.take();
    let feed = async {
        if let Some(mut stdin) = stdin {
            // A command need not read its input.
            let _ = stdin.write_all(b"\n").await;
            let _ = stdin.write_all(delivery.payload()).await;
        }
        // The input is closed now; the command may run for long after that.
        std::future::pending::<Stop>().await
    };
    let stopped = tokio::select! {
        status = child.wait() => Err(status),
        stop = stop => Ok(stop),
        stop = feed => Ok(stop),
    };
    // After a normal exit too: background processes belong to a message that will be settled now.
    let clear = async {
        if let Some(group) = group {
            group::end(group, group::PATIENCE).await;
            guard.remove(group);
        }
    };
    match stopped {
        Err(Ok(status)) => {
            clear.await;
            Ended::Exited(status, tail_of(stderr).await)
        }
        Err(Err(error)) => {
            clear.await;
            Ended::Unknown(error)
        }
        // Reap the command at the same time: a zombie would keep its group alive.
        Ok(stop) => {
            let _ = tokio::join!(child.wait(), clear);
            Ended::By(stop)
        }
    }
}

/// Copies a command's stderr to the worker's, and keeps its end.
async fn copy(mut from: ChildStderr) -> Vec<u8> {
    let (mut to, mut chunk, mut tail) = (tokio::io::stderr(), [0; 4096], Vec::new());
    while let Ok(read @ 1..) = from.read(&mut chunk).await {
        // The worker's stderr may be closed; the command must not stall for that.
        let _ = to.write_all(&chunk[..read]).await;
        let _ = to.flush().await;
        tail.extend_from_slice(&chunk[..read]);
        tail.drain(..tail.len().saturating_sub(TAIL));
    }
    tail
}

async fn tail_of(stderr: Option<JoinHandle<Vec<u8>>>) -> Vec<u8> {
    let Some(stderr) = stderr else {
        return Vec::new();
    };
    let abort = stderr.abort_handle();
    let tail = tokio::time::timeout(STDERR_LIMIT, stderr).await;
    abort.abort();
    tail.map(Result::unwrap_or_default).unwrap_or_default()
}

fn settlement(status: ExitStatus, stderr: &[u8]) -> Settlement {
    let said = String::from_utf8_lossy(stderr);
    let said = said.trim();
    let said = if said.is_empty() {
        String::new()
    } else {
        format!(": {said}")
    };
    match (status.code(), status.signal()) {
        (Some(0), _) => Settlement::Ack,
        (Some(BURY), _) => Settlement::bury(format!("exit status {BURY}{said}")),
        (Some(code), _) => Settlement::retry(format_args!("exit status {code}{said}")),
        (None, Some(signal)) => Settlement::retry(format_args!("killed by signal {signal}{said}")),
        (None, None) => Settlement::retry(format_args!("{status}{said}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_map_to_settlements() {
        let exit =
            |code: i32, said: &str| settlement(ExitStatus::from_raw(code << 8), said.as_bytes());
        assert_eq!(exit(0, "only a warning\n"), Settlement::Ack);
        assert_eq!(
            exit(65, "no such order\n"),
            Settlement::bury("exit status 65: no such order")
        );
        assert_eq!(exit(1, ""), Settlement::retry("exit status 1"));
        assert_eq!(
            exit(127, "sh: x: not found\n"),
            Settlement::retry("exit status 127: sh: x: not found")
        );
        assert_eq!(
            settlement(ExitStatus::from_raw(9), b""),
            Settlement::retry("killed by signal 9")
        );
    }

    #[tokio::test]
    async fn dropped_handler_leaves_no_process() -> anyhow::Result<()> {
        let server = dueq_testkit::Server::start(&[])?;
        let orders = dueq::Client::connect(&server.url())
            .await?
            .queue("orders")?;
        orders.push_message(dueq::Message::new("")).await?;
        let delivery = orders.claim(1, Duration::from_secs(30)).await?.remove(0);
        let file = server.folder().join("group").display().to_string();
        let command = format!("sleep 1000 & echo $$ > {file}.part; mv {file}.part {file}; wait");
        let exec = Exec::new(command, "orders".to_owned(), None, CancellationToken::new())?;

        let mut handler = Box::pin(exec.handle(&delivery));
        let group = loop {
            tokio::select! {
                settlement = &mut handler => anyhow::bail!("it ended: {settlement:?}"),
                () = tokio::time::sleep(Duration::from_millis(5)) => {}
            }
            if let Ok(group) = std::fs::read_to_string(&file) {
                break group.trim().to_owned();
            }
        };
        drop(handler);
        exec.finish().await;
        let living = format!("ps -e -o pgid=,stat= | awk '$1 == {group} && $2 !~ /^Z/'");
        let living = std::process::Command::new("sh")
            .args(["-c", &living])
            .output()?;
        assert_eq!(String::from_utf8_lossy(&living.stdout), "");
        Ok(())
    }
}
