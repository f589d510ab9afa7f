//! The driver of dueq, by its public API.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, bail};
use dueq::{Delivery, Due};
use dueq_bench_driver::{Message, Queue, Sink};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub(super) struct Dueq {
    queue: dueq::Queue,
    worker: Mutex<Option<Worker>>,
}

struct Worker {
    stop: oneshot::Sender<()>,
    running: JoinHandle<Result<(), dueq::Error>>,
}

impl Queue for Dueq {
    const BATCH: usize = 2_000;
    const IN_FLIGHT: usize = 2;
    const CONCURRENCY: usize = 512;

    async fn open(server: &str, name: &str) -> Result<Self> {
        let queue = dueq::Client::connect(server).await?.queue(name)?;
        Ok(Self {
            queue,
            worker: Mutex::new(None),
        })
    }

    async fn push(&self, message: Message) -> Result<()> {
        created(self.queue.push_message(convert(message)).await?)
    }

    async fn push_many(&self, messages: Vec<Message>) -> Result<()> {
        for receipt in self
            .queue
            .push_many(messages.into_iter().map(convert))
            .await
        {
            created(receipt?)?;
        }
        Ok(())
    }

    async fn work(&self, concurrency: usize, sink: Sink) -> Result<()> {
        let worker = self.queue.worker().concurrency(concurrency);
        let (stop, stopped) = oneshot::channel();
        let handler = move |delivery: Delivery| {
            sink.start(delivery.payload());
            std::future::ready(())
        };
        let running =
            tokio::spawn(worker.run(handler, async { stopped.await.unwrap_or_default() }));
        *self.worker.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(Worker { stop, running });
        Ok(())
    }

    /// The worker acknowledges after the handler; the queue's own counter shows when Redis has the
    /// acknowledgement.
    async fn acked(&self, n: u64, _: &Sink) -> Result<()> {
        while self.queue.stats().await?.acked < n {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    }

    async fn close(&self) -> Result<()> {
        let worker = self
            .worker
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(Worker { stop, running }) = worker {
            let _ = stop.send(());
            running.await??;
        }
        Ok(())
    }
}

fn convert(message: Message) -> dueq::Message {
    let converted = dueq::Message::new(message.payload);
    match message.due_ms {
        Some(due_ms) => converted.due(Due::at_ms(due_ms)),
        None => converted,
    }
}

fn created(receipt: dueq::Receipt) -> Result<()> {
    if !receipt.is_created() {
        bail!("a push answered {receipt:?}");
    }
    Ok(())
}
