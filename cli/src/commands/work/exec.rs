//! `--exec`: runs a command for each message or batch, in its own process group.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use dueq::{Delivery, Settlement};
use rustix::process::Pid;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::commands::work::batch;
use crate::commands::work::follow_ups::{FollowUps, followed};
use crate::commands::work::handler::{settlement, trace_parent};
use crate::group::{self, Guard};

/// The number of bytes kept from the end of a command's stderr.
const TAIL: usize = 1_000;
/// The most bytes of results that a command may write for a batch.
const RESULTS: usize = 16 * 1024 * 1024;
/// The longest wait for the end of stderr after the end of the process group: a process outside the
/// group may keep it open.
const STDERR_LIMIT: Duration = Duration::from_secs(1);

/// A shell that waits for a line before it runs the command. The worker sends the line once the
/// guard knows the process group: if the worker is killed before that, the command never runs. The
/// shell reads the line byte by byte, and so leaves the payload to the command.
const BEGIN: &str = "IFS= read -r go && exec sh -c \"$1\"";
/// Like [`BEGIN`], but runs the command with a file as file descriptor 3, to which the command
/// writes follow-ups.
const BEGIN_WITH_FILE: &str = "IFS= read -r go && exec sh -c \"$1\" 3>\"$2\"";

pub(super) struct Exec {
    command: String,
    timeout: Option<Duration>,
    /// Cancelled when the grace period after the stop is over.
    over: CancellationToken,
    guard: Arc<Guard>,
    running: TaskTracker,
}

impl Exec {
    pub(super) fn new(
        command: String,
        timeout: Option<Duration>,
        over: CancellationToken,
    ) -> io::Result<Self> {
        Ok(Self {
            command,
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
        // If no file can be created, such as on a read-only disk, the command runs without a
        // special descriptor 3.
        let follow_ups = FollowUps::create().ok();
        let file = follow_ups.as_ref().map(FollowUps::path);
        let mut command = self.command(delivery.queue(), file);
        command.envs(trace_parent(Some(delivery)).map(|context| ("TRACEPARENT", context)));
        if let Some(tick) = delivery.tick() {
            command
                .env("DUEQ_SCHEDULE", tick.schedule)
                .env("DUEQ_NOMINAL_MS", tick.nominal_ms.to_string());
        }
        command
            .env("DUEQ_ID", OsStr::from_bytes(delivery.id_bytes()))
            .env("DUEQ_ATTEMPT", delivery.attempt().to_string())
            .env("DUEQ_DUE_MS", delivery.due_ms().to_string());
        let input = delivery.payload().to_vec();
        match self
            .run(command, input, std::slice::from_ref(delivery))
            .await
        {
            Ok(exited) => match settlement(exited.status, &exited.stderr) {
                Settlement::Ack => followed(follow_ups.as_ref()),
                settlement => settlement,
            },
            Err(settlement) => settlement,
        }
    }

    /// Runs the command for a batch: one settlement for each delivery, in their order.
    pub(super) async fn handle_batch(&self, deliveries: &[Delivery]) -> Vec<Settlement> {
        let mut command = self.command(queue_of(deliveries), None);
        command
            .envs(trace_parent(None).map(|context| ("TRACEPARENT", context)))
            .env("DUEQ_BATCH", deliveries.len().to_string())
            .stdout(Stdio::piped());
        let input = batch::lines(deliveries);
        let all = match self.run(command, input, deliveries).await {
            Ok(exited) if exited.status.success() => {
                let ids: Vec<&[u8]> = deliveries.iter().map(Delivery::id_bytes).collect();
                match exited.results(&ids) {
                    Ok(settlements) => return settlements,
                    Err(reason) => Settlement::retry(reason),
                }
            }
            Ok(exited) => match settlement(exited.status, &exited.stderr) {
                // The exit code of a batch does not say which message is hopeless, so each is
                // retried alone.
                Settlement::Bury(reason) if deliveries.len() > 1 => Settlement::retry(reason),
                settlement => settlement,
            },
            Err(settlement) => settlement,
        };
        vec![all; deliveries.len()]
    }

    /// Runs a command with this input. The error says how to settle its deliveries if it has no
    /// exit status.
    async fn run(
        &self,
        mut command: Command,
        input: Vec<u8>,
        deliveries: &[Delivery],
    ) -> Result<Exited, Settlement> {
        let child = command
            .spawn()
            .map_err(|error| Settlement::retry(format_args!("cannot run sh: {error}")))?;
        let dropped = CancellationToken::new();
        // A separate task ends the command: this future may be dropped, and a drop cannot wait.
        let _drop = dropped.clone().drop_guard();
        let (guard, timeout, over) = (Arc::clone(&self.guard), self.timeout, self.over.clone());
        let deliveries = deliveries.to_vec();
        let ids = shown_ids(&deliveries);
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
                    () = all_lost(&deliveries) => Stop::Lost,
                    () = over.cancelled() => Stop::Over,
                    () = timeout => Stop::Timeout,
                }
            };
            attend(child, input, &guard, stop).await
        });
        Err(match task.await {
            Ok(Ended::Exited(exited)) => return Ok(exited),
            Ok(Ended::By(Stop::Over | Stop::Dropped)) => Settlement::Release,
            Ok(Ended::By(Stop::Lost)) => {
                tracing::warn!(ids, "the lease was lost: the command was killed");
                Settlement::Release
            }
            Ok(Ended::By(Stop::Timeout)) => Settlement::retry(format_args!(
                "killed: it took longer than {:?}",
                self.timeout.unwrap_or_default()
            )),
            Ok(Ended::Unknown(error)) => {
                Settlement::retry(format_args!("cannot wait for the command: {error}"))
            }
            Err(error) => Settlement::retry(error),
        })
    }

    fn command(&self, queue: &str, follow_ups: Option<&Path>) -> Command {
        let mut command = Command::new("sh");
        // The environment's trace belongs to the worker, not to the message.
        command.env_remove("TRACEPARENT").env_remove("TRACESTATE");
        command
            .env_remove("DUEQ_SCHEDULE")
            .env_remove("DUEQ_NOMINAL_MS");
        command
            .arg("-c")
            .arg(follow_ups.map_or(BEGIN, |_| BEGIN_WITH_FILE))
            .args(["sh", &self.command])
            .args(follow_ups)
            .env("DUEQ_QUEUE", queue)
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        command
    }
}

