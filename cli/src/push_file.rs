//! `dueq push --ndjson`: pushes a file of messages; it may be interrupted and run again.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use dueq::{Error, ErrorKind, Message, Pushed, Queue};
use indicatif::{ProgressBar, ProgressStyle};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::ndjson::{Chunk, Defaults, Lines};
use crate::output::Outcome;
use crate::{Common, output};

/// While one chunk is pushed the next one stands in line, so that no script call waits for us.
const IN_FLIGHT: usize = 2;
/// So many skipped lines are told, the rest is counted.
const TOLD: u64 = 10;

#[derive(Args)]
pub(crate) struct FileFlags {
    /// A file of messages, one JSON object a line; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["payload", "id"])]
    pub(crate) ndjson: Option<PathBuf>,
    /// Leave out lines that are wrong, and count them, instead of stopping at the first
    #[arg(long, requires = "ndjson")]
    skip_bad: bool,
    /// Begin at this line of the file
    #[arg(long, value_name = "N", requires = "ndjson", default_value_t = 1, hide_default_value = true)]
    from_line: u64,
}

type Results = Vec<Result<Pushed, Error>>;

#[derive(Default)]
struct Counts {
    /// Up to here every line was pushed or skipped.
    line: u64,
    created: u64,
    exists: u64,
    moved: u64,
    finished: u64,
    skipped: u64,
}

/// Opens a file; its length, if it has one; and what stands for it in the ids of its lines.
fn open(path: &Path) -> io::Result<(Box<dyn Read + Send>, u64, String)> {
    if path == Path::new("-") {
        return Ok((Box::new(io::stdin()), 0, "-".to_owned()));
    }
    let (file, source) = (File::open(path)?, fs::canonicalize(path)?);
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    Ok((Box::new(file), metadata.len(), source.to_string_lossy().into_owned()))
}

impl FileFlags {
    /// Pushes the lines of the file `path`; `defaults` gets its name.
    pub(crate) async fn run(
        &self,
        path: &Path,
        queue: Queue,
        mut defaults: Defaults,
        common: &Common,
    ) -> anyhow::Result<Outcome> {
        let (file, length, source) = open(path).map_err(|error| {
            anyhow::anyhow!("cannot read {}: {error}", output::visible(path.as_os_str().as_encoded_bytes()))
        })?;
        defaults.source = source;
        let lines = Lines::new(BufReader::with_capacity(256 * 1024, file), defaults, self.from_line, self.skip_bad);
        let mut push = Push { queue, common, skip_bad: self.skip_bad, counts: Counts::default(), bar: bar(length) };
        let started = Instant::now();
        let result = push.run(lines).await;
        push.bar.finish_and_clear();
        push.report(started, matches!(result, Ok(true)))?;
        match result {
            Ok(true) => Ok(Outcome::Done),
            Ok(false) => {
                anyhow::bail!(
                    "interrupted after line {}: --from-line {} pushes the rest; without it, what was delivered meanwhile is pushed again",
                    push.counts.line,
                    push.counts.line + 1
                )
            }
            Err(error) => Err(error),
        }
    }
}

struct Push<'a> {
    queue: Queue,
    common: &'a Common,
    skip_bad: bool,
    counts: Counts,
    bar: ProgressBar,
}

