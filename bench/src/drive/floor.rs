//! The driver of the floor: the least work that a delay queue can ask of Redis, without any safety.
//!
//! A push is one script with ZADD and HSET, a claim one with ZRANGEBYSCORE LIMIT 100, ZREM and
//! HMGET, an ack one HDEL. A claimed message that is not acknowledged is lost, a repeated push
//! makes a second message, and the clock is the client's.

use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use dueq_bench_driver::{Message, Queue, Sink, unix_us};
use redis::Script;
use redis::aio::MultiplexedConnection;
use tokio::task::JoinSet;

/// ARGV: id, due ms and payload of each message.
static PUSH: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local due, held = {}, {}
        for i = 1, #ARGV, 3 do
            due[#due + 1], due[#due + 2] = ARGV[i + 1], ARGV[i]
            held[#held + 1], held[#held + 2] = ARGV[i], ARGV[i + 2]
        end
        redis.call('ZADD', KEYS[1], unpack(due))
        return redis.call('HSET', KEYS[2], unpack(held))",
    )
});

/// ARGV: the present time in ms. Replies all ids, then all payloads.
static CLAIM: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local ids = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, 100)
        if #ids == 0 then return {} end
        redis.call('ZREM', KEYS[1], unpack(ids))
        return {ids, redis.call('HMGET', KEYS[2], unpack(ids))}",
    )
});

/// The number of worker loops: one handles messages while another's call is in flight.
const LOOPS: usize = 2;
/// The pause of an idle loop before it polls again.
const POLL: Duration = Duration::from_millis(1);

/// The floor's three calls, on one connection.
#[derive(Clone)]
pub(crate) struct Calls {
    connection: MultiplexedConnection,
    keys: [String; 2],
}

impl Calls {
    pub(crate) async fn connect(server: &str, name: &str) -> Result<Self> {
        let connection = redis::Client::open(server)?
            .get_multiplexed_async_connection()
            .await?;
        Ok(Self {
            connection,
            keys: [format!("{{{name}}}:due"), format!("{{{name}}}:held")],
        })
    }

    /// Pushes messages, each with its id.
    pub(crate) async fn push(
        &self,
        messages: impl IntoIterator<Item = (String, Message)>,
    ) -> Result<()> {
        let mut call = PUSH.key(&self.keys);
        for (id, message) in messages {
            let due_ms = message.due_ms.unwrap_or_else(|| unix_us() / 1_000);
            call.arg(id).arg(due_ms).arg(message.payload);
        }
        Ok(call.invoke_async(&mut self.connection.clone()).await?)
    }

    /// Claims up to a hundred due messages; returns their ids and their payloads.
    pub(crate) async fn claim(&self) -> Result<(Vec<Vec<u8>>, Vec<Vec<u8>>)> {
        let now_ms = unix_us() / 1_000;
        let mut connection = self.connection.clone();
        let mut found: Vec<Vec<Vec<u8>>> = CLAIM
            .key(&self.keys)
            .arg(now_ms)
            .invoke_async(&mut connection)
            .await?;
        let Some(payloads) = found.pop() else {
            return Ok(Default::default());
        };
        Ok((found.pop().context("ids before payloads")?, payloads))
    }

    pub(crate) async fn acknowledge(&self, ids: &[Vec<u8>]) -> Result<()> {
        Ok(redis::cmd("HDEL")
            .arg(&self.keys[1])
            .arg(ids)
            .query_async(&mut self.connection.clone())
            .await?)
    }

    /// Cancels waiting messages.
    pub(crate) async fn withdraw(&self, ids: &[Vec<u8>]) -> Result<()> {
        let () = redis::cmd("ZREM")
            .arg(&self.keys[0])
            .arg(ids)
            .query_async(&mut self.connection.clone())
            .await?;
        self.acknowledge(ids).await
    }
}

/// An id that is as long as dueq's own.
pub(crate) fn id(number: u64) -> String {
    format!("{number:022}")
}

pub(super) struct Floor {
    calls: Calls,
    next: std::sync::atomic::AtomicU64,
    workers: Mutex<JoinSet<Result<()>>>,
}

impl Queue for Floor {
    const BATCH: usize = 100;
    const IN_FLIGHT: usize = 4;
    const CONCURRENCY: usize = 100;

    async fn open(server: &str, name: &str) -> Result<Self> {
        Ok(Self {
            calls: Calls::connect(server, name).await?,
            next: 0.into(),
            workers: Mutex::new(JoinSet::new()),
        })
    }

    async fn push(&self, message: Message) -> Result<()> {
        self.push_many(vec![message]).await
    }

    async fn push_many(&self, messages: Vec<Message>) -> Result<()> {
        let next = || self.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.calls
            .push(messages.into_iter().map(|message| (id(next()), message)))
            .await
    }

    async fn work(&self, _: usize, sink: Sink) -> Result<()> {
        let mut workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..LOOPS {
            workers.spawn(work(self.calls.clone(), sink.clone()));
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

async fn work(calls: Calls, sink: Sink) -> Result<()> {
    loop {
        let (ids, payloads) = calls.claim().await?;
        if ids.is_empty() {
            tokio::time::sleep(POLL).await;
            continue;
        }
        payloads.iter().for_each(|payload| sink.start(payload));
        calls.acknowledge(&ids).await?;
        sink.acknowledge(ids.len() as u64);
    }
}
