//! The process whose worker handles the messages.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, bail};
use dueq::{Delivery, Retry, Settlement};
use dueq_bench_driver::unix_us;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::{Begin, Handled, Role};
use crate::runs::soak::mixture::{Mark, RETRY, read};
use crate::runs::soak::spread::Spread;

const CONCURRENCY: usize = 512;

pub(super) struct Node {
    queue: dueq::Queue,
    seen: Arc<Mutex<Seen>>,
    worker: Option<Worker>,
}

struct Worker {
    stop: oneshot::Sender<()>,
    running: JoinHandle<Result<(), dueq::Error>>,
}

/// What the handlers observed since the last report.
struct Seen {
    late: Spread,
    immediate: Spread,
    early: u64,
    unwanted: u64,
}

impl Seen {
    fn take(&mut self) -> Handled {
        Handled {
            late: self.late.take(),
            immediate: self.immediate.take(),
            early: std::mem::take(&mut self.early),
            unwanted: std::mem::take(&mut self.unwanted),
        }
    }

    /// Handles a delivery. The server runs on this machine, so both have one clock.
    fn handle(&mut self, delivery: &Delivery) -> Settlement {
        let now_us = unix_us();
        let Some((pushed_due_ms, mark)) = read(delivery.payload()) else {
            return Settlement::bury("no payload of a soak");
        };
        let first = delivery.attempt() == 1;
        // A rescheduled message has its due time from the queue; any other has it in the payload.
        let moved = !first || mark == Mark::Rescheduled;
        let due_us = 1_000
            * if moved {
                delivery.due_ms()
            } else {
                pushed_due_ms
            };
        match now_us.checked_sub(due_us) {
            Some(us) if first && matches!(mark, Mark::Immediate | Mark::ImmediateRetried) => {
                self.immediate.record(us)
            }
            Some(us) => self.late.record(us),
            None => self.early += 1,
        }
        self.unwanted += u64::from(mark == Mark::Cancelled);
        match mark {
            Mark::Retried | Mark::ImmediateRetried if first => {
                Settlement::retry("fails the first time")
            }
            _ => Settlement::Ack,
        }
    }
}

fn locked(seen: &Mutex<Seen>) -> std::sync::MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Role for Node {
    type Report = Handled;

    async fn connect(server: &str, queue: &str) -> Result<Self> {
        let queue = dueq::Client::connect(server).await?.queue(queue)?;
        let seen = Seen {
            late: Spread::new()?,
            immediate: Spread::new()?,
            early: 0,
            unwanted: 0,
        };
        Ok(Self {
            queue,
            seen: Arc::new(Mutex::new(seen)),
            worker: None,
        })
    }

    async fn begin(&mut self, _: Begin) -> Result<()> {
        let worker = self
            .queue
            .worker()
            .concurrency(CONCURRENCY)
            .retry(Retry::fixed(RETRY));
        let (stop, stopped) = oneshot::channel();
        let seen = Arc::clone(&self.seen);
        let handler = move |delivery: Delivery| std::future::ready(locked(&seen).handle(&delivery));
        let running =
            tokio::spawn(worker.run(handler, async { stopped.await.unwrap_or_default() }));
        self.worker = Some(Worker { stop, running });
        Ok(())
    }

    async fn sample(&mut self) -> Result<Handled> {
        if let Some(worker) = self.worker.take_if(|worker| worker.running.is_finished()) {
            worker.running.await??;
            bail!("the worker has ended");
        }
        Ok(locked(&self.seen).take())
    }

    async fn end(&mut self) -> Result<Handled> {
        let worker = self.worker.take().context("no worker was started")?;
        let _ = worker.stop.send(());
        worker.running.await??;
        Ok(locked(&self.seen).take())
    }
}
