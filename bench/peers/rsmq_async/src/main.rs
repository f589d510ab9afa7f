//! The driver of rsmq_async. README.md describes its configuration.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use dueq_bench_driver::{Message, Queue, Sink};
use futures_util::future::try_join_all;
use rsmq_async::{Rsmq, RsmqConnection, RsmqError, RsmqOptions};
use tokio::task::JoinSet;

/// The most messages that a loop takes at once.
const BATCH: u32 = 100;
/// The number of loops: while the call of one is in flight, another handles messages.
const LOOPS: usize = 2;
/// The pause of an idle loop before it polls again: there is no blocking call for delayed messages.
const POLL: Duration = Duration::from_millis(10);
/// How long a delivery belongs to the worker.
const HIDDEN: Duration = Duration::from_secs(30);

struct Peer {
    rsmq: Rsmq,
    name: String,
    workers: Mutex<JoinSet<Result<(), RsmqError>>>,
}

impl Queue for Peer {
    const BATCH: usize = 100;
    const IN_FLIGHT: usize = 4;
    const CONCURRENCY: usize = 100;

    async fn open(server: &str, name: &str) -> Result<Self> {
        let address = server.trim_start_matches("redis://").trim_end_matches('/');
        let (host, port) = address.split_once(':').context("HOST:PORT")?;
        let options = RsmqOptions { host: host.to_owned(), port: port.parse()?, ..RsmqOptions::default() };
        let mut rsmq = Rsmq::new(options).await?;
        rsmq.create_queue(name, Some(HIDDEN), None, None).await?;
        Ok(Self { rsmq, name: name.to_owned(), workers: Mutex::new(JoinSet::new()) })
    }

    async fn push(&self, message: Message) -> Result<()> {
        let delay = Duration::from_millis(message.delay_ms());
        self.rsmq.clone().send_message(&self.name, message.payload, Some(delay)).await?;
        Ok(())
    }

    /// One call has one delay for all its messages, so consecutive messages with equal due times go
    /// together.
    async fn push_many(&self, messages: Vec<Message>) -> Result<()> {
        let mut rsmq = self.rsmq.clone();
        for same in messages.chunk_by(|a, b| a.due_ms == b.due_ms) {
            let delay = Duration::from_millis(same[0].delay_ms());
            let payloads = same.iter().map(|message| message.payload.clone()).collect();
            rsmq.send_message_batch(&self.name, payloads, Some(delay)).await?;
        }
        Ok(())
    }

    async fn work(&self, _: usize, sink: Sink) -> Result<()> {
        let mut workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..LOOPS {
            workers.spawn(work(self.rsmq.clone(), self.name.clone(), sink.clone()));
        }
        Ok(())
    }

    async fn close(&self) -> Result<()> {
        let mut workers = std::mem::take(&mut *self.workers.lock().unwrap_or_else(PoisonError::into_inner));
        workers.abort_all();
        while let Some(ended) = workers.join_next().await {
            if let Ok(result) = ended {
                result?;
            }
        }
        Ok(())
    }
}

async fn work(mut rsmq: Rsmq, name: String, sink: Sink) -> Result<(), RsmqError> {
    loop {
        let messages = rsmq.receive_message_batch::<Vec<u8>>(&name, None, BATCH).await?;
        if messages.is_empty() {
            tokio::time::sleep(POLL).await;
            continue;
        }
        messages.iter().for_each(|message| sink.start(&message.message));
        // The library has no call that deletes many messages: the deletions are pipelined on one
        // connection.
        let deletions = messages.iter().map(|message| {
            let (mut rsmq, name) = (rsmq.clone(), &name);
            async move { rsmq.delete_message(name, &message.id).await }
        });
        try_join_all(deletions).await?;
        sink.acknowledge(messages.len() as u64);
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let server = std::env::args().nth(1).context("usage: rsmq-async-driver URL")?;
    dueq_bench_driver::run::<Peer>(&server).await
}
