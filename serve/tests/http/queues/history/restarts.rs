//! Compares the history with what the test itself has counted, while Redis, all workers and the
//! server are restarted.
//!
//! By default the test crosses one edge of a minute. With `DUEQ_HISTORY_MINUTES=15` it runs rounds
//! for 15 minutes, and kills Redis in some of them under load: `make proof NAME=history`.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, ensure};
use dueq::{Client, Delivery, Due, Retry, WorkerHandle};

use super::judge::{Event, Round, Taken, Truth};
use super::{begun, history_until};
use crate::instance::{Instance, LIMIT};

/// The longest time from an event to its report, while nothing is restarted. The guide promises 6
/// s; the rest is for delays of the test's threads.
const REPORTED_MS: u64 = 6_500;
/// A limit for the length of a round, which takes about half of it.
const ROUND_MS: u64 = 14_000;

/// What a handler did with one delivery.
#[derive(Debug, Clone)]
struct Handled {
    id: String,
    at_ms: u64,
    due_ms: u64,
    late_us: u64,
    took_us: u64,
}

#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<Handled>>>);

impl Notes {
    fn add(&self, handled: Handled) {
        let mut notes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        notes.push(handled);
    }

    fn take(&self) -> Vec<Handled> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_micros()).unwrap_or(u64::MAX)
}

fn now_ms() -> u64 {
    now_us() / 1_000
}

/// Starts two workers, each with its own client.
async fn workers(url: &str, notes: &Notes) -> Result<Vec<WorkerHandle>> {
    let mut workers = Vec::new();
    for _ in 0..2 {
        let queue = Client::connect(url).await?.queue("orders")?;
        let notes = notes.clone();
        let handler = move |delivery: Delivery| handle(notes.clone(), delivery);
        let worker = queue
            .worker()
            .concurrency(10)
            .retry(Retry::fixed(Duration::ZERO));
        workers.push(worker.spawn(handler)?);
    }
    Ok(workers)
}

/// A payload says what the handler does, and for how many milliseconds.
async fn handle(notes: Notes, delivery: Delivery) -> Result<(), String> {
    let start_us = now_us();
    let text = String::from_utf8_lossy(delivery.payload()).into_owned();
    let (what, ms) = text.split_once(' ').unwrap_or(("ack", "0"));
    let begin = Instant::now();
    tokio::time::sleep(Duration::from_millis(ms.parse().unwrap_or(0))).await;
    // The handler itself makes the call, so the call is part of the handler time that the node
    // measures.
    let is_buried = what == "bury" && delivery.bury("the test says so").await.is_ok();
    let took = begin.elapsed();
    notes.add(Handled {
        id: delivery.id().into_owned(),
        at_ms: now_ms(),
        due_ms: delivery.due_ms(),
        late_us: start_us.saturating_sub(delivery.due_ms() * 1_000),
        took_us: u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
    });
    match what {
        "bury" if !is_buried => Err("the bury failed".to_owned()),
        "retry" if delivery.attempt() == 1 => Err("the test says so".to_owned()),
        _ => Ok(()),
    }
}

/// The kinds of rounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Nothing is restarted until the history has all events.
    Quiet,
    /// Redis is killed while messages are handled: a report of durations may be lost, but no count.
    Killed,
}

/// The pushes of a round: each id with the time before its push; and the times of the cancels.
#[derive(Default)]
struct Pushes {
    ids: HashMap<String, u64>,
    at_ms: Vec<u64>,
    cancelled_ms: Vec<u64>,
}