/// The first id, and how many others there are.
fn shown_ids(deliveries: &[Delivery]) -> String {
    let first = deliveries.first().map(Delivery::id).unwrap_or_default();
    match deliveries.len() {
        0 | 1 => first.into_owned(),
        count => format!("{first} and {} more", count - 1),
    }
}

/// The queue of a batch: its deliveries come from one.
pub(super) fn queue_of(deliveries: &[Delivery]) -> &str {
    deliveries.first().map(Delivery::queue).unwrap_or_default()
}

/// Completes when all of these deliveries have lost their leases.
pub(super) async fn all_lost(deliveries: &[Delivery]) {
    for delivery in deliveries {
        delivery.lost().await;
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
    Exited(Exited),
    By(Stop),
    Unknown(io::Error),
}

struct Exited {
    status: ExitStatus,
    /// The end of the command's stderr.
    stderr: Vec<u8>,
    /// The command's standard output, if it is captured.
    stdout: Vec<u8>,
}

impl Exited {
    /// Reads the results of a batch. A message without a result is acked.
    fn results(&self, ids: &[&[u8]]) -> Result<Vec<Settlement>, String> {
        if self.stdout.len() > RESULTS {
            return Err(format!(
                "the command wrote more than {RESULTS} bytes of results"
            ));
        }
        let results = batch::results(&self.stdout, ids)?;
        let results = results.into_iter();
        Ok(results.map(|one| one.unwrap_or(Settlement::Ack)).collect())
    }
}

/// Writes the input to a command, awaits or enforces its end, and ends its whole group.
async fn attend(
    mut child: Child,
    input: Vec<u8>,
    guard: &Guard,
    stop: impl Future<Output = Stop>,
) -> Ended {
    let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    if let Some(group) = group {
        guard.add(group);
    }
    let stderr = child.stderr.take().map(|stderr| tokio::spawn(copy(stderr)));
    let stdout = child
        .stdout
        .take()
        .map(|stdout| tokio::spawn(capture(stdout)));
    let stdin = child.stdin.take();
    let feed = async {
        if let Some(mut stdin) = stdin {
            // Ignore errors: a command may end without reading its input.
            let _ = stdin.write_all(b"\n").await;
            let _ = stdin.write_all(&input).await;
        }
        // The input is closed now, but the command may go on running for long.
        std::future::pending::<Stop>().await
    };
    let stopped = tokio::select! {
        status = child.wait() => Err(status),
        stop = stop => Ok(stop),
        stop = feed => Ok(stop),
    };
    // Also after a normal exit: processes left in the background belong to a message that is about
    // to be settled.
    let clear = async {
        if let Some(group) = group {
            group::end(group, group::PATIENCE).await;
            guard.remove(group);
        }
    };
    match stopped {
        Err(Ok(status)) => {
            clear.await;
            Ended::Exited(Exited {
                status,
                stderr: output_of(stderr).await,
                stdout: output_of(stdout).await,
            })
        }
        Err(Err(error)) => {
            clear.await;
            Ended::Unknown(error)
        }
        // Meanwhile wait for the command: as a zombie it would keep its group alive.
        Ok(stop) => {
            let _ = tokio::join!(child.wait(), clear);
            Ended::By(stop)
        }
    }
}

/// Copies a command's stderr to the worker's, and keeps its end.
async fn copy(mut from: impl AsyncRead + Unpin) -> Vec<u8> {
    let (mut to, mut chunk, mut tail) = (tokio::io::stderr(), [0; 4096], Vec::new());
    while let Ok(read @ 1..) = from.read(&mut chunk).await {
        // Ignore errors: if the worker's stderr is closed, the command must not block.
        let _ = to.write_all(&chunk[..read]).await;
        let _ = to.flush().await;
        tail.extend_from_slice(&chunk[..read]);
        tail.drain(..tail.len().saturating_sub(TAIL));
    }
    tail
}

/// Reads a command's results. What exceeds the limit is read and dropped, except for one byte.
async fn capture(mut from: impl AsyncRead + Unpin) -> Vec<u8> {
    let (mut chunk, mut results) = ([0; 4096], Vec::new());
    while let Ok(read @ 1..) = from.read(&mut chunk).await {
        let room = (RESULTS + 1).saturating_sub(results.len());
        results.extend_from_slice(&chunk[..read.min(room)]);
    }
    results
}

async fn output_of(reader: Option<JoinHandle<Vec<u8>>>) -> Vec<u8> {
    let Some(reader) = reader else {
        return Vec::new();
    };
    let abort = reader.abort_handle();
    let output = tokio::time::timeout(STDERR_LIMIT, reader).await;
    abort.abort();
    output.map(Result::unwrap_or_default).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let exec = Exec::new(command, None, CancellationToken::new())?;

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
