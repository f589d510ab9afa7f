//! Workers: `dueq work --exec`, and a process that aborts at a poison message.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use dueq::{Batch, Client};

use super::POISON;
use crate::kit::process::{Process, Start};

/// Short, so that the messages of an aborted worker come back soon.
const LEASE: Duration = Duration::from_secs(2);
const LINGER: Duration = Duration::from_millis(50);

/// Handles batches of the queue `poison` until it meets a poison message, which aborts the process.
#[derive(clap::Args)]
pub struct Arguments {
    #[arg(long)]
    url: String,
    #[arg(long)]
    log: PathBuf,
    #[arg(long)]
    batch: usize,
    #[arg(long)]
    concurrency: usize,
}

pub async fn run(arguments: &Arguments) -> Result<()> {
    let queue = Client::connect(&arguments.url).await?.queue("poison")?;
    let log = arguments.log.clone();
    let handler = move |batch: Batch<Vec<u8>>| {
        let handled = handle(&batch, &log);
        async move { handled }
    };
    queue
        .worker()
        .lease(LEASE)
        .concurrency(arguments.concurrency)
        .run_batch(
            arguments.batch,
            LINGER,
            handler,
            std::future::pending::<()>(),
        )
        .await?;
    Ok(())
}

/// Logs attempts of innocent messages after their first attempt. Aborts at a poison message.
fn handle(batch: &Batch<Vec<u8>>, log: &Path) -> Result<()> {
    for (payload, delivery) in batch {
        if payload == POISON.as_bytes() {
            std::process::abort();
        }
        if delivery.attempt() > 1 {
            let line = serde_json::json!({"id": delivery.id(), "attempt": delivery.attempt()});
            let mut log = OpenOptions::new().create(true).append(true).open(log)?;
            log.write_all(format!("{line}\n").as_bytes())?;
        }
    }
    Ok(())
}

/// Starts a worker process that aborts at a poison message.
pub(super) fn in_process(arguments: &super::Arguments, url: &str, log: &Path) -> Result<Process> {
    let start = Start::role("poison-worker")?.args(["--url", url, "--log"]);
    batches(start.args([log]), arguments).start()
}

/// Starts `dueq work`. Its command logs attempts of innocent messages after their first attempt,
/// and is killed by a poison message.
pub(super) fn exec(arguments: &super::Arguments, url: &str, log: &Path) -> Result<Process> {
    let script = format!(
        r#"in=$(cat)
           case $in in *'"payload":"{POISON}"'*) kill -9 $$;; esac
           case $in in *'"attempt":1,'*) ;; *) printf '%s\n' "$in" >> '{}';; esac"#,
        log.display()
    );
    let start = Start::program(&arguments.dueq)
        .args(["work", "poison", "--exec", &script, "--linger", "50ms"])
        .args(["--retry-min", "10ms", "--retry-max", "100ms"])
        .env("REDIS_URL", url)
        .env("RUST_LOG", "error");
    batches(start, arguments).start()
}

fn batches(start: Start, arguments: &super::Arguments) -> Start {
    start
        .args(["--batch", &arguments.batch.to_string()])
        .args(["--concurrency", &arguments.concurrency.to_string()])
}
