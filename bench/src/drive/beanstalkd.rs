//! The driver of beanstalkd, by its protocol over TCP: put, reserve, delete.
//!
//! The commands have no batches: many are sent on a connection before the answers, which come in
//! order.

use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail};
use dueq_bench_driver::{Message, Queue, Sink};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufStream};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

type Connection = BufStream<TcpStream>;

/// The number of connections that push; below, the most calls in flight on each.
const PUSHERS: usize = 64;
/// The time for which a delivery belongs to the worker, in seconds.
const TIME_TO_RUN_S: u32 = 30;

pub(super) struct Beanstalkd {
    server: String,
    tube: String,
    pushers: tokio::sync::Mutex<Vec<Connection>>,
    permits: tokio::sync::Semaphore,
    workers: Mutex<JoinSet<Result<()>>>,
}

impl Queue for Beanstalkd {
    const BATCH: usize = 100;
    const IN_FLIGHT: usize = 4;
    const CONCURRENCY: usize = 64;

    async fn open(server: &str, name: &str) -> Result<Self> {
        let mut pushers = Vec::new();
        for _ in 0..PUSHERS {
            let mut connection = connect(server).await?;
            ask(&mut connection, &format!("use {name}\r\n"), "USING").await?;
            pushers.push(connection);
        }
        Ok(Self {
            server: server.to_owned(),
            tube: name.to_owned(),
            pushers: tokio::sync::Mutex::new(pushers),
            permits: tokio::sync::Semaphore::new(PUSHERS),
            workers: Mutex::new(JoinSet::new()),
        })
    }

    async fn push(&self, message: Message) -> Result<()> {
        self.push_many(vec![message]).await
    }

    async fn push_many(&self, messages: Vec<Message>) -> Result<()> {
        let _permit = self.permits.acquire().await?;
        let mut connection = self
            .pushers
            .lock()
            .await
            .pop()
            .context("a connection for each permit")?;
        let mut text = Vec::new();
        for message in &messages {
            // beanstalkd has whole seconds only. Round up: rounding down would deliver early.
            let delay_s = message.delay_ms().div_ceil(1_000);
            text.extend(
                format!(
                    "put 0 {delay_s} {TIME_TO_RUN_S} {}\r\n",
                    message.payload.len()
                )
                .into_bytes(),
            );
            text.extend(&message.payload);
            text.extend(b"\r\n");
        }
        connection.write_all(&text).await?;
        connection.flush().await?;
        for _ in &messages {
            expect(&mut connection, "INSERTED").await?;
        }
        self.pushers.lock().await.push(connection);
        Ok(())
    }

    async fn work(&self, concurrency: usize, sink: Sink) -> Result<()> {
        for _ in 0..concurrency {
            let mut connection = connect(&self.server).await?;
            ask(
                &mut connection,
                &format!("watch {}\r\n", self.tube),
                "WATCHING",
            )
            .await?;
            ask(&mut connection, "ignore default\r\n", "WATCHING").await?;
            let working = work(connection, sink.clone());
            self.workers
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .spawn(working);
        }
        Ok(())
    }

    async fn close(&self) -> Result<()> {
        let mut workers =
            std::mem::take(&mut *self.workers.lock().unwrap_or_else(PoisonError::into_inner));
        workers.abort_all();
        while let Some(ended) = workers.join_next().await {
            if let Ok(result) = ended {
                result?;
            }
        }
        Ok(())
    }
}

async fn connect(server: &str) -> Result<Connection> {
    let stream = TcpStream::connect(server).await?;
    stream.set_nodelay(true)?;
    Ok(BufStream::new(stream))
}

async fn ask(connection: &mut Connection, command: &str, answer: &str) -> Result<String> {
    connection.write_all(command.as_bytes()).await?;
    connection.flush().await?;
    expect(connection, answer).await
}

/// Reads a line that must begin with this word; returns the rest.
async fn expect(connection: &mut Connection, word: &str) -> Result<String> {
    let mut line = String::new();
    connection.read_line(&mut line).await?;
    match line.strip_prefix(word) {
        Some(rest) => Ok(rest.trim().to_owned()),
        None => bail!("beanstalkd answered {line:?}, not {word}"),
    }
}

/// Runs the worker: the deletion of a message is sent together with the next reservation.
async fn work(mut connection: Connection, sink: Sink) -> Result<()> {
    connection.write_all(b"reserve\r\n").await?;
    connection.flush().await?;
    loop {
        let reserved = expect(&mut connection, "RESERVED").await?;
        let (id, bytes) = reserved.split_once(' ').context("an id and a length")?;
        let mut payload = vec![0; bytes.parse::<usize>()? + 2];
        connection.read_exact(&mut payload).await?;
        sink.start(&payload);
        connection
            .write_all(format!("delete {id}\r\nreserve\r\n").as_bytes())
            .await?;
        connection.flush().await?;
        expect(&mut connection, "DELETED").await?;
        sink.acknowledge(1);
    }
}
