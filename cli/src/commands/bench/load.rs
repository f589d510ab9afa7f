//! The load: callers that push, and one worker.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};
use dueq::outcomes::PushOutcome;
use dueq::{Client, Delivery, Error, Message, Queue, Receipt};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::commands::bench::figures::Figures;
use crate::commands::bench::server::{Cost, Server, Waiting};

const CALLERS: usize = 64;
const HANDLERS: usize = 256;
pub(super) const PAYLOAD_BYTES: usize = 100;
/// The most messages in the queue, to bound the memory on the server.
const IN_QUEUE: u32 = 10_000;
/// The delay of the messages whose lateness is measured, unless the phase is too short.
const AHEAD: Duration = Duration::from_secs(1);
/// The delay of the messages whose memory is measured: none becomes due meanwhile.
const FAR: Duration = Duration::from_secs(3_600);
/// The number of these messages that one call of the library pushes.
const AT_ONCE: usize = 1_000;
/// How long the worker may take to empty the queue at the end.
const DRAIN: Duration = Duration::from_secs(30);

/// A running worker, and the measurements of its handlers.
pub(super) struct Load {
    client: Client,
    queue: Queue,
    stop: CancellationToken,
    leave: CancellationToken,
    worker: JoinHandle<Result<(), Error>>,
    measured: Arc<Measured>,
}

struct Measured {
    permits: Semaphore,
    handled: AtomicU64,
    late_us: Mutex<Vec<u64>>,
}

pub(super) struct Throughput {
    pub(super) life_per_s: f64,
    /// How long each push took, in microseconds.
    pub(super) push_us: Figures,
    pub(super) cost: Option<Cost>,
}

pub(super) struct Lateness {
    /// The messages a second.
    pub(super) rate: u64,
    pub(super) late_us: Figures,
    pub(super) cost: Option<Cost>,
}

/// Pushes messages that are due far in the future, measures their memory, and deletes the queue.
pub(super) async fn waiting(
    client: &Client,
    queue: &Queue,
    stop: &CancellationToken,
) -> anyhow::Result<Option<Waiting>> {
    let before = Server::read(client).await?;
    let mut pushed = 0;
    while pushed < u64::from(IN_QUEUE) && !stop.is_cancelled() {
        let messages = (0..AT_ONCE).map(|_| message().due(FAR));
        for receipt in queue.push_many(messages).await {
            created(receipt?)?;
            pushed += 1;
        }
    }
    let after = Server::read(client).await?;
    queue.delete().await?;
    let both = before.zip(after);
    Ok(both.and_then(|(before, after)| after.waiting(before, pushed)))
}

impl Load {
    pub(super) fn start(client: Client, queue: Queue, stop: CancellationToken) -> Self {
        let measured = Arc::new(Measured {
            permits: Semaphore::new(IN_QUEUE as usize),
            handled: AtomicU64::new(0),
            late_us: Mutex::new(Vec::new()),
        });
        let leave = CancellationToken::new();
        let (measured_by_handler, leaving) = (Arc::clone(&measured), leave.clone());
        let handler = move |delivery: Delivery| {
            measured_by_handler.record(&delivery);
            std::future::ready(())
        };
        let worker = queue.worker().concurrency(HANDLERS);
        let worker = tokio::spawn(worker.run(handler, async move { leaving.cancelled().await }));
        Self {
            client,
            queue,
            stop,
            leave,
            worker,
            measured,
        }
    }

    /// Measures the throughput: each caller pushes a message that is due at once, and the next one
    /// after the answer.
    pub(super) async fn throughput(&self, length: Duration) -> anyhow::Result<Throughput> {
        let before = Server::read(&self.client).await?;
        let (start, mut callers) = (Instant::now(), JoinSet::new());
        for _ in 0..CALLERS {
            let (queue, measured, stop) = (
                self.queue.clone(),
                Arc::clone(&self.measured),
                self.stop.clone(),
            );
            callers.spawn(async move {
                let mut push_us = Vec::new();
                while start.elapsed() < length && !stop.is_cancelled() {
                    // Each message in the queue holds a permit, which its handler returns.
                    let Some(permit) = stop.run_until_cancelled(measured.permits.acquire()).await
                    else {
                        break;
                    };
                    permit?.forget();
                    let sent = Instant::now();
                    created(queue.push_message(message()).await?)?;
                    push_us.push(us(sent.elapsed()));
                }
                anyhow::Ok(push_us)
            });
        }
        let push_us = self.all(callers).await?.concat();
        let life_per_s =
            self.measured.handled.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64();
        self.drained().await?;
        let messages = self.measured.take().len();
        Ok(Throughput {
            life_per_s,
            push_us: Figures::new(push_us),
            cost: self
                .cost(before, messages, life_per_s.round() as u64)
                .await?,
        })
    }

