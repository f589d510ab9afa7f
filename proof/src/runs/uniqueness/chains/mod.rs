//! Scenario `chains`: workers that are killed and stopped run chains of five steps. Each step must
//! follow exactly once.

mod judge;
pub(super) mod step;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use dueq::{Client, Message, Queue, QueueLimits};
use dueq_testkit::Server;
use dueq_testkit::report::Report;
use rustix::process::Signal;
use tokio::sync::mpsc::UnboundedReceiver;

use super::aof::{Change, changes};
use super::worker::LEASE;
use super::{Arguments, QUEUE, recording_server, with_progress};
use crate::kit::crew::{Crew, Line};
use crate::kit::scenarios::LOOK;
use judge::{Answer, History, Run, Stored};
use step::{STEPS, Step};

/// The payload of the first step of each chain.
const ROOT: &str = "root";
/// The number of chains in the queue at a time: about two for each handler.
const IN_FLIGHT: u64 = 256;
/// The interval between two checks of how many chains still run.
const REFILL: Duration = Duration::from_millis(50);
/// How long a worker is stopped: longer than the lease, so that it loses its deliveries.
const STOP: Duration = Duration::from_millis(LEASE.as_millis() as u64 + 1_500);

#[derive(Default)]
struct Progress {
    /// Whether the first steps of all chains have been pushed.
    all_pushed: AtomicBool,
    acked: AtomicU64,
}

pub(super) async fn run(arguments: &Arguments, report: &mut Report) -> Result<()> {
    let server = recording_server()?;
    let queue = Client::connect(&server.url()).await?.queue(QUEUE)?;
    // A message may be leased by many killed workers, and must survive that.
    queue
        .configure(QueueLimits::new().max_crashes(1_000_000))
        .await?;
    let (mut crew, mut lines) = Crew::start("chains-worker", server.url(), arguments.workers)?;
    let chains = u32::try_from(arguments.chains).context("--chains")?;
    let mut history = History {
        chains,
        ..History::default()
    };
    let progress = Progress::default();
    let faults = with_progress(
        async {
            let pushed = push(&queue, chains, &progress);
            let handled = handled(
                arguments,
                &queue,
                &mut crew,
                &mut lines,
                &mut history,
                &progress,
            );
            let ((), faults) = tokio::try_join!(pushed, handled)?;
            anyhow::Ok(faults)
        },
        || {
            let (acked, all) = (&progress.acked, arguments.chains * STEPS as u64);
            format!(
                "chains: {} of {all} steps acked",
                acked.load(Ordering::Relaxed)
            )
        },
    )
    .await?;
    for (_, worker) in &faults.stopped {
        crew.signal(*worker, Signal::CONT)?;
    }
    let started = crew.started();
    crew.end().await?;
    while let Some(line) = lines.recv().await {
        take(&line, &mut history)?;
    }
    read_record(&server, &mut history)?;
    let mut violations = history.violations();
    let stats = queue.stats().await?;
    if stats.dead > 0 {
        violations.add(format!("{} messages died", stats.dead));
    }
    report.violations(&violations);
    report.figure("chains", history.chains);
    report.figure("messages stored", history.stored.len());
    report.figure("runs of handlers", history.runs.len());
    report.figure("acks accepted", history.answered(Answer::Done));
    report.figure("acks refused as lost", history.answered(Answer::Lost));
    report.figure("acks refused as gone", history.answered(Answer::Gone));
    report.figure("acks with an error", history.answered(Answer::Unknown));
    report.figure("acks tried after a release", history.stale.len());
    report.figure("leases run out", stats.crashed);
    report.figure("kill -9", faults.kills);
    report.figure("workers stopped for 3.5 s", faults.stops);
    report.figure("worker processes", started);
    Ok(())
}

