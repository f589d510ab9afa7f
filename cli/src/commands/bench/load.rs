//! The load: callers, and one worker.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};
use dueq::{Delivery, Error, Message, Pushed, Queue};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::commands::bench::figures::Figures;

const CALLERS: usize = 64;
const HANDLERS: usize = 256;
const PAYLOAD_BYTES: usize = 100;
/// At most so many messages are pushed and not handled yet: the memory of the server is somebody else's.
const ON_THE_WAY: u32 = 10_000;
/// How far ahead messages are pushed whose lateness is taken, if there is time for that.
const AHEAD: Duration = Duration::from_secs(1);
/// What is on the way at the end gets so long.
const DRAIN: Duration = Duration::from_secs(30);

/// A running worker, and what its handlers saw.
pub(super) struct Load {
    queue: Queue,
    stop: CancellationToken,
    leave: CancellationToken,
    worker: JoinHandle<Result<(), Error>>,
    seen: Arc<Seen>,
}

struct Seen {
    places: Semaphore,
    handled: AtomicU64,
    late_us: Mutex<Vec<u64>>,
}

pub(super) struct Throughput {
    pub(super) life_per_s: f64,
    /// How long each push took, in microseconds.
    pub(super) push_us: Figures,
}

impl Load {
    pub(super) fn start(queue: Queue, stop: CancellationToken) -> Self {
        let seen = Arc::new(Seen {
            places: Semaphore::new(ON_THE_WAY as usize),
            handled: AtomicU64::new(0),
            late_us: Mutex::new(Vec::new()),
        });
        let leave = CancellationToken::new();
        let (sees, leaving) = (Arc::clone(&seen), leave.clone());
        let handler = move |delivery: Delivery| {
            sees.see(&delivery);
            std::future::ready(())
        };
        let worker = queue.worker().concurrency(HANDLERS);
        let worker = tokio::spawn(worker.run(handler, async move { leaving.cancelled().await }));
        Self {
            queue,
            stop,
            leave,
            worker,
            seen,
        }
    }

    /// Callers push what is due at once, as fast as they get their answers.
    pub(super) async fn throughput(&self, length: Duration) -> anyhow::Result<Throughput> {
        let (start, mut callers) = (Instant::now(), JoinSet::new());
        for _ in 0..CALLERS {
            let (queue, seen, stop) = (
                self.queue.clone(),
                Arc::clone(&self.seen),
                self.stop.clone(),
            );
            callers.spawn(async move {
                let mut push_us = Vec::new();
                while start.elapsed() < length && !stop.is_cancelled() {
                    // One at a time that is never waited for too long: the worker gives places back.
                    let Some(place) = stop.run_until_cancelled(seen.places.acquire()).await else {
                        break;
                    };
                    place?.forget();
                    let sent = Instant::now();
                    created(queue.push(Message::new(vec![b'x'; PAYLOAD_BYTES])).await?)?;
                    push_us.push(us(sent.elapsed()));
                }
                anyhow::Ok(push_us)
            });
        }
        let push_us = self.all(callers).await?.concat();
        let life_per_s =
            self.seen.handled.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64();
        self.drained().await?;
        self.seen.take();
        Ok(Throughput {
            life_per_s,
            push_us: Figures::new(push_us),
        })
    }

    /// Pushes at a steady rate, whether the pushes before have been answered or not; how late each was, in microseconds.
    pub(super) async fn lateness(&self, per_s: u64, length: Duration) -> anyhow::Result<Figures> {
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
            self.seen.places.acquire().await?.forget();
            let queue = self.queue.clone();
            let message = Message::new(vec![b'x'; PAYLOAD_BYTES]).due(ahead);
            pushes.spawn(async move { created(queue.push(message).await?) });
        }
        self.all(pushes).await?;
        self.drained().await?;
        Ok(Figures::new(self.seen.take()))
    }

    /// What all tasks return; the first failure stops the others, and is told when none of them pushes any more.
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

    /// Waits until nothing is on the way; not, if the user has no patience.
    async fn drained(&self) -> anyhow::Result<()> {
        let all = self
            .stop
            .run_until_cancelled(self.seen.places.acquire_many(ON_THE_WAY));
        match tokio::time::timeout(DRAIN, all).await {
            Ok(Some(places)) => drop(places?),
            Ok(None) => {}
            Err(_) => bail!("what was pushed was not all delivered {DRAIN:?} after the last push"),
        }
        Ok(())
    }

    /// Stops the worker; its deliveries are settled then.
    pub(super) async fn end(self) -> anyhow::Result<()> {
        self.leave.cancel();
        self.worker
            .await
            .map_err(|error| anyhow!("the worker panicked: {error}"))??;
        Ok(())
    }
}

impl Seen {
    fn see(&self, delivery: &Delivery) {
        self.late_us
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(us(delivery.lateness()));
        // A second delivery of the same message, after a lost lease, must not make more places than there were.
        if delivery.attempt() == 1 {
            self.handled.fetch_add(1, Ordering::Relaxed);
            self.places.add_permits(1);
        }
    }

    fn take(&self) -> Vec<u64> {
        std::mem::take(&mut *self.late_us.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn us(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// A push that was repeated may find its own first try.
fn created(pushed: Pushed) -> anyhow::Result<()> {
    match pushed {
        Pushed::Created | Pushed::Exists(_) | Pushed::Finished => Ok(()),
        Pushed::Moved => bail!("a push moved a message that is not ours"),
    }
}
