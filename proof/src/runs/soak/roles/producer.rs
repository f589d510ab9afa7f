//! The process that pushes messages, and cancels and reschedules some of them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use dueq::outcomes::{CancelOutcome, RescheduleOutcome};
use dueq::{Due, Message, Queue};
use dueq_bench_driver::unix_us;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use super::{Begin, Pushed, Role};
use crate::runs::soak::mixture::{Fate, LATER, Mixture};
use crate::runs::soak::spread::Spread;

/// The interval between two pushes of the messages that are due by the pace.
const TICK: Duration = Duration::from_millis(1);
/// Without a rate: pushes this number of messages per call, while at most this number wait.
const WAITING: u64 = 100_000;
const AT_ONCE: usize = 500;
/// Without a rate all delays are divided by this; otherwise most messages would still wait at the
/// end of the measurement.
const HASTE: u64 = 10;

pub(super) struct Producer {
    pushing: Pushing,
    running: Option<(CancellationToken, JoinHandle<Result<()>>)>,
}

#[derive(Clone)]
struct Pushing {
    queue: Queue,
    done: Arc<Mutex<Done>>,
}

/// The counts since the last report.
struct Done {
    failed: u64,
    failure: Option<String>,
    too_late: u64,
    behind: Spread,
}

/// A message, and its change after the push.
struct Item {
    /// The intended time of the push, in Unix microseconds.
    at_us: u64,
    message: Message,
    then: Option<Then>,
}

enum Then {
    Cancel,
    /// Reschedule the message to this Unix millisecond.
    Reschedule(u64),
}

impl Pushing {
    fn done(&self) -> MutexGuard<'_, Done> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, what: String) {
        let mut done = self.done();
        done.failed += 1;
        done.failure = Some(what);
    }

    fn take(&self) -> Pushed {
        let mut done = self.done();
        Pushed {
            failed: std::mem::take(&mut done.failed),
            failure: done.failure.take(),
            too_late: std::mem::take(&mut done.too_late),
            behind: done.behind.take(),
        }
    }

    async fn push(&self, items: Vec<Item>) -> Vec<(Vec<u8>, Then)> {
        let times: Vec<_> = items.iter().map(|item| item.at_us).collect();
        let (mut messages, mut then) = (Vec::with_capacity(items.len()), Vec::new());
        for item in items {
            then.extend(
                item.then
                    .map(|then| (item.message.id_bytes().unwrap_or_default().to_vec(), then)),
            );
            messages.push(item.message);
        }
        for (result, at_us) in self.queue.push_many(messages).await.into_iter().zip(times) {
            match result {
                Ok(receipt) if receipt.is_created() => {
                    self.done().behind.record(unix_us().saturating_sub(at_us))
                }
                Ok(other) => self.failed(format!("a push answered {other:?}")),
                Err(error) => self.failed(format!("a push: {error}")),
            }
        }
        then
    }

    async fn then(&self, then: Vec<(Vec<u8>, Then)>) {
        for (id, then) in then {
            let in_time = match then {
                Then::Cancel => self
                    .queue
                    .cancel(id)
                    .await
                    .map(|outcome| outcome == CancelOutcome::Cancelled),
                Then::Reschedule(due_ms) => {
                    let outcome = self.queue.reschedule(id, Due::at_ms(due_ms)).await;
                    outcome.map(|outcome| matches!(outcome, RescheduleOutcome::Moved(_)))
                }
            };
            match in_time {
                Ok(true) => {}
                Ok(false) => self.done().too_late += 1,
                Err(error) => self.failed(format!("a cancel or reschedule: {error}")),
            }
        }
    }

    /// Pushes by the clock, without waiting for earlier pushes.
    async fn pace(self, rate: u64, stop: CancellationToken) -> Result<()> {
        let (mut mixture, mut tasks) = (Mixture::new(1), JoinSet::new());
        let (start_us, mut next) = (unix_us(), 0);
        let at_us = |i: u64| start_us + i * 1_000_000 / rate;
        while !stop.is_cancelled() {
            let now_us = unix_us();
            let mut items = Vec::new();
            while at_us(next) <= now_us {
                items.push(item(&mut mixture, at_us(next)));
                next += 1;
            }
            if !items.is_empty() {
                let pushing = self.clone();
                tasks.spawn(async move {
                    let then = pushing.push(items).await;
                    if !then.is_empty() {
                        tokio::time::sleep(LATER).await;
                        pushing.then(then).await;
                    }
                });
            }
            while let Some(ended) = tasks.try_join_next() {
                ended?;
            }
            tokio::time::sleep(TICK).await;
        }
        while let Some(ended) = tasks.join_next().await {
            ended?;
        }
        Ok(())
    }

    /// Pushes whenever fewer than `WAITING` messages wait.
    async fn flood(self, stop: CancellationToken) -> Result<()> {
        let (mut mixture, mut later) = (Mixture::new(HASTE), JoinSet::new());
        while !stop.is_cancelled() {
            let stats = self.queue.stats().await?;
            let room = WAITING.saturating_sub(stats.scheduled + stats.ready + stats.leased);
            let items: Vec<_> = (0..room).map(|_| item(&mut mixture, unix_us())).collect();
            let mut items = items.into_iter();
            let mut pushes = JoinSet::new();
            while items.len() > 0 {
                let (pushing, part) = (self.clone(), items.by_ref().take(AT_ONCE).collect());
                pushes.spawn(async move { pushing.push(part).await });
            }
            while let Some(then) = pushes.join_next().await {
                let (pushing, then) = (self.clone(), then?);
                later.spawn(async move {
                    tokio::time::sleep(LATER / HASTE as u32).await;
                    pushing.then(then).await;
                });
            }
            while let Some(ended) = later.try_join_next() {
                ended?;
            }
            tokio::time::sleep(TICK).await;
        }
        while let Some(ended) = later.join_next().await {
            ended?;
        }
        Ok(())
    }
}

