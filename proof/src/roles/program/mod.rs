//! A worker or a producer in another language: a program that knows nothing of this proof. Its
//! connections go through a relay that records every script call, and it tells each start of a
//! handler by a line.

mod frames;
mod ports;
mod relay;
mod runs;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use fastrand::Rng;

use super::serving::serves;
use super::{Options, Pace, Stop, stopped};
use crate::kit::process::{Process, Start};
use crate::payload;
use crate::queues::{Planned, is_partitioned, planned_queues};
use crate::recorder::Diary;
use crate::workload::{hash, trace_parent};
use relay::Relay;
use runs::Runs;

/// How often the lines of the program are read while it calls no script.
const READ_EVERY: Duration = Duration::from_millis(10);
/// How far ahead a producer's messages are due.
const AHEAD_MS: std::ops::Range<u64> = 0..8_000;

/// Runs the program until the process must end. It is killed then, and when this process dies.
pub(super) async fn run(options: &Options, diary: &Diary, mut stop: Stop) -> Result<()> {
    let queues = planned_queues(options.queues);
    let partitioned = queues.iter().find(|queue| is_partitioned(queue.name));
    let queue = partitioned.unwrap_or(&queues[0]);
    let runs = Arc::new(Mutex::new(Runs::new(
        options.history.with_extension("runs"),
        queue.name,
        diary.clone(),
    )?));
    let relay = Arc::new(Relay::new(diary, options.is_cluster(), Arc::clone(&runs))?);
    let url = String::from_utf8(relay.lead(options.url.as_bytes())?)?;
    writeln!(std::io::stdout(), "ready")?;
    let program = Program { options, url };
    if options.pushes {
        tokio::select! {
            () = stopped(&mut stop) => return Ok(()),
            ended = program.push(queue, diary) => return ended,
        }
    }
    diary.write(&serves(options, std::slice::from_ref(queue)));
    let records = options.history.with_extension("runs");
    let mut process = program.start(&["work", queue.name], Some(&records))?;
    let mut tick = tokio::time::interval(READ_EVERY);
    loop {
        tokio::select! {
            () = stopped(&mut stop) => break,
            ended = process.end() => bail!("the program ended by itself: {}", ended?),
            _ = tick.tick() => runs::locked(&runs).read()?,
        }
    }
    process.kill().await?;
    runs::locked(&runs).read()
}

struct Program<'a> {
    options: &'a Options,
    /// The URL of the servers behind the relay.
    url: String,
}

impl Program<'_> {
    /// The shim stays with this process: its clock faults are for programs that use libc.
    fn start(&self, words: &[&str], records: Option<&Path>) -> Result<Process> {
        let command = self.options.command.as_deref().context("no --command")?;
        let start = Start::program(Path::new("setpriv"))
            .args(["--pdeathsig", "KILL", "--"])
            .args(command.split_whitespace())
            .args(words)
            .env("REDIS_URL", &self.url)
            .env("LEASE_MS", &self.options.lease_ms.to_string())
            .env_remove("LD_PRELOAD")
            .heard();
        match records {
            Some(path) => start.recording(path)?.start(),
            None => start.start(),
        }
    }

    /// Pushes messages at the rate of the options, a batch for each start of the program.
    async fn push(&self, queue: &Planned, diary: &Diary) -> Result<()> {
        let mut pace = Pace::new(self.options.rate.context("no --rate")?);
        let mut rng = Rng::with_seed(self.options.seed ^ hash(self.options.name.as_bytes()));
        let (mut number, mut told) = (0, 0);
        let file: PathBuf = self.options.history.with_extension("ndjson");
        loop {
            let owed = pace.owed(1).await;
            let mut lines = String::new();
            for _ in 0..owed {
                lines += &self.line(&mut number, &mut rng, diary)?;
            }
            std::fs::write(&file, lines)?;
            let name = file.to_str().context("a path that is not UTF-8")?;
            let status = self.start(&["push", queue.name, name], None)?.end().await?;
            // It may fail while the server is away; the relay has what became of each call.
            told += u64::from(status.success());
            pace.did(owed);
            ensure!(
                told > 0 || number < 1_000,
                "no push of the program succeeds"
            );
        }
    }

    fn line(&self, number: &mut u64, rng: &mut Rng, diary: &Diary) -> Result<String> {
        let id = loop {
            *number += 1;
            let id = format!("{}-{number}", self.options.name);
            if trace_parent(&id).is_none() {
                break id;
            }
        };
        let now_ms = match diary.server_now_ms() {
            0 => u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?,
            now_ms => now_ms,
        };
        let payload = payload::make(&id, 1, rng.usize(0..2_000));
        let line = serde_json::json!({
            "id_base64": STANDARD.encode(&id),
            "payload_base64": STANDARD.encode(payload),
            "at": (now_ms + rng.u64(AHEAD_MS)).to_string(),
        });
        Ok(format!("{line}\n"))
    }
}
