//! `dueq push --ndjson`: pushes a file of messages. An interrupted push can be run again.

use std::collections::VecDeque;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use dueq::admin::shell_word;
use dueq::outcomes::PushOutcome;
use dueq::{Applied, Error, ErrorKind, Message, OnConflict, Queue, Receipt};
use dueq_input::Defaults;
use indicatif::{ProgressBar, ProgressStyle};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::ndjson::{Chunk, Line, Lines};
use crate::output::Outcome;
use crate::signals::EndSignals;
use crate::source::Source;
use crate::{Common, failure, output};

/// The most chunks in flight: while the server handles one, the next is already sent.
const IN_FLIGHT: usize = 2;
/// The number of skipped lines that are shown. Further ones are only counted.
const SHOWN: u64 = 10;

#[derive(Args)]
pub(crate) struct FileFlags {
    /// A file of messages, one JSON object a line; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["payload", "id"])]
    pub(crate) ndjson: Option<PathBuf>,
    /// Skip and count wrong lines, instead of stopping at the first
    #[arg(long, requires = "ndjson")]
    skip_bad: bool,
    /// Start at this line of the file
    #[arg(
        long,
        value_name = "N",
        requires = "ndjson",
        default_value_t = 1,
        hide_default_value = true
    )]
    from_line: u64,
    /// A run with the key of an earlier one creates no message of a line twice while it is in the
    /// queue [default: of the file's path and modification time; random for a pipe]
    #[arg(long, value_name = "KEY", requires = "ndjson")]
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    idempotency_key: Option<String>,
}

type Results = Vec<Result<Receipt, Error>>;
/// The part of a line that is kept while its push is in flight.
struct Sent {
    number: u64,
    /// What the push does if a message with the id is waiting.
    on_conflict: OnConflict,
    own_id: bool,
}

#[derive(Default)]
struct Counts {
    /// Every line up to this one was pushed or skipped.
    line: u64,
    created: u64,
    exists: u64,
    moved: u64,
    finished: u64,
    skipped: u64,
    /// Messages that the master stored, but too few replicas or disks confirmed.
    unconfirmed: u64,
    /// Messages that may be stored: the reply was lost.
    unknown: u64,
    /// Messages that were not stored.
    failed: u64,
    /// Lines whose message could be neither moved nor replaced, because it is dead or leased.
    refused: u64,
    /// Lines without an id of their own whose message an earlier run had stored.
    repeated: u64,
}

impl FileFlags {
    /// Pushes the lines of the file at `path`.
    pub(crate) async fn run(
        &self,
        path: &Path,
        queue: Queue,
        defaults: Defaults,
        common: &Common,
    ) -> anyhow::Result<Outcome> {
        let source = Source::open(path)?;
        let key = self.idempotency_key.clone().unwrap_or(source.key);
        let lines = Lines::new(
            BufReader::with_capacity(256 * 1024, source.reader),
            key.clone(),
            defaults,
            self.from_line,
            self.skip_bad,
        );
        let (skip_bad, counts, failure, bar) =
            (self.skip_bad, Counts::default(), None, bar(source.bytes));
        let mut push = PushFile {
            queue,
            common,
            skip_bad,
            key,
            counts,
            failure,
            bar,
        };
        let started = Instant::now();
        let result = push
            .run(lines)
            .await
            .and_then(|finished| push.failure.take().map_or(Ok(finished), Err));
        push.bar.finish_and_clear();
        push.report(started, matches!(result, Ok(true)))?;
        let repeated = self.idempotency_key.is_none() && push.counts.repeated > 0;
        if repeated {
            common.remark(&push.repetition());
        }
        match result {
            Ok(true) => Ok(Outcome::done_if(push.counts.refused == 0 && !repeated)),
            Ok(false) => {
                let line = push.counts.line;
                anyhow::bail!(
                    "interrupted after line {line}: {}",
                    failure::again(line + 1, &push.key)
                )
            }
            Err(error) => Err(error),
        }
    }
}

struct PushFile<'a> {
    queue: Queue,
    common: &'a Common,
    skip_bad: bool,
    /// The idempotency key of this run.
    key: String,
    counts: Counts,
    /// The first line that failed.
    failure: Option<anyhow::Error>,
    bar: ProgressBar,
}