    /// The CPU time that Redis has used for these messages since `before`.
    async fn cost(
        &self,
        before: Option<Server>,
        messages: usize,
        per_s: u64,
    ) -> anyhow::Result<Option<Cost>> {
        let both = before.zip(Server::read(&self.client).await?);
        Ok(both.and_then(|(before, after)| after.cost(before, messages as u64, per_s)))
    }

    /// Measures the lateness: pushes at a steady rate, without awaiting the answers.
    pub(super) async fn lateness(&self, per_s: u64, length: Duration) -> anyhow::Result<Lateness> {
        let before = Server::read(&self.client).await?;
        let ahead = AHEAD.min(length / 2);
        let count = (per_s as f64 * (length - ahead).as_secs_f64()).ceil() as u64;
        let (start, mut pushes) = (Instant::now(), JoinSet::new());
        for number in 0..count {
            let at = start + Duration::from_secs_f64(number as f64 / per_s as f64);
            let waited = self
                .stop
                .run_until_cancelled(tokio::time::sleep_until(at.into()))
                .await;
            if waited.is_none() {
                break;
            }
            self.measured.permits.acquire().await?.forget();
            let queue = self.queue.clone();
            pushes.spawn(async move { created(queue.push_message(message().due(ahead)).await?) });
        }
        self.all(pushes).await?;
        self.drained().await?;
        let late_us = self.measured.take();
        Ok(Lateness {
            rate: per_s,
            cost: self.cost(before, late_us.len(), per_s).await?,
            late_us: Figures::new(late_us),
        })
    }

    /// Awaits all tasks. If one fails, stops the others, and returns its error after all have
    /// ended.
    async fn all<T: 'static>(
        &self,
        mut tasks: JoinSet<anyhow::Result<T>>,
    ) -> anyhow::Result<Vec<T>> {
        let (mut values, mut failure) = (Vec::new(), None);
        while let Some(done) = tasks.join_next().await {
            match done.map_err(anyhow::Error::from).flatten() {
                Ok(value) => values.push(value),
                Err(error) => {
                    self.stop.cancel();
                    failure.get_or_insert(error);
                }
            }
        }
        failure.map_or(Ok(values), Err)
    }

    /// Waits until the queue is empty, or the user interrupts.
    async fn drained(&self) -> anyhow::Result<()> {
        let all = self
            .stop
            .run_until_cancelled(self.measured.permits.acquire_many(IN_QUEUE));
        match tokio::time::timeout(DRAIN, all).await {
            Ok(Some(permits)) => drop(permits?),
            Ok(None) => {}
            Err(_) => bail!(
                "some messages were not delivered within {DRAIN:?} after the last push: see `dueq doctor`"
            ),
        }
        Ok(())
    }

    /// Stops the worker, which settles its deliveries first.
    pub(super) async fn end(self) -> anyhow::Result<()> {
        self.leave.cancel();
        self.worker
            .await
            .map_err(|error| anyhow!("the worker panicked: {error}"))??;
        Ok(())
    }
}

impl Measured {
    fn record(&self, delivery: &Delivery) {
        self.late_us
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(us(delivery.lateness()));
        // If a lost lease causes a second delivery, that delivery must not return a second permit.
        if delivery.attempt() == 1 {
            self.handled.fetch_add(1, Ordering::Relaxed);
            self.permits.add_permits(1);
        }
    }

    fn take(&self) -> Vec<u64> {
        std::mem::take(&mut *self.late_us.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn us(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn message() -> Message {
    Message::new(vec![b'x'; PAYLOAD_BYTES])
}

/// Checks the outcome of a push. A repeated push may find the message that its first try stored.
fn created(receipt: Receipt) -> anyhow::Result<()> {
    match receipt.outcome() {
        PushOutcome::Created | PushOutcome::Exists(_) | PushOutcome::Finished => Ok(()),
        PushOutcome::Moved => bail!("a push moved a message of another program"),
        other => bail!("unknown outcome of a push: {other:?}"),
    }
}
