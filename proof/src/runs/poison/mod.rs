//! Poison messages in batches: measures how many failures are charged to the other messages of a
//! batch.

mod worker;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use dueq::{Client, Message, MessageState, Queue, QueueLimits};
use dueq_testkit::Server;
use dueq_testkit::report::{Report, rounded};
use serde_json::Value;

use crate::kit::process::Process;
use crate::kit::scenarios::{self, Ending, LOOK, alive, push};

pub use worker::{Arguments as WorkerArguments, run as run_worker};

/// The number of failed attempts after which a message is dead.
const MAX_ATTEMPTS: u32 = 5;
const POISON: &str = "poison";

/// Proves whom the failures of poison messages in batches are charged to.
///
/// Handles messages in batches by `dueq work --exec`, where the poison kills its command, and in a
/// process that it aborts. Exits with 1 if an innocent message is lost or dies, or if `--exec`
/// charges one with two failures.
#[derive(clap::Args)]
pub struct Arguments {
    /// Which forms
    #[arg(long, value_delimiter = ',', default_value = "exec,in-process")]
    only: Vec<Form>,
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    messages: u64,
    /// One message in N is poison
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    one_in: u64,
    /// Messages of a batch
    #[arg(long, value_name = "N", default_value_t = 100)]
    batch: usize,
    /// How many batches are handled at once
    #[arg(long, value_name = "N", default_value_t = 4)]
    concurrency: usize,
    /// The program of the form `exec`
    #[arg(long, value_name = "FILE", default_value = "target/release/dueq")]
    dueq: PathBuf,
    #[command(flatten)]
    ending: Ending,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    Exec,
    InProcess,
}

pub async fn run(arguments: &Arguments) -> Result<()> {
    scenarios::run(&arguments.only, arguments.ending, async |form, report| {
        handled(arguments, *form, report).await
    })
    .await
}

/// Pushes the messages, and runs workers until no message is left.
async fn handled(arguments: &Arguments, form: Form, report: &mut Report) -> Result<()> {
    let server = Server::start(&[])?;
    let queue = Client::connect(&server.url()).await?.queue("poison")?;
    queue
        .configure(QueueLimits::new().max_attempts(MAX_ATTEMPTS))
        .await?;
    push(&queue, arguments.messages, |number| {
        let payload = match is_poison(number, arguments.one_in) {
            true => POISON,
            false => "fine",
        };
        Message::new(payload).id(number.to_string())
    })
    .await?;
    let log = server.folder().join("second-attempts");
    let (start, mut starts) = (Instant::now(), 0);
    let mut worker: Option<Process> = None;
    let stats = loop {
        let has_ended = match &mut worker {
            Some(worker) => worker.ended()?,
            None => None,
        };
        if let Some(status) = has_ended {
            let aborted = std::os::unix::process::ExitStatusExt::signal(&status) == Some(6);
            ensure!(
                form == Form::InProcess && aborted,
                "the worker ended: {status}"
            );
        }
        if worker.is_none() || has_ended.is_some() {
            worker = Some(match form {
                Form::Exec => worker::exec(arguments, &server.url(), &log)?,
                Form::InProcess => worker::in_process(arguments, &server.url(), &log)?,
            });
            starts += 1;
        }
        let stats = queue.stats().await?;
        if alive(&stats) == 0 {
            break stats;
        }
        tokio::time::sleep(LOOK).await;
    };
    let seconds = start.elapsed().as_secs_f64();
    if let Some(mut worker) = worker {
        worker.kill().await?;
    }
    let all = arguments.messages;
    let poison = (0..all).filter(|number| is_poison(*number, arguments.one_in));
    let poison = poison.count() as u64;
    let innocents = all - poison;
    report.rule(
        "innocents that were handled",
        stats.acked,
        innocents.to_string(),
        stats.acked == innocents,
    );
    let dead = dead_innocents(&queue, arguments.one_in).await?;
    report.rule("innocents that died", dead, "0", dead == 0);
    let is_met = stats.dead == poison;
    report.rule("dead messages", stats.dead, poison.to_string(), is_met);
    let charged = charged(&log)?;
    let most = charged.values().max().copied().unwrap_or(0);
    let name = "most charges of an innocent";
    match form {
        Form::Exec => report.rule(name, most, "at most 1", most <= 1),
        Form::InProcess => report.figure(name, most),
    }
    let once = charged.values().filter(|times| **times == 1).count();
    report.figure("innocents charged once", once);
    report.figure("innocents charged more than once", charged.len() - once);
    report.figure("charges of innocents", charged.values().sum::<u64>());
    report.figure("leases run out", stats.crashed);
    report.figure("starts of the worker", starts);
    report.figure("time until all were handled, s", rounded(seconds));
    Ok(())
}

/// Whether the message is poison: the middle one of each `one_in` messages is.
fn is_poison(number: u64, one_in: u64) -> bool {
    number % one_in == one_in / 2
}

async fn dead_innocents(queue: &Queue, one_in: u64) -> Result<u64> {
    let (mut count, mut cursor) = (0, None);
    loop {
        let page = queue
            .list(MessageState::Dead, cursor.as_ref(), 1_000)
            .await?;
        for dead in page.messages {
            let number = String::from_utf8(dead.id)?.parse()?;
            count += u64::from(!is_poison(number, one_in));
        }
        match page.next {
            Some(next) => cursor = Some(next),
            None => return Ok(count),
        }
    }
}

/// Reads the log of the workers. It has a line for each attempt of an innocent message after its
/// first attempt.
fn charged(log: &Path) -> Result<HashMap<String, u64>> {
    let text = match std::fs::read_to_string(log) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        text => text?,
    };
    let mut charged = HashMap::new();
    for line in text.lines() {
        let message: Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
        let id = message["id"].as_str().context("an id")?.to_owned();
        let times = message["attempt"].as_u64().context("an attempt")? - 1;
        let most = charged.entry(id).or_insert(0);
        *most = times.max(*most);
    }
    Ok(charged)
}
