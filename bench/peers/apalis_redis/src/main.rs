//! The driver of apalis-redis. README.md describes its configuration.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow};
use apalis::prelude::*;
use apalis_redis::{Config, ConnectionManager, RedisStorage};
use dueq_bench_driver::{Message, Queue, Sink};
use futures::stream;
use tokio::task::JoinHandle;

/// The interval at which it polls for due messages.
const POLL: Duration = Duration::from_millis(10);

struct Peer {
    name: String,
    connection: ConnectionManager,
    storage: RedisStorage<String>,
    worker: Mutex<Option<JoinHandle<()>>>,
}

fn storage(connection: &ConnectionManager, name: &str, batch: usize) -> RedisStorage<String> {
    RedisStorage::new(connection.clone()).with_config(Config::default().queue(name).batch_size(batch))
}

fn task(message: Message) -> Result<Task<String>> {
    let builder = TaskBuilder::new(String::from_utf8(message.payload)?);
    Ok(match message.due_ms {
        // The library rounds the time down to whole seconds.
        Some(due_ms) => builder.run_at_time(UNIX_EPOCH + Duration::from_millis(due_ms)).build(),
        None => builder.build(),
    })
}

impl Queue for Peer {
    const BATCH: usize = 100;
    const IN_FLIGHT: usize = 4;
    const CONCURRENCY: usize = 100;

    async fn open(server: &str, name: &str) -> Result<Self> {
        let connection = apalis_redis::connect(server).await?;
        let storage = storage(&connection, name, Self::BATCH);
        Ok(Self { name: name.to_owned(), connection, storage, worker: Mutex::new(None) })
    }

    async fn push(&self, message: Message) -> Result<()> {
        self.storage.clone().push_task(task(message)?).await.map_err(|error| anyhow!("{error:?}"))
    }

    async fn push_many(&self, messages: Vec<Message>) -> Result<()> {
        let tasks = messages.into_iter().map(task).collect::<Result<Vec<_>>>()?;
        self.storage.clone().push_all(stream::iter(tasks)).await.map_err(|error| anyhow!("{error:?}"))
    }

    async fn work(&self, concurrency: usize, sink: Sink) -> Result<()> {
        let backend = storage(&self.connection, &self.name, concurrency).poll_with_interval(POLL);
        let worker = WorkerBuilder::new(format!("{}-worker", self.name))
            .backend(backend)
            .concurrency(concurrency)
            .data(sink.clone())
            .build(handle);
        let running = tokio::spawn(async move {
            sink.fail(format!("{:?}", worker.run().await));
        });
        *self.worker.lock().unwrap_or_else(PoisonError::into_inner) = Some(running);
        Ok(())
    }

    /// The worker acknowledges after the handler; the set of completed jobs shows when Redis has
    /// the acknowledgement.
    async fn acked(&self, n: u64, _: &Sink) -> Result<()> {
        let done = self.storage.get_config().done_jobs_set();
        loop {
            let count: u64 = redis::cmd("SCARD").arg(&done).query_async(&mut self.connection.clone()).await?;
            if count >= n {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    async fn close(&self) -> Result<()> {
        let worker = self.worker.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(running) = worker {
            running.abort();
            let _ = running.await;
        }
        Ok(())
    }
}

async fn handle(payload: String, sink: Data<Sink>) -> Result<(), BoxDynError> {
    sink.start(payload.as_bytes());
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    let server = std::env::args().nth(1).context("usage: apalis-redis-driver URL")?;
    dueq_bench_driver::run::<Peer>(&server).await
}
