//! Scenario `debounce`: ids that are pushed repeatedly must fire when their `max_wait` is over.

mod judge;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use dueq::outcomes::PushOutcome;
use dueq::{Client, Delivery, Message, MessageState, Queue};
use dueq_testkit::Server;
use dueq_testkit::report::Report;
use hdrhistogram::Histogram;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use super::{Arguments, QUEUE, now_ms, with_progress};
use crate::kit::scenarios::until_empty;
use judge::{Answer, Fired, History, Push};

const IDS: u32 = 100;
const EVERY: Duration = Duration::from_millis(100);
/// The delay; longer than the pauses between pushes, so that only `max_wait` makes a message fire.
const DELAY: Duration = Duration::from_secs(1);
const MAX_WAIT: Duration = Duration::from_secs(5);

/// What the handlers observed.
struct Seen {
    fired: Mutex<HashMap<u32, Vec<Fired>>>,
    late_us: Mutex<Histogram<u64>>,
    /// How often each id has fired.
    counts: Vec<AtomicU64>,
}

impl Seen {
    fn total(&self) -> u64 {
        let counts = self.counts.iter();
        counts.map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

pub(super) async fn run(arguments: &Arguments, report: &mut Report) -> Result<()> {
    let server = Server::start(&[])?;
    let queue = Client::connect(&server.url()).await?.queue(QUEUE)?;
    let seen = Arc::new(Seen {
        fired: Mutex::default(),
        late_us: Mutex::new(Histogram::new(3)?),
        counts: (0..IDS).map(|_| AtomicU64::new(0)).collect(),
    });
    let of_handler = Arc::clone(&seen);
    let worker = queue
        .worker()
        .spawn(move |delivery: Delivery| std::future::ready(record(&delivery, &of_handler)))?;
    let wanted = arguments.rounds * u64::from(IDS);
    let pushes = with_progress(pushed(arguments.rounds, &server.url(), &seen), || {
        format!("debounce: fired {} of {wanted} times", seen.total())
    })
    .await?;
    let stats = until_empty(&queue).await?;
    worker.shutdown().await?;
    let fired = std::mem::take(&mut *seen.fired.lock().unwrap_or_else(PoisonError::into_inner));
    let count: usize = pushes.values().map(Vec::len).sum();
    let history = History {
        delay_ms: DELAY.as_millis() as u64,
        max_wait_ms: MAX_WAIT.as_millis() as u64,
        pushes,
        fired,
    };
    let mut verdict = history.verdict();
    if stats.dead > 0 {
        verdict
            .violations
            .add(format!("{} messages died", stats.dead));
    }
    report.violations(&verdict.violations);
    report.figure("pushes", count);
    report.figure("fired 5 s after their first push", verdict.full);
    report.figure("fired earlier, after a pause of the pushes", verdict.paused);
    report.figure("deliveries after a lost lease", verdict.repeated);
    let late_us = seen.late_us.lock().unwrap_or_else(PoisonError::into_inner);
    let ms = |us: u64| us as f64 / 1_000.0;
    report.figure("lateness p50 ms", ms(late_us.value_at_quantile(0.5)));
    report.figure("lateness p99 ms", ms(late_us.value_at_quantile(0.99)));
    report.figure("lateness max ms", ms(late_us.max()));
    Ok(())
}

fn record(delivery: &Delivery, seen: &Seen) -> Result<()> {
    let started_ms = now_ms();
    let id: u32 = delivery.id().parse().context("a number")?;
    let number = std::str::from_utf8(delivery.payload())?.parse()?;
    let fired = Fired {
        number,
        due_ms: delivery.due_ms(),
        started_ms,
        attempt: delivery.attempt(),
    };
    let mut all = seen.fired.lock().unwrap_or_else(PoisonError::into_inner);
    all.entry(id).or_default().push(fired);
    drop(all);
    let late_us = u64::try_from(delivery.lateness().as_micros())?;
    let mut histogram = seen.late_us.lock().unwrap_or_else(PoisonError::into_inner);
    histogram.record(late_us)?;
    seen.counts[id as usize].fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// Pushes each id until it has fired `rounds` times. The pushes of one id follow one another.
async fn pushed(rounds: u64, url: &str, seen: &Arc<Seen>) -> Result<HashMap<u32, Vec<Push>>> {
    let queue = Client::connect(url).await?.queue(QUEUE)?;
    let mut tasks = JoinSet::new();
    for id in 0..IDS {
        let (queue, seen) = (queue.clone(), Arc::clone(seen));
        tasks.spawn(async move {
            // Start the ids at evenly spread times, so that due times are spread as well.
            tokio::time::sleep(MAX_WAIT * id / IDS).await;
            let mut ticks = tokio::time::interval(EVERY);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut pushes = Vec::new();
            for number in 0.. {
                ticks.tick().await;
                if seen.counts[id as usize].load(Ordering::Relaxed) >= rounds {
                    break;
                }
                pushes.push(push(&queue, id, number).await?);
            }
            anyhow::Ok((id, pushes))
        });
    }
    let mut all = HashMap::new();
    while let Some(task) = tasks.join_next().await {
        all.extend([task??]);
    }
    Ok(all)
}

async fn push(queue: &Queue, id: u32, number: u64) -> Result<Push> {
    let message = Message::new(number.to_string()).id(id.to_string());
    let message = message.debounce(DELAY).max_wait(MAX_WAIT);
    let sent_ms = now_ms();
    let receipt = queue.push_message(message).await?;
    let answered_ms = now_ms() + 1;
    let answer = match receipt.outcome() {
        PushOutcome::Created => Answer::Created {
            due_ms: receipt.due_ms().context("a stored message is due")?,
        },
        PushOutcome::Moved => Answer::Moved,
        PushOutcome::Exists(MessageState::Leased) => Answer::Running,
        other => bail!("push {number} of id {id} was answered with {other:?}"),
    };
    Ok(Push {
        number,
        sent_ms,
        answered_ms,
        answer,
    })
}