/// Keeps `IN_FLIGHT` chains in the queue until all were pushed. They are few, so that a message
/// that was given back or whose lease was lost soon has another run, while its earlier run tries to
/// ack it.
async fn push(queue: &Queue, chains: u32, progress: &Progress) -> Result<()> {
    let mut next = 0;
    while next < chains {
        let stats = queue.stats().await?;
        let room = IN_FLIGHT.saturating_sub(stats.scheduled + stats.ready + stats.leased);
        let end = next.saturating_add(u32::try_from(room)?).min(chains);
        let messages = (next..end).map(|chain| {
            let id = Step { chain, number: 0 }.to_string();
            Message::new(ROOT).id(id)
        });
        for pushed in queue.push_many(messages).await {
            ensure!(pushed?.is_created(), "a chain was there before");
        }
        next = end;
        tokio::time::sleep(REFILL).await;
    }
    progress.all_pushed.store(true, Ordering::Release);
    Ok(())
}

/// The faults of a run, in rotation: kill, kill, stop.
#[derive(Default)]
struct Faults {
    kills: u64,
    stops: u64,
    /// The stopped workers, and when each is resumed.
    stopped: Vec<(Instant, u64)>,
}

impl Faults {
    async fn next(&mut self, crew: &mut Crew) -> Result<()> {
        let worker = crew.any();
        if self.kills > self.stops * 2 {
            crew.signal(worker, Signal::STOP)?;
            self.stops += 1;
            self.stopped.push((Instant::now() + STOP, worker));
        } else if crew.kill(worker).await? {
            self.kills += 1;
        }
        Ok(())
    }

    /// Resumes workers that were stopped for long enough.
    fn resume(&mut self, crew: &Crew) -> Result<()> {
        let now = Instant::now();
        for (_, worker) in self.stopped.extract_if(.., |(until, _)| *until <= now) {
            crew.signal(worker, Signal::CONT)?;
        }
        Ok(())
    }
}

/// Reads the lines of the workers, and kills and stops workers, until the queue is empty.
async fn handled(
    arguments: &Arguments,
    queue: &Queue,
    crew: &mut Crew,
    lines: &mut UnboundedReceiver<Line>,
    history: &mut History,
    progress: &Progress,
) -> Result<Faults> {
    let mut faults = Faults::default();
    let mut looks = tokio::time::interval(LOOK);
    let pause = Duration::from_millis(arguments.fault_every_ms.max(1));
    let mut next = tokio::time::interval_at((Instant::now() + pause).into(), pause);
    loop {
        tokio::select! {
            Some(line) = lines.recv() => take(&line, history)?,
            _ = looks.tick() => {
                faults.resume(crew)?;
                let all_pushed = progress.all_pushed.load(Ordering::Acquire);
                let stats = queue.stats().await?;
                progress.acked.store(stats.acked, Ordering::Relaxed);
                if all_pushed && stats.scheduled + stats.ready + stats.leased == 0 {
                    return Ok(faults);
                }
            }
            _ = next.tick() => faults.next(crew).await?,
        }
    }
}

/// Notes one line of a worker.
fn take(line: &Line, history: &mut History) -> Result<()> {
    let words: Vec<&str> = line.text.split(' ').collect();
    let [kind, uid, word] = words[..] else {
        anyhow::bail!("worker {} printed {:?}", line.worker, line.text);
    };
    let uid = uid.parse()?;
    if kind == "step" {
        let step = Step::parse(word).context("a step")?;
        let answer = None;
        history.runs.insert(uid, Run { step, answer });
        return Ok(());
    }
    let answer = match word {
        "done" => Answer::Done,
        "gone" => Answer::Gone,
        "lost" => Answer::Lost,
        _ => Answer::Unknown,
    };
    match kind {
        "stale" => history.stale.push((uid, answer)),
        _ => {
            history
                .runs
                .get_mut(&uid)
                .context("a run that began")?
                .answer = Some(answer)
        }
    }
    Ok(())
}

fn read_record(server: &Server, history: &mut History) -> Result<()> {
    let mut failed = None;
    changes(server.folder(), QUEUE, |change| {
        let Change::Stored { id, payload } = change else {
            return;
        };
        match Step::parse(id) {
            None => history.strays.push(id.to_owned()),
            Some(step) => {
                let by = (payload != ROOT).then(|| payload.parse()).transpose();
                match by {
                    Ok(by) => history.stored.push(Stored { step, by }),
                    Err(error) => failed = Some(error),
                }
            }
        }
    })?;
    failed.map_or(Ok(()), Err)
}