async fn push(instance: &mut Instance, number: usize, kind: Kind) -> Result<Pushes> {
    let queue = instance.client.queue("orders")?;
    let mut pushes = Pushes::default();
    for index in 0..60_u64 {
        let what = match (kind, index) {
            (Kind::Quiet, 0..6) => "retry",
            (Kind::Quiet, 6..9) => "bury",
            _ => "ack",
        };
        // Latenesses from 0.2 s to one hour.
        let late_ms = 200 << (index % 15);
        // The median and the 90th percentile lie among many equal durations, so that a few
        // suspended threads do not change them.
        let handling_ms = match index % 10 {
            0..3 => 50,
            3..7 => 100,
            7 => 200,
            _ => 400,
        };
        let (id, push_ms) = (format!("{number}-{index}"), now_ms());
        let payload = format!("{what} {handling_ms}");
        let end = Instant::now() + LIMIT;
        // A repeated push of the id stores nothing if the first one did.
        while let Err(error) = queue
            .push(payload.as_str())
            .id(&*id)
            .due(Due::at_ms(push_ms - late_ms))
            .await
        {
            ensure!(kind == Kind::Killed && Instant::now() < end, "{error}");
        }
        pushes.at_ms.push(push_ms);
        pushes.ids.insert(id, push_ms);
        if kind == Kind::Killed && index == 40 {
            instance.redis.restart()?;
        }
    }
    let cancels = if kind == Kind::Quiet { 4 } else { 0 };
    for index in 0..cancels {
        let id = format!("cancel-{number}-{index}");
        pushes.at_ms.push(now_ms());
        queue
            .push("never")
            .id(&*id)
            .delay(Duration::from_secs(3_600))
            .await?;
        pushes.cancelled_ms.push(now_ms());
        let outcome = queue.cancel(&*id).await?;
        ensure!(
            outcome == dueq::outcomes::CancelOutcome::Cancelled,
            "{outcome:?}"
        );
    }
    Ok(pushes)
}