impl Push<'_> {
    /// Whether it got to the end; not, if it was interrupted.
    async fn run(&mut self, mut lines: Lines<Box<dyn Read + Send>>) -> anyhow::Result<bool> {
        let (sender, mut chunks) = mpsc::channel(IN_FLIGHT);
        // A thread of its own: a read of standard input can last for ever, and the program must end all the same.
        std::thread::spawn(move || {
            while let Some(chunk) = lines.chunk().transpose() {
                let failed = chunk.is_err();
                if sender.blocking_send(chunk).is_err() || failed {
                    return;
                }
            }
        });
        let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let mut flight: VecDeque<(Chunk, Vec<u64>, JoinHandle<Results>)> = VecDeque::new();
        let (mut open, mut finished) = (true, true);
        while open || !flight.is_empty() {
            let room = open && flight.len() < IN_FLIGHT;
            tokio::select! {
                _ = interrupt.recv(), if open => (open, finished) = (false, false),
                _ = terminate.recv(), if open => (open, finished) = (false, false),
                results = first(&mut flight), if !flight.is_empty() => {
                    if let Some((chunk, numbers, _)) = flight.pop_front() {
                        self.settle(chunk, &numbers, results?)?;
                    }
                }
                chunk = chunks.recv(), if room => match chunk {
                    Some(chunk) => {
                        let mut chunk = chunk.map_err(|error| anyhow::anyhow!("cannot read on: {error}"))?;
                        let (numbers, messages): (Vec<u64>, Vec<Message>) = chunk.messages.drain(..).unzip();
                        let queue = self.queue.clone();
                        let pushing = tokio::spawn(async move { queue.push_many(messages).await });
                        flight.push_back((chunk, numbers, pushing));
                    }
                    None => open = false,
                },
            }
        }
        Ok(finished)
    }

    /// Counts what became of the lines of a chunk.
    fn settle(&mut self, chunk: Chunk, numbers: &[u64], results: Results) -> anyhow::Result<()> {
        for (&number, result) in numbers.iter().zip(results) {
            match result {
                Ok(Pushed::Created) => self.counts.created += 1,
                Ok(Pushed::Exists(_)) => self.counts.exists += 1,
                Ok(Pushed::Moved) => self.counts.moved += 1,
                Ok(Pushed::Finished) => self.counts.finished += 1,
                Err(error) if error.kind() == ErrorKind::InvalidInput => self.bad(number, &error.to_string())?,
                Err(error) => {
                    anyhow::bail!(
                        "line {number}: {error}; the same command pushes the rest, and what was delivered meanwhile again"
                    )
                }
            }
        }
        for (number, reason) in &chunk.bad {
            self.bad(*number, reason)?;
        }
        self.counts.line = chunk.last_line;
        self.bar.inc(chunk.bytes);
        self.bar.set_message(format!("line {}", chunk.last_line));
        Ok(())
    }

    fn bad(&mut self, number: u64, reason: &str) -> anyhow::Result<()> {
        let reason = output::visible(reason.as_bytes());
        anyhow::ensure!(
            self.skip_bad,
            "line {number}: {reason}; correct it and add --from-line {number} to push the rest (an earlier line that was delivered \
             meanwhile would be pushed again), or add --skip-bad"
        );
        self.counts.skipped += 1;
        if self.counts.skipped <= TOLD {
            self.bar.suspend(|| self.common.complain(&anyhow::anyhow!("skipped line {number}: {reason}")));
        }
        Ok(())
    }

    fn report(&self, started: Instant, done: bool) -> io::Result<()> {
        let (counts, seconds) = (&self.counts, started.elapsed().as_secs_f64());
        let Counts { line, created, exists, moved, finished, skipped } = *counts;
        let outcome = if done { "pushed" } else { "stopped" };
        if self.common.json {
            let object = serde_json::json!({
                "queue": self.queue.name(), "outcome": outcome, "line": line, "created": created, "exists": exists,
                "moved": moved, "finished": finished, "skipped": skipped, "seconds": seconds,
            });
            return output::json_line(&object);
        }
        let parts: Vec<String> = [("exists", exists), ("moved", moved), ("finished", finished), ("skipped", skipped)]
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

/// The answers to the oldest chunk.
async fn first(flight: &mut VecDeque<(Chunk, Vec<u64>, JoinHandle<Results>)>) -> anyhow::Result<Results> {
    match flight.front_mut() {
        Some((_, _, pushing)) => Ok(pushing.await?),
        None => std::future::pending().await,
    }
}

/// On standard error, if that is a terminal.
fn bar(length: u64) -> ProgressBar {
    if length == 0 {
        return ProgressBar::new_spinner();
    }
    let style = ProgressStyle::with_template("{bar:40} {percent}% {msg}, {bytes_per_sec}, {eta} left");
    ProgressBar::new(length).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
