//! The main loop of a driver.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::task::JoinSet;

use crate::message::{Message, unix_us};
use crate::protocol::{Dues, Reply, Request};
use crate::sink::Sink;

/// A delay queue to be measured.
pub trait Queue: Sized + Send + Sync + 'static {
    /// The number of messages of one call with which [`push_many`](Queue::push_many) is fastest.
    const BATCH: usize;
    /// The number of such calls that are in flight at a time.
    const IN_FLIGHT: usize;
    /// The best number of concurrent handlers.
    const CONCURRENCY: usize;

    /// Opens a queue with this name on that server.
    fn open(server: &str, name: &str) -> impl Future<Output = Result<Self>> + Send;
    /// Pushes one message by one call.
    fn push(&self, message: Message) -> impl Future<Output = Result<()>> + Send;
    /// Pushes many messages by one call, or in the system's own way.
    fn push_many(&self, messages: Vec<Message>) -> impl Future<Output = Result<()>> + Send;
    /// Starts a worker.
    fn work(&self, concurrency: usize, sink: Sink) -> impl Future<Output = Result<()>> + Send;
    /// Waits until this number of messages is acknowledged.
    fn acked(&self, n: u64, sink: &Sink) -> impl Future<Output = Result<()>> + Send {
        async move {
            sink.acked(n).await;
            Ok(())
        }
    }
    /// Stops the worker, if there is one.
    fn close(&self) -> impl Future<Output = Result<()>> + Send;
}

/// Answers requests until the end of the input.
pub async fn run<Q: Queue>(server: &str) -> Result<()> {
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let mut open: Option<Open<Q>> = None;
    while let Some(line) = lines.next_line().await? {
        let reply = match serde_json::from_str(&line).context("not a request") {
            Ok(request) => answer(server, request, &mut open).await,
            Err(error) => Err(error),
        };
        let reply = reply.unwrap_or_else(|error| Reply {
            error: Some(format!("{error:#}")),
            ..Reply::default()
        });
        let mut text = serde_json::to_string(&reply)?;
        text.push('\n');
        std::io::stdout().write_all(text.as_bytes())?;
        std::io::stdout().flush()?;
    }
    Ok(())
}

struct Open<Q> {
    queue: Arc<Q>,
    sink: Sink,
}

async fn answer<Q: Queue>(
    server: &str,
    request: Request,
    open: &mut Option<Open<Q>>,
) -> Result<Reply> {
    if let Request::Open { queue } = &request {
        *open = Some(Open {
            queue: Arc::new(Q::open(server, queue).await?),
            sink: Sink::default(),
        });
        return Ok(Reply::default());
    }
    let Open { queue, sink } = open.as_ref().ok_or_else(|| anyhow!("no queue is open"))?;
    let from_us = unix_us();
    let mut reply = Reply {
        from_us,
        ..Reply::default()
    };
    match request {
        Request::Open { .. } => {}
        Request::Push {
            n,
            concurrency,
            due,
        } => {
            shared_out(queue, n, concurrency, move |queue, i| async move {
                queue.push(Message::new(due.of(i, n))).await //
            })
            .await?;
            reply.n = n;
        }
        Request::Bulk { n, batch, due } => {
            let (size, in_flight) = if batch == 0 {
                (Q::BATCH, Q::IN_FLIGHT)
            } else {
                (batch, 1)
            };
            bulk(queue, n, size as u64, in_flight, due).await?;
            reply.n = n;
        }
        Request::Pace { n, per_s, delay_ms } => {
            pace(queue, n, per_s, delay_ms).await?;
            reply.n = n;
        }
        Request::Work { concurrency } => {
            let concurrency = if concurrency == 0 {
                Q::CONCURRENCY
            } else {
                concurrency
            };
            queue.work(concurrency, sink.clone()).await?;
        }
        Request::Drain { n, limit_ms, late } => {
            let drained = async {
                sink.started(n).await;
                queue.acked(n, sink).await
            };
            tokio::select! {
                result = drained => result?,
                reason = sink.failed() => bail!("the worker has ended: {reason}"),
                () = tokio::time::sleep(Duration::from_millis(limit_ms)) => {}
            }
            reply.n = sink.count();
            if late {
                reply.late_us = sink.take_late_us();
            }
        }
        Request::Close => queue.close().await?,
    }
    reply.to_us = unix_us();
    Ok(reply)
}

/// Runs `one` for each number below `n`, with limited concurrency.
async fn shared_out<Q: Queue, F>(
    queue: &Arc<Q>,
    n: u64,
    tasks: usize,
    one: impl Fn(Arc<Q>, u64) -> F + Send + Sync + Clone + 'static,
) -> Result<()>
where
    F: Future<Output = Result<()>> + Send,
{
    let mut set = JoinSet::new();
    let tasks = tasks.max(1) as u64;
    for first in 0..tasks {
        let (queue, one) = (Arc::clone(queue), one.clone());
        set.spawn(async move {
            let mut i = first;
            while i < n {
                one(Arc::clone(&queue), i).await?;
                i += tasks;
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = set.join_next().await {
        done??;
    }
    Ok(())
}

async fn bulk<Q: Queue>(
    queue: &Arc<Q>,
    n: u64,
    size: u64,
    in_flight: usize,
    due: Dues,
) -> Result<()> {
    shared_out(
        queue,
        n.div_ceil(size),
        in_flight,
        move |queue, batch| async move {
            let messages = (batch * size..n.min((batch + 1) * size))
                .map(|i| Message::new(due.of(i, n)))
                .collect();
            queue.push_many(messages).await
        },
    )
    .await
}

async fn pace<Q: Queue>(queue: &Arc<Q>, n: u64, per_s: u64, delay_ms: u64) -> Result<()> {
    let (start, mut pushes) = (Instant::now(), JoinSet::new());
    for i in 0..n {
        let at = start + Duration::from_micros(i * 1_000_000 / per_s);
        tokio::time::sleep_until(at.into()).await;
        let queue = Arc::clone(queue);
        // A fixed rule, so that all systems get equal due times.
        let due_ms = unix_us() / 1_000 + delay_ms + i * 7_919 % 97;
        pushes.spawn(async move { queue.push(Message::new(Some(due_ms))).await });
        while let Some(done) = pushes.try_join_next() {
            done??;
        }
    }
    while let Some(done) = pushes.join_next().await {
        done??;
    }
    Ok(())
}