/// Waits until all messages are handled. In a quiet round six messages are handled twice.
async fn all_handled(notes: &Notes, pushes: &Pushes, kind: Kind) -> Result<Vec<Handled>> {
    let end = Instant::now() + LIMIT;
    let mut handled: Vec<Handled> = Vec::new();
    loop {
        handled.extend(notes.take());
        let ids: HashSet<_> = handled.iter().map(|handled| &handled.id).collect();
        let most = if kind == Kind::Quiet { 66 } else { 60 };
        if ids.len() == pushes.ids.len() && handled.len() >= most {
            return Ok(handled);
        }
        ensure!(
            Instant::now() < end,
            "{} of {most} were handled",
            handled.len()
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Adds the handled deliveries to the counted events.
fn count(truth: &mut Truth, pushes: &Pushes, handled: &[Handled], kind: Kind) -> Result<Round> {
    let mut round = Round {
        is_quiet: kind == Kind::Quiet,
        ..Round::default()
    };
    truth
        .pushed
        .extend(pushes.at_ms.iter().copied().map(Event::at));
    truth
        .cancelled
        .extend(pushes.cancelled_ms.iter().copied().map(Event::at));
    let mut seen: HashMap<&str, usize> = HashMap::new();
    for handled in handled {
        let index: u64 = handled.id.rsplit('-').next().context("a number")?.parse()?;
        let attempt = seen
            .entry(&handled.id)
            .and_modify(|attempt| *attempt += 1)
            .or_insert(1);
        // A bury happens within the handler; other settlements happen after it.
        let handler_ms = handled.took_us / 1_000 + 1;
        let settled = match (kind, index) {
            (Kind::Quiet, 6..9) => Event::at(handled.at_ms.saturating_sub(handler_ms)),
            _ => Event::at(handled.at_ms),
        };
        match (kind, index, *attempt) {
            (Kind::Quiet, 0..6, 1) => truth.retried.push(settled),
            (Kind::Quiet, 6..9, _) => truth.died.push(settled),
            (Kind::Killed, _, 2..) => {} // a lease expired, and one of the two acks counted
            _ => truth.acked.push(settled),
        }
        // A message is handled after its push, and before the handler notes the time.
        let push_ms = pushes.ids.get(&handled.id).copied().context("a push")?;
        let least_ms = if *attempt == 1 {
            push_ms.saturating_sub(handled.due_ms)
        } else {
            0
        };
        round.lateness.push(Taken {
            least_us: least_ms * 1_000,
            most_us: handled.late_us,
        });
        round.handling.push(Taken {
            least_us: handled.took_us,
            most_us: handled.took_us,
        });
    }
    Ok(round)
}

/// Runs one round: pushes messages, waits until the history has all events, and adds them to the
/// counted ones.
async fn round(
    instance: &mut Instance,
    notes: &Notes,
    truth: &mut Truth,
    kind: Kind,
) -> Result<()> {
    let number = truth.rounds.len();
    let history = history_until(instance, "?range=60m", |_| true).await?;
    let before = history["sum"]["handling"]["count"].as_u64().unwrap_or(0);
    let from_ms = now_ms();
    let pushes = push(instance, number, kind).await?;
    let handled = all_handled(notes, &pushes, kind).await?;
    let mut round = count(truth, &pushes, &handled, kind)?;
    round.from_ms = from_ms;
    history_until(instance, "?range=60m", |history| {
        let counted = history["sum"]["handling"]["count"].as_u64().unwrap_or(0);
        let is_whole = kind == Kind::Killed || counted == before + handled.len() as u64;
        truth.is_whole_in(history) && is_whole
    })
    .await?;
    round.until_ms = now_ms();
    truth.rounds.push(round);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn history_equals_the_counted_events_after_restarts() -> Result<()> {
    let minutes = std::env::var("DUEQ_HISTORY_MINUTES").ok();
    let minutes: Option<u64> = minutes.map(|text| text.parse()).transpose()?;
    // The history has the last hour, and must contain the whole run.
    ensure!(
        minutes.is_none_or(|minutes| minutes <= 50),
        "at most 50 minutes"
    );
    let redis = dueq_testkit::Server::start(&["--appendonly", "yes", "--appendfsync", "always"])?;
    let mut instance = Instance::start_on(redis, |_, _| Ok(Vec::new())).await?;
    // Creates the queue, because workers report nothing without one.
    let queue = instance.client.queue("orders")?;
    queue
        .configure(dueq::QueueLimits::new().max_attempts(20))
        .await?;
    let notes = Notes::default();
    let mut truth = Truth::default();
    let mut running = workers(&instance.redis.url(), &notes).await?;
    begun(&instance).await?;
    let start_ms = now_ms();
    let compared = loop {
        let number = truth.rounds.len();
        // In one of four rough rounds, so that in the others no report is lost.
        let kind = match minutes.is_some() && is_rough(now_ms()) && number % 4 == 3 {
            true => Kind::Killed,
            false => Kind::Quiet,
        };
        round(&mut instance, &notes, &mut truth, kind).await?;
        // Restarts everything; Redis is killed.
        instance.redis.restart()?;
        for worker in running {
            worker.shutdown().await?;
        }
        instance.restart().await?;
        running = workers(&instance.redis.url(), &notes).await?;
        truth.close(now_ms(), minutes.map(|_| REPORTED_MS));
        let history = history_until(&instance, "?range=60m", |_| true).await?;
        let compared = truth
            .compare(&history)
            .with_context(|| format!("{history}"))?;
        let now = now_ms();
        let left_ms = 60_000 - now % 60_000;
        match minutes {
            Some(minutes) if now >= start_ms + minutes * 60_000 => break compared,
            // Most rounds lie within a minute; in rough minutes a round crosses the edge.
            Some(_) if left_ms < ROUND_MS && !(now / 60_000).is_multiple_of(3) => {
                wait(left_ms).await
            }
            Some(_) => {}
            None if compared.exact_edges > 0 && compared.slots > 0 => break compared,
            None => wait(left_ms).await,
        }
        ensure!(minutes.is_some() || truth.rounds.len() < 10, "{compared:?}");
    };
    for worker in running {
        worker.shutdown().await?;
    }
    let rounds = truth.rounds.len();
    println!("{rounds} rounds, each with a restart of everything: {compared:?}");
    Ok(())
}

/// Whether rounds in this minute may cross its edge and kill Redis under load.
fn is_rough(now_ms: u64) -> bool {
    (now_ms / 60_000).is_multiple_of(4)
}

/// Waits until the minute has ended.
async fn wait(left_ms: u64) {
    tokio::time::sleep(Duration::from_millis(left_ms)).await;
}
