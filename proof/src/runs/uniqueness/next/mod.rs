//! Scenario `next`: ids are pushed again during their first run, which ends by an ack, a failure or
//! a kill of its worker. Exactly one more run must follow, with the last payload.

mod judge;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, bail};
use dueq::outcomes::PushOutcome;
use dueq::{Client, Message, OnConflict, Queue, QueueLimits};
use dueq_testkit::Server;
use dueq_testkit::report::Report;
use tokio::task::JoinSet;

use super::aof::{Change, changes};
use super::{Arguments, QUEUE, recording_server, with_progress};
use crate::kit::crew::{Crew, Line};
use crate::kit::scenarios::{LOOK, alive, push};
use judge::{Answer, Event, History, Run};

/// The payload of the first run.
pub(super) const FIRST: u8 = 0;
/// The payload of the last push during the first run; the pushes before it have 1, 2 and so on.
const LAST: u8 = 3;

/// How a first run ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Ack,
    Fail,
    Crash,
}

impl End {
    fn of(id: u32, crash_one_in: u64) -> Self {
        match u64::from(id) % crash_one_in {
            0 => Self::Crash,
            1 => Self::Fail,
            _ => Self::Ack,
        }
    }
}

/// The parent process's part in the runs.
struct Parent<'a> {
    queue: &'a Queue,
    crew: Crew,
    crash_one_in: u64,
    /// The first runs that wait for the pushes of their id: the worker, and the number of the run.
    waiting: HashMap<u32, Vec<(u64, u64)>>,
    begun: HashSet<u32>,
    pushing: JoinSet<Result<(u32, Vec<Answer>)>>,
    history: History,
    kills: u64,
}

pub(super) async fn run(arguments: &Arguments, report: &mut Report) -> Result<()> {
    let server = recording_server()?;
    let queue = Client::connect(&server.url()).await?.queue(QUEUE)?;
    let limits = QueueLimits::new().layout3().max_crashes(1_000_000);
    queue.configure(limits).await?;
    push(&queue, arguments.runs, |id| {
        Message::new(FIRST.to_string()).id(id.to_string())
    })
    .await?;
    let (crew, mut lines) = Crew::start("next-worker", server.url(), arguments.workers)?;
    let mut parent = Parent {
        queue: &queue,
        crew,
        crash_one_in: arguments.crash_one_in,
        waiting: HashMap::new(),
        begun: HashSet::new(),
        pushing: JoinSet::new(),
        history: History {
            messages: u32::try_from(arguments.runs).context("--runs")?,
            ..History::default()
        },
        kills: 0,
    };
    let pushed = AtomicUsize::new(0);
    let handling = async {
        let mut looks = tokio::time::interval(LOOK);
        loop {
            tokio::select! {
                Some(line) = lines.recv() => parent.take(&line).await?,
                Some(done) = parent.pushing.join_next() => {
                    let (id, answers) = done??;
                    parent.go(id, answers).await?;
                    pushed.store(parent.history.answers.len(), Ordering::Relaxed);
                }
                _ = looks.tick() => if parent.is_over().await? {
                    return anyhow::Ok(());
                },
            }
        }
    };
    with_progress(handling, || {
        let (pushed, all) = (pushed.load(Ordering::Relaxed), arguments.runs);
        format!("next: {pushed} of {all} messages pushed again")
    })
    .await?;
    let (started, kills, mut history) = (parent.crew.started(), parent.kills, parent.history);
    parent.crew.end().await?;
    while let Some(line) = lines.recv().await {
        let (_, id, run) = parsed(&line)?;
        history.runs.entry(id).or_default().push(run);
    }
    history.events = events(&server)?;
    let mut violations = history.violations();
    let stats = queue.stats().await?;
    if stats.dead > 0 {
        violations.add(format!("{} messages died", stats.dead));
    }
    report.violations(&violations);
    report.figure("messages", history.messages);
    let (all, pushes) = (
        history.runs.values().flatten(),
        history.answers.values().flatten(),
    );
    let is_last = |run: &&Run| run.payload == LAST;
    report.figure("runs", all.clone().count());
    report.figure(
        "runs of a last payload",
        all.clone().filter(is_last).count(),
    );
    report.figure(
        "of these after a crash of such a run",
        all.filter(is_last).filter(|run| run.attempt > 1).count(),
    );
    report.figure(
        "pushes answered with next",
        pushes
            .clone()
            .filter(|answer| **answer == Answer::Next)
            .count(),
    );
    report.figure(
        "pushes answered with moved",
        pushes.filter(|answer| **answer == Answer::Moved).count(),
    );
    let failed =
        (0..history.messages).filter(|id| End::of(*id, arguments.crash_one_in) == End::Fail);
    report.figure("first runs that failed", failed.count());
    report.figure("kill -9", kills);
    report.figure("leases run out", stats.crashed);
    report.figure("worker processes", started);
    Ok(())
}

