//! A node in a process of its own.

use std::io::Read;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use dueq::{Client, Delivery, Share};
use tokio::process::{Child, Command};

use super::late_us;

/// With `--block-first`, how long the first queue's handler blocks its thread.
const BLOCK: Duration = Duration::from_secs(10);
/// The number of threads of the node's runtime.
pub(super) const RUNTIME_THREADS: usize = 4;

/// Attends the queues `q0`, `q1`, ... until its standard input ends, then prints all latenesses.
/// The most concurrent handlers.
const CONCURRENCY: usize = 64;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[arg(long)]
    url: String,
    #[arg(long)]
    queues: usize,
    #[arg(long)]
    block_first: bool,
}

#[tokio::main(worker_threads = 4)]
pub(crate) async fn run(arguments: &Arguments) -> Result<()> {
    let client = Client::connect(&arguments.url).await?;
    // Pairs of a queue's number and a lateness.
    let late: Arc<Mutex<Vec<(usize, u64)>>> = Arc::default();
    let mut worker = client.worker().concurrency(CONCURRENCY);
    for number in 0..arguments.queues {
        let late = Arc::clone(&late);
        let blocks = arguments.block_first && number == 0;
        let handler = move |delivery: Delivery| {
            let us = late_us(delivery.payload());
            late.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push((number, us));
            if blocks {
                std::thread::sleep(BLOCK);
            }
            std::future::ready(())
        };
        let queue = client.queue(&format!("q{number}"))?;
        // If the handlers block, only one at a time, which occupies one of the runtime's threads.
        let max = if blocks { 1 } else { CONCURRENCY };
        worker = worker.queue_with(&queue, Share::weight(1).max(max), handler);
    }
    let handle = worker.spawn()?;
    // A thread, because no handler can block it: the parent process closes the pipe at the end.
    let (ended, end) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        let _ = ended.send(());
    });
    let _ = end.await;
    println!(
        "{}",
        serde_json::to_string(&*late.lock().unwrap_or_else(PoisonError::into_inner))?
    );
    handle.abort();
    std::process::exit(0)
}

/// A node in a separate process.
pub(super) struct Node {
    child: Child,
    pub(super) pid: u32,
}

impl Node {
    pub(super) fn start(url: &str, queues: usize, block_first: bool) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["many-queues-node", "--url", url]);
        command.args(["--queues", &queues.to_string()]);
        if block_first {
            command.arg("--block-first");
        }
        let child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let pid = child.id().context("the node ended at once")?;
        Ok(Self { child, pid })
    }

    /// The number of the process's threads, apart from its main thread, its runtime's, and the one
    /// that reads stdin.
    pub(super) fn threads(&self) -> Result<usize> {
        let all = std::fs::read_dir(format!("/proc/{}/task", self.pid))?.count();
        Ok(all.saturating_sub(RUNTIME_THREADS + 2))
    }

    /// Ends the node; returns pairs of a queue's number and a lateness.
    pub(super) async fn stop(mut self) -> Result<Vec<(usize, u64)>> {
        drop(self.child.stdin.take());
        let output = self.child.wait_with_output().await?;
        serde_json::from_slice(&output.stdout).context("what the node printed")
    }
}
