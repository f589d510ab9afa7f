//! Poison messages among others in batches: whom their failures are charged to.

mod worker;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use dueq::{Client, Limits, Message, Queue, State, Stats};
use dueq_testkit::Server;
use serde_json::{Value, json};
use tokio::process::Child;

pub(crate) use worker::{Arguments as WorkerArguments, run as run_worker};

use crate::interrupt::unless_interrupted;

/// How many messages one pipeline pushes.
const CHUNK: u64 = 1_000;
/// The time between two looks at the queue.
const LOOK: Duration = Duration::from_millis(100);
/// After how many failed attempts a message is dead.
const MAX_ATTEMPTS: u32 = 5;
const POISON: &str = "poison";

/// Handles messages in batches with poison messages among them, by `dueq work --exec`, where the
/// poison kills its command, and in a process that it aborts. Exits with 1 if an innocent message is
/// lost or dies, or if `--exec` charges one with two failures.
#[derive(clap::Args)]
pub(crate) struct Arguments {
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
    /// How long each form may take
    #[arg(long, value_name = "S", default_value_t = 600)]
    seconds: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    Exec,
    InProcess,
}

#[tokio::main]
pub(crate) async fn run(arguments: &Arguments) -> Result<()> {
    unless_interrupted(all_forms(arguments)).await
}

async fn all_forms(arguments: &Arguments) -> Result<()> {
    let (mut result, mut broken) = (serde_json::Map::new(), Vec::new());
    for &form in &arguments.only {
        let outcome = handled(arguments, form).await?;
        let (name, figures) = (form.name(), outcome.figures());
        eprintln!("{name}: {figures}");
        result.insert(name.to_owned(), figures);
        broken.extend(
            outcome
                .broken(form)
                .map(|demand| format!("{name}: {demand}")),
        );
    }
    println!("{:#}", Value::Object(result));
    ensure!(broken.is_empty(), "not met: {}", broken.join("; "));
    Ok(())
}

/// What one form has done.
struct Outcome {
    messages: u64,
    poison: u64,
    stats: Stats,
    /// How often each innocent message was charged, of those that were.
    charged: HashMap<String, u64>,
    dead_innocents: u64,
    starts: u64,
    seconds: f64,
}

impl Form {
    fn name(self) -> &'static str {
        match self {
            Self::Exec => "exec",
            Self::InProcess => "in-process",
        }
    }
}

impl Outcome {
    fn figures(&self) -> Value {
        let times = |wanted: u64| {
            self.charged
                .values()
                .filter(|times| **times == wanted)
                .count()
        };
        json!({
            "messages": self.messages, "poison": self.poison, "acked": self.stats.acked,
            "dead": self.stats.dead, "dead_innocents": self.dead_innocents,
            "innocents_charged_once": times(1),
            "innocents_charged_more_than_once": self.charged.len() - times(1),
            "most_charges_of_an_innocent": self.charged.values().max().copied().unwrap_or(0),
            "charges_of_innocents": self.charged.values().sum::<u64>(),
            "leases_run_out": self.stats.crashed, "worker_starts": self.starts,
            "seconds": (self.seconds * 10.0).round() / 10.0,
        })
    }

    /// The demands that are not met.
    fn broken(&self, form: Form) -> impl Iterator<Item = String> {
        let innocents = self.messages - self.poison;
        let most = self.charged.values().max().copied().unwrap_or(0);
        let demands = [
            (
                self.stats.acked == innocents,
                format!("{} of {innocents} innocents were handled", self.stats.acked),
            ),
            (
                self.dead_innocents == 0,
                format!("{} innocents died", self.dead_innocents),
            ),
            (
                self.stats.dead == self.poison,
                format!(
                    "{} messages are dead, and {} are poison",
                    self.stats.dead, self.poison
                ),
            ),
            (
                form == Form::InProcess || most <= 1,
                format!("an innocent was charged {most} failures"),
            ),
        ];
        demands
            .into_iter()
            .filter(|(is_met, _)| !is_met)
            .map(|(_, demand)| demand)
    }
}

/// Pushes the messages, and lets workers handle them until none is left.
async fn handled(arguments: &Arguments, form: Form) -> Result<Outcome> {
    let server = Server::start(&[])?;
    let queue = Client::connect(&server.url()).await?.queue("poison")?;
    queue
        .configure(Limits::new().max_attempts(MAX_ATTEMPTS))
        .await?;
    push(&queue, arguments).await?;
    let log = server.folder().join("second-attempts");
    let (start, mut starts) = (Instant::now(), 0);
    let mut worker: Option<Child> = None;
    let stats = loop {
        let has_ended = match &mut worker {
            Some(child) => child.try_wait()?,
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
        if stats.scheduled + stats.ready + stats.leased == 0 {
            break stats;
        }
        if start.elapsed() > Duration::from_secs(arguments.seconds) {
            bail!(
                "{}: not done after {} s: {stats:?}",
                form.name(),
                arguments.seconds
            );
        }
        tokio::time::sleep(LOOK).await;
    };
    let seconds = start.elapsed().as_secs_f64();
    if let Some(mut worker) = worker {
        worker.kill().await?;
    }
    Ok(Outcome {
        messages: arguments.messages,
        poison: (0..arguments.messages)
            .filter(|number| is_poison(*number, arguments.one_in))
            .count() as u64,
        dead_innocents: dead_innocents(&queue, arguments.one_in).await?,
        charged: charged(&log)?,
        stats,
        starts,
        seconds,
    })
}

/// The middle one of each `one_in` messages.
fn is_poison(number: u64, one_in: u64) -> bool {
    number % one_in == one_in / 2
}

async fn push(queue: &Queue, arguments: &Arguments) -> Result<()> {
    let mut first = 0;
    while first < arguments.messages {
        let end = arguments.messages.min(first + CHUNK);
        let messages = (first..end).map(|number| {
            let payload = match is_poison(number, arguments.one_in) {
                true => POISON,
                false => "fine",
            };
            Message::new(payload).id(number.to_string())
        });
        for pushed in queue.push_many(messages).await {
            pushed?;
        }
        first = end;
    }
    Ok(())
}

async fn dead_innocents(queue: &Queue, one_in: u64) -> Result<u64> {
    let (mut count, mut cursor) = (0, None);
    loop {
        let page = queue.list(State::Dead, cursor.as_ref(), 1_000).await?;
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

/// Reads the log of the workers: a line for each attempt of an innocent message after its first.
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
