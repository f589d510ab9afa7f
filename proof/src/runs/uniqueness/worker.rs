//! A worker process of `next` or `chains`, from inside. Each handler prints a line before it acts,
//! so the parent process knows of it whatever happens to this one.

use std::collections::HashMap;
use std::io::BufRead;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use dueq::outcomes::AckPushOutcome;
use dueq::{Client, Delivery, Message, Settlement};
use tokio::sync::oneshot;

use super::QUEUE;
use super::chains::step::{Step, Uid};
use super::next::FIRST;

/// Short, so that the messages of a killed worker come back soon.
pub(super) const LEASE: Duration = Duration::from_secs(2);
const HANDLERS: usize = 32;
/// The longest duration of a step: long enough that many steps run when a worker is stopped.
const STEP_US: u64 = 50_000;
/// One step in this number gives its delivery back, and tries to ack it later.
const STALE_ONE_IN: u64 = 50;
/// The longest delay of that ack. By then another run has the message, or has finished it.
const STALE_US: u64 = 40_000;

/// Runs a worker until its standard input ends.
#[derive(clap::Args)]
pub struct Arguments {
    #[arg(long)]
    url: String,
    /// A number that no other worker of the run has
    #[arg(long)]
    number: u64,
}

/// The scenario of a worker.
#[derive(Debug, Clone, Copy)]
pub enum Role {
    Next,
    Chains,
}

/// The first runs that wait for the parent process, by number.
type Waiting = Arc<Mutex<HashMap<u64, oneshot::Sender<String>>>>;

pub async fn run(arguments: &Arguments, role: Role) -> Result<()> {
    let queue = Client::connect(&arguments.url).await?.queue(QUEUE)?;
    let (worker, runs) = (
        queue.worker().lease(LEASE).concurrency(HANDLERS),
        AtomicU64::new(0),
    );
    let waiting = Waiting::default();
    let commands = Arc::clone(&waiting);
    let number = arguments.number;
    let _worker = worker.spawn(move |delivery: Delivery| {
        let (run, waiting) = (runs.fetch_add(1, Ordering::Relaxed), Arc::clone(&waiting));
        let uid = Uid {
            worker: number,
            run,
        };
        async move {
            match role {
                Role::Next => next(delivery, run, &waiting).await,
                Role::Chains => step(delivery, uid).await,
            }
        }
    })?;
    let (ended, end) = oneshot::channel();
    std::thread::spawn(move || {
        let _ = ended.send(obey(&commands));
    });
    end.await??;
    std::process::exit(0)
}

/// Passes lines `RUN WORD` of the standard input to the runs.
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

/// A run of `next`. With the first payload it waits until the parent process has pushed.
async fn next(delivery: Delivery, run: u64, waiting: &Waiting) -> Result<Settlement> {
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

/// A run of `chains`: acks its step by hand, and pushes the next one with the ack.
async fn step(delivery: Delivery, uid: Uid) -> Result<Settlement> {
    // The judge finds this message in the append-only file.
    let Some(step) = Step::parse(&delivery.id()) else {
        return Ok(Settlement::Ack);
    };
    println!("step {uid} {step}");
    tokio::time::sleep(Duration::from_micros(fastrand::u64(..STEP_US))).await;
    if fastrand::u64(..STALE_ONE_IN) == 0 {
        let stale = delivery.clone();
        let _ = delivery.release().await?;
        tokio::time::sleep(Duration::from_micros(fastrand::u64(..STALE_US))).await;
        let child = Message::new(uid.to_string()).id(step.stale_id(uid));
        let answer = word(&stale.ack_push([child]).await);
        println!("stale {uid} {answer}");
        return Ok(Settlement::Release);
    }
    let child = (!step.is_last()).then(|| Message::new(uid.to_string()));
    let followed = delivery.ack_push(child).await;
    println!("answer {uid} {}", word(&followed));
    Ok(match followed {
        Ok(AckPushOutcome::Done(_)) => Settlement::Ack,
        _ => Settlement::Release,
    })
}

fn word(followed: &Result<AckPushOutcome, dueq::Error>) -> &'static str {
    match followed {
        Ok(AckPushOutcome::Done(_)) => "done",
        Ok(AckPushOutcome::Gone) => "gone",
        Ok(_) => "lost",
        Err(_) => "error",
    }
}