impl PushFile<'_> {
    /// Pushes all lines. Returns false if it was interrupted.
    ///
    /// After a failure or an interrupt it sends no further chunk, and counts the results of the
    /// chunks already sent. A second interrupt counts those as unknown.
    async fn run(&mut self, mut lines: Lines<Box<dyn Read + Send>>) -> anyhow::Result<bool> {
        let skip_bad = self.skip_bad;
        let (sender, mut chunks) = mpsc::channel(IN_FLIGHT);
        // Reads in a thread: a read of standard input can block forever.
        std::thread::spawn(move || {
            while let Some(chunk) = lines.chunk().transpose() {
                // Read nothing after the line that stops the push.
                let failed = chunk
                    .as_ref()
                    .map_or(true, |chunk| !skip_bad && !chunk.bad.is_empty());
                if sender.blocking_send(chunk).is_err() || failed {
                    return;
                }
            }
        });
        let mut signals = EndSignals::listen()?;
        let mut flight: VecDeque<(Chunk, Vec<Sent>, JoinHandle<Results>)> = VecDeque::new();
        let (mut open, mut finished) = (true, true);
        while open || !flight.is_empty() {
            let room = open && flight.len() < IN_FLIGHT;
            tokio::select! {
                () = signals.recv() => {
                    if !std::mem::take(&mut open) {
                        return Ok(self.give_up(&flight));
                    }
                    finished = false;
                }
                results = first(&mut flight), if !flight.is_empty() => {
                    if let Some((chunk, sent, _)) = flight.pop_front() {
                        self.settle(chunk, &sent, results?);
                        open &= self.failure.is_none();
                    }
                }
                chunk = chunks.recv(), if room => match chunk {
                    Some(chunk) => {
                        let mut chunk = chunk.map_err(|error| anyhow::anyhow!("cannot read the rest of the file: {error}"))?;
                        let (sent, messages): (Vec<Sent>, Vec<Message>) = chunk
                            .messages
                            .drain(..)
                            .map(Sent::of)
                            .unzip();
                        let queue = self.queue.clone();
                        let pushing = tokio::spawn(async move { queue.push_many(messages).await });
                        flight.push_back((chunk, sent, pushing));
                    }
                    None => open = false,
                },
            }
        }
        Ok(finished)
    }

    /// Counts the messages in flight as unknown.
    fn give_up(&mut self, flight: &VecDeque<(Chunk, Vec<Sent>, JoinHandle<Results>)>) -> bool {
        self.counts.unknown += flight
            .iter()
            .map(|(_, sent, _)| sent.len() as u64)
            .sum::<u64>();
        false
    }

    /// Counts the results of a chunk.
    fn settle(&mut self, chunk: Chunk, sent: &[Sent], results: Results) {
        for (sent, result) in sent.iter().zip(results) {
            let number = sent.number;
            match result.map(|receipt| receipt.outcome()) {
                Ok(PushOutcome::Created) => self.counts.created += 1,
                Ok(PushOutcome::Exists(state)) => {
                    self.counts.exists += 1;
                    if sent.on_conflict == OnConflict::Keep {
                        self.counts.repeated += u64::from(!sent.own_id);
                    } else {
                        self.counts.refused += 1;
                        let reason = format!(
                            "line {number}: nothing was changed: the message with this id is {state}"
                        );
                        self.show(self.counts.refused, &reason);
                    }
                }
                // `Next`: the message waits until the delivery of the leased one ends.
                Ok(PushOutcome::Moved | PushOutcome::Next) => self.counts.moved += 1,
                // This message, or another one with the id, was stored earlier and has ended.
                Ok(PushOutcome::Remembered(_)) => {
                    self.counts.finished += 1;
                    self.counts.repeated += u64::from(!sent.own_id);
                }
                // `Finished`: an earlier try of the push stored it.
                Ok(_) => self.counts.finished += 1,
                Err(error)
                    if error.kind() == ErrorKind::InvalidInput
                        && error.was_applied() == Applied::No =>
                {
                    self.bad(number, &error.to_string());
                }
                Err(error) => {
                    let count = match (error.was_applied(), error.kind()) {
                        (_, ErrorKind::Unconfirmed) => &mut self.counts.unconfirmed,
                        (Applied::No, _) => &mut self.counts.failed,
                        _ => &mut self.counts.unknown,
                    };
                    *count += 1;
                    let explained = self.common.explain(&error);
                    let key = self.key.clone();
                    self.fail(number, || explained.of_line(number, &key).into());
                }
            }
        }
        for (number, reason) in &chunk.bad {
            self.bad(*number, reason);
        }
        if self.failure.is_none() {
            self.counts.line = chunk.last_line;
        }
        self.bar.inc(chunk.bytes);
        self.bar.set_message(format!("line {}", chunk.last_line));
    }

    /// Keeps the error of the first failed line. Later ones are only counted.
    fn fail(&mut self, number: u64, error: impl FnOnce() -> anyhow::Error) {
        if self.failure.is_none() {
            self.counts.line = number - 1;
            self.failure = Some(error());
        }
    }

    fn bad(&mut self, number: u64, reason: &str) {
        let reason = output::visible(reason.as_bytes());
        if self.skip_bad {
            self.counts.skipped += 1;
            self.show(
                self.counts.skipped,
                &format!("skipped line {number}: {reason}"),
            );
        } else {
            let again = failure::again(number, &self.key);
            self.fail(number, || {
                anyhow::anyhow!(
                    "line {number}: {reason}; correct the line, or add --skip-bad: {again}"
                )
            });
        }
    }

    /// The text about lines that were repeated: it explains the run's key, because the user may not
    /// know that it caused this.
    fn repetition(&self) -> String {
        let (repeated, key) = (self.counts.repeated, shell_word(self.key.as_bytes()));
        format!(
            "{repeated} lines without an id stored nothing: an earlier run of this file had stored them; \
             if that is right add --idempotency-key {key}, if these are new messages add another key"
        )
    }

    /// Shows the first few lines of one kind.
    fn show(&self, count: u64, text: &str) {
        if count <= SHOWN {
            self.bar.suspend(|| self.common.remark(text));
        }
    }

    fn report(&self, started: Instant, done: bool) -> io::Result<()> {
        let (counts, seconds) = (&self.counts, started.elapsed().as_secs_f64());
        let Counts {
            line,
            created,
            exists,
            moved,
            finished,
            skipped,
            unconfirmed,
            unknown,
            failed,
            ..
        } = *counts;
        let outcome = if done { "pushed" } else { "stopped" };
        if self.common.json {
            let object = serde_json::json!({
                "queue": self.queue.name(), "outcome": outcome, "line": line, "created": created, "exists": exists,
                "moved": moved, "finished": finished, "skipped": skipped, "unconfirmed": unconfirmed, "unknown": unknown,
                "failed": failed, "seconds": seconds,
            });
            return output::json_line(&object);
        }
        let parts: Vec<String> = [
            ("exists", exists),
            ("moved", moved),
            ("finished", finished),
            ("skipped", skipped),
            ("unconfirmed", unconfirmed),
            ("unknown", unknown),
            ("failed", failed),
        ]
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(word, count)| format!(", {word} {count}"))
        .collect();
        let rate = (created + exists + moved + finished) as f64 / seconds;
        output::line(&format!(
            "{outcome} {}: created {created}{}, in {seconds:.1} s ({rate:.0} a second)",
            output::visible(self.queue.name().as_bytes()),
            parts.concat()
        ))
    }
}

impl Sent {
    fn of(line: Line) -> (Self, Message) {
        let sent = Self {
            number: line.number,
            on_conflict: line.message.conflict(),
            own_id: line.own_id,
        };
        (sent, line.message)
    }
}

/// Awaits the results of the oldest chunk.
async fn first(
    flight: &mut VecDeque<(Chunk, Vec<Sent>, JoinHandle<Results>)>,
) -> anyhow::Result<Results> {
    match flight.front_mut() {
        Some((_, _, pushing)) => Ok(pushing.await?),
        None => std::future::pending().await,
    }
}

/// A progress bar on standard error, if that is a terminal.
fn bar(length: u64) -> ProgressBar {
    if length == 0 {
        return ProgressBar::new_spinner();
    }
    let style =
        ProgressStyle::with_template("{bar:40} {percent}% {msg}, {bytes_per_sec}, {eta} left");
    ProgressBar::new(length).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