impl Parent<'_> {
    /// Notes a run. If it is the first run of an id, pushes that id again.
    async fn take(&mut self, line: &Line) -> Result<()> {
        let (number, id, run) = parsed(line)?;
        self.history.runs.entry(id).or_default().push(run);
        if run.payload != FIRST {
            return Ok(());
        }
        if self.history.answers.contains_key(&id) {
            return self.crew.tell(line.worker, &format!("{number} ack")).await;
        }
        self.waiting
            .entry(id)
            .or_default()
            .push((line.worker, number));
        if self.begun.insert(id) {
            self.pushing.spawn(push_again(self.queue.clone(), id));
        }
        Ok(())
    }

    /// Lets the first run of an id end.
    async fn go(&mut self, id: u32, answers: Vec<Answer>) -> Result<()> {
        self.history.answers.insert(id, answers);
        let mut end = End::of(id, self.crash_one_in);
        for (worker, number) in self.waiting.remove(&id).unwrap_or_default() {
            match end {
                End::Crash => self.kills += u64::from(self.crew.kill(worker).await?),
                End::Fail => self.crew.tell(worker, &format!("{number} fail")).await?,
                End::Ack => self.crew.tell(worker, &format!("{number} ack")).await?,
            }
            // A run after a crash ends by an ack.
            end = End::Ack;
        }
        Ok(())
    }

    async fn is_over(&self) -> Result<bool> {
        if self.history.answers.len() < self.history.messages as usize {
            return Ok(false);
        }
        Ok(alive(&self.queue.stats().await?) == 0)
    }
}

async fn push_again(queue: Queue, id: u32) -> Result<(u32, Vec<Answer>)> {
    let mut answers = Vec::new();
    for payload in FIRST + 1..=LAST {
        let message = Message::new(payload.to_string()).id(id.to_string());
        let message = message.on_conflict(OnConflict::Next);
        answers.push(match queue.push_message(message).await?.outcome() {
            PushOutcome::Next => Answer::Next,
            PushOutcome::Moved => Answer::Moved,
            _ => Answer::Other,
        });
    }
    Ok((id, answers))
}

/// Parses a line: the number of a run within its worker, its id, and the run.
fn parsed(line: &Line) -> Result<(u64, u32, Run)> {
    let words: Vec<&str> = line.text.split(' ').collect();
    let [number, attempt, id, payload] = words[..] else {
        bail!("worker {} printed {:?}", line.worker, line.text);
    };
    let (payload, attempt) = (payload.parse()?, attempt.parse()?);
    Ok((number.parse()?, id.parse()?, Run { payload, attempt }))
}

fn events(server: &Server) -> Result<HashMap<u32, Vec<Event>>> {
    let (mut events, mut failed) = (HashMap::<u32, Vec<Event>>::new(), Ok(()));
    changes(server.folder(), QUEUE, |change| {
        let event = match change {
            Change::Stored { id, payload } => {
                payload.parse().map(|payload| (id, Event::Stored(payload)))
            }
            Change::Kept { id, payload } => {
                payload.parse().map(|payload| (id, Event::Kept(payload)))
            }
            Change::Claimed { id } => Ok((id, Event::Claimed)),
            Change::Due { .. } => return,
        };
        let event = event.and_then(|(id, event)| Ok((id.parse()?, event)));
        match event {
            Ok((id, event)) => events.entry(id).or_default().push(event),
            Err(error) => failed = Err(error),
        }
    })?;
    failed.context("an id or a payload in the server's record")?;
    Ok(events)
}