/// The next message. Its due time counts from the intended time of its push.
fn item(mixture: &mut Mixture, at_us: u64) -> Item {
    let (planned, at_ms) = (mixture.draw(), at_us / 1_000);
    let due_ms = at_ms + planned.delay_ms;
    let then = match planned.fate {
        Fate::Acked | Fate::Retried => None,
        Fate::Cancelled => Some(Then::Cancel),
        Fate::Rescheduled(delay_ms) => Some(Then::Reschedule(at_ms + delay_ms)),
    };
    Item {
        at_us,
        message: Message::new(planned.payload(due_ms))
            .new_id()
            .due(Due::at_ms(due_ms)),
        then,
    }
}

impl Role for Producer {
    type Report = Pushed;

    async fn connect(server: &str, queue: &str) -> Result<Self> {
        let queue = dueq::Client::connect(server).await?.queue(queue)?;
        let done = Done {
            failed: 0,
            failure: None,
            too_late: 0,
            behind: Spread::new()?,
        };
        Ok(Self {
            pushing: Pushing {
                queue,
                done: Arc::new(Mutex::new(done)),
            },
            running: None,
        })
    }

    async fn begin(&mut self, begin: Begin) -> Result<()> {
        let (stop, pushing) = (CancellationToken::new(), self.pushing.clone());
        let running = match begin.rate {
            Some(rate) => tokio::spawn(pushing.pace(rate, stop.clone())),
            None => tokio::spawn(pushing.flood(stop.clone())),
        };
        self.running = Some((stop, running));
        Ok(())
    }

    async fn sample(&mut self) -> Result<Pushed> {
        if let Some((_, running)) = self.running.take_if(|(_, running)| running.is_finished()) {
            running.await??;
            bail!("the producer has ended");
        }
        Ok(self.pushing.take())
    }

    async fn end(&mut self) -> Result<Pushed> {
        let (stop, running) = self.running.take().context("nothing is being pushed")?;
        stop.cancel();
        running.await??;
        Ok(self.pushing.take())
    }
}
