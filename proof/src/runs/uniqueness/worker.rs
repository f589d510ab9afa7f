//! A worker process of `next`, from the inside. Each handler prints a line before it acts, so the
//! parent knows of it whatever happens to the process.

use std::collections::HashMap;
use std::io::BufRead;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use dueq::{Client, Delivery, Settlement};
use tokio::sync::oneshot;

use super::QUEUE;
use super::next::FIRST;

/// Short, so that the messages of a killed worker come back soon.
const LEASE: Duration = Duration::from_secs(2);
const HANDLERS: usize = 32;

/// Runs a worker of `next` until its standard input ends.
#[derive(clap::Args)]
pub struct Arguments {
    #[arg(long)]
    url: String,
}

/// The first runs that wait for the parent, by their numbers.
type Waiting = Arc<Mutex<HashMap<u64, oneshot::Sender<String>>>>;

pub async fn run(arguments: &Arguments) -> Result<()> {
    let queue = Client::connect(&arguments.url).await?.queue(QUEUE)?;
    let (worker, runs) = (
        queue.worker().lease(LEASE).concurrency(HANDLERS),
        AtomicU64::new(0),
    );
    let waiting = Waiting::default();
    let commands = Arc::clone(&waiting);
    let _worker = worker.spawn(move |delivery: Delivery| {
        let (run, waiting) = (runs.fetch_add(1, Ordering::Relaxed), Arc::clone(&waiting));
        async move { handle(delivery, run, &waiting).await }
    });
    let (ended, end) = oneshot::channel();
    std::thread::spawn(move || {
        let _ = ended.send(obey(&commands));
    });
    end.await??;
    std::process::exit(0)
}

/// Passes the lines `RUN WORD` of the standard input on to the runs.
fn obey(waiting: &Waiting) -> Result<()> {
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let (run, word) = line.split_once(' ').with_context(|| line.clone())?;
        let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = waiting.remove(&run.parse()?) {
            let _ = sender.send(word.to_owned());
        }
    }
    Ok(())
}

/// The first payload waits until the parent has pushed.
async fn handle(delivery: Delivery, run: u64, waiting: &Waiting) -> Result<Settlement> {
    let (sender, told) = oneshot::channel();
    let payload = String::from_utf8_lossy(delivery.payload()).into_owned();
    if payload == FIRST.to_string() {
        let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.insert(run, sender);
    } else {
        let _ = sender.send("ack".to_owned());
    }
    println!("{run} {} {} {payload}", delivery.attempt(), delivery.id());
    Ok(match told.await?.as_str() {
        "fail" => Settlement::retry_after(Duration::ZERO, "on purpose"),
        _ => Settlement::Ack,
    })
}
