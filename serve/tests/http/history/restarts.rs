//! The history after restarts of Redis, of all workers and of the server, beside what the test has
//! counted itself.
//!
//! The usual form crosses one edge of a minute. `DUEQ_HISTORY_MINUTES=15` makes rounds for so long,
//! with three restarts after each: `make history`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, ensure};
use dueq::{Client, Delivery, Due, Retry, WorkerHandle};

use super::judge::{Event, Round, Taken, Truth};
use super::{begun, history_until};
use crate::instance::Instance;

const LIMIT: Duration = Duration::from_secs(60);

/// What a handler has done.
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

/// Two workers, each with a client of its own.
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
        workers.push(worker.spawn(handler));
    }
    Ok(workers)
}

/// A payload is what to do, and how long it takes in milliseconds.
async fn handle(notes: Notes, delivery: Delivery) -> Result<(), String> {
    let start_us = now_us();
    let text = String::from_utf8_lossy(delivery.payload()).into_owned();
    let (what, ms) = text.split_once(' ').unwrap_or(("ack", "0"));
    let begin = Instant::now();
    tokio::time::sleep(Duration::from_millis(ms.parse().unwrap_or(0))).await;
    let took = begin.elapsed();
    notes.add(Handled {
        id: delivery.id().into_owned(),
        at_ms: now_ms(),
        due_ms: delivery.due_ms(),
        late_us: start_us.saturating_sub(delivery.due_ms() * 1_000),
        took_us: u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
    });
    match what {
        "bury" => delivery
            .bury("the test says so")
            .await
            .map(drop)
            .map_err(|error| error.to_string()),
        "retry" if delivery.attempt() == 1 => Err("the test says so".to_owned()),
        _ => Ok(()),
    }
}

/// A round: pushes, waits until all is handled and in the history, and notes what it has counted.
async fn round(instance: &Instance, notes: &Notes, truth: &mut Truth, number: usize) -> Result<()> {
    let queue = instance.client.queue("orders")?;
    let from_ms = now_ms();
    let mut pushes: HashMap<String, u64> = HashMap::new();
    let (mut pushed, mut cancelled) = (Vec::new(), Vec::new());
    for index in 0..60_u64 {
        let what = match index {
            0..6 => "retry",
            6..9 => "bury",
            _ => "ack",
        };
        // Lateness between 0.2 s and an hour, and handlers of 50 ms to 0.4 s.
        let late_ms = 200 << (index % 15);
        let handling_ms = 50 << (index % 4);
        let id = format!("{number}-{index}");
        let push_ms = now_ms();
        let push = queue.push(format!("{what} {handling_ms}")).id(&*id);
        push.due(Due::at_ms(push_ms - late_ms)).await?;
        pushed.push(push_ms);
        pushes.insert(id, push_ms);
    }
    for index in 0..4 {
        let id = format!("cancel-{number}-{index}");
        pushed.push(now_ms());
        queue
            .push("never")
            .id(&*id)
            .delay(Duration::from_secs(3_600))
            .await?;
        cancelled.push(now_ms());
        let outcome = queue.cancel(&*id).await?;
        ensure!(outcome == dueq::Cancelled::Cancelled, "{outcome:?}");
    }
    // Six messages are handled twice.
    let end = Instant::now() + LIMIT;
    let mut handled = Vec::new();
    while handled.len() < 66 {
        ensure!(Instant::now() < end, "{} of 66 were handled", handled.len());
        handled.extend(notes.take());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let event = |from_ms| Event {
        from_ms,
        until_ms: u64::MAX,
    };
    let before = [
        &truth.pushed,
        &truth.acked,
        &truth.retried,
        &truth.died,
        &truth.cancelled,
    ]
    .map(Vec::len);
    truth.pushed.extend(pushed.into_iter().map(event));
    truth.cancelled.extend(cancelled.into_iter().map(event));
    let mut round = Round {
        from_ms,
        ..Round::default()
    };
    let mut seen: HashMap<&str, usize> = HashMap::new();
    for handled in &handled {
        let index: u64 = handled.id.rsplit('-').next().context("a number")?.parse()?;
        let attempt = seen
            .entry(&handled.id)
            .and_modify(|attempt| *attempt += 1)
            .or_insert(1);
        let settled = event(handled.at_ms);
        match index {
            0..6 if *attempt == 1 => truth.retried.push(settled),
            6..9 => truth.died.push(settled),
            _ => truth.acked.push(settled),
        }
        // A message is handled after its push, and before its handler notes the time.
        let push_ms = pushes.get(&handled.id).copied().context("a push")?;
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
    history_until(instance, "?range=60m", |history| {
        truth.is_whole_in(history) && {
            let rounds = truth.rounds.iter().map(|round| round.lateness.len());
            history["sum"]["handling"]["count"] == rounds.sum::<usize>() + handled.len()
        }
    })
    .await?;
    round.until_ms = now_ms();
    let lists = [
        &mut truth.pushed,
        &mut truth.acked,
        &mut truth.retried,
        &mut truth.died,
        &mut truth.cancelled,
    ];
    for (events, before) in lists.into_iter().zip(before) {
        for event in &mut events[before..] {
            event.until_ms = round.until_ms;
        }
    }
    truth.rounds.push(round);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn history_is_the_truth_after_restarts_of_everything() -> Result<()> {
    let minutes = std::env::var("DUEQ_HISTORY_MINUTES").ok();
    let minutes: Option<u64> = minutes.map(|text| text.parse()).transpose()?;
    let redis = dueq_testkit::Server::start(&["--appendonly", "yes", "--appendfsync", "always"])?;
    let mut instance = Instance::start_on(redis, |_, _| Ok(Vec::new())).await?;
    // Creates the queue: without one there is nothing to report.
    let queue = instance.client.queue("orders")?;
    queue
        .configure(dueq::Limits::new().max_attempts(20))
        .await?;
    let notes = Notes::default();
    let mut truth = Truth::default();
    let mut running = workers(&instance.redis.url(), &notes).await?;
    begun(&instance).await?;
    let start_ms = now_ms();
    let mut number = 0;
    loop {
        round(&instance, &notes, &mut truth, number).await?;
        number += 1;
        // Everything is restarted: Redis by a kill, at once.
        instance.redis.restart()?;
        for worker in running {
            worker.shutdown().await?;
        }
        instance.restart().await?;
        running = workers(&instance.redis.url(), &notes).await?;
        let (now, first_edge) = (now_ms(), (start_ms / 60_000 + 1) * 60_000);
        let end_ms = match minutes {
            Some(minutes) => start_ms + minutes * 60_000,
            None => first_edge,
        };
        if now >= end_ms && number > 1 {
            break;
        }
        if minutes.is_none() && number >= 2 {
            // The third round begins beyond the edge.
            let wait_ms = end_ms.saturating_sub(now_ms());
            tokio::time::sleep(Duration::from_millis(wait_ms)).await;
        }
    }
    let history = history_until(&instance, "?range=60m", |history| {
        truth.is_whole_in(history)
    })
    .await?;
    let compared = truth
        .compare(&history)
        .with_context(|| format!("{history}"))?;
    for worker in running {
        worker.shutdown().await?;
    }
    println!("{number} rounds, each with a restart of everything: {compared:?}");
    ensure!(
        compared.edges >= 1 && compared.percentiles >= 6,
        "{compared:?}"
    );
    Ok(())
}
