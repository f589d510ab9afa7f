//! The floor: the least that Redis can be asked to do for a delay queue, by hand, with no safety whatever.
//!
//! One script ZADD + HSET; one ZRANGEBYSCORE LIMIT 100 + ZREM + HMGET; one HDEL; nothing else. What a worker took and did not
//! acknowledge is lost, a repeated push is not noticed, the clock is the client's.

use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use dueq_bench_driver::{Message, Queue, Sink, unix_us};
use redis::Script;
use redis::aio::MultiplexedConnection;
use tokio::task::JoinSet;

/// ARGV: id, due ms and payload of each.
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

/// ARGV: now in ms. Replies ids, then payloads.
static CLAIM: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local ids = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, 100)
        if #ids == 0 then return {} end
        redis.call('ZREM', KEYS[1], unpack(ids))
        return {ids, redis.call('HMGET', KEYS[2], unpack(ids))}",
    )
});

/// How many workers' loops: one handles while another's call is under way.
const LOOPS: usize = 2;
/// What an idle loop waits before it looks again.
const POLL: Duration = Duration::from_millis(1);

pub(super) struct Floor {
    connection: MultiplexedConnection,
    keys: [String; 2],
    next: std::sync::atomic::AtomicU64,
    workers: Mutex<JoinSet<Result<()>>>,
}

impl Queue for Floor {
    const BATCH: usize = 100;
    const IN_FLIGHT: usize = 4;
    const CONCURRENCY: usize = 100;

    async fn open(server: &str, name: &str) -> Result<Self> {
        let connection = redis::Client::open(server)?.get_multiplexed_async_connection().await?;
        let keys = [format!("{{{name}}}:due"), format!("{{{name}}}:held")];
        Ok(Self { connection, keys, next: 0.into(), workers: Mutex::new(JoinSet::new()) })
    }

    async fn push(&self, message: Message) -> Result<()> {
        self.push_many(vec![message]).await
    }

    async fn push_many(&self, messages: Vec<Message>) -> Result<()> {
        let mut call = PUSH.key(&self.keys);
        for message in messages {
            let number = self.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let due_ms = message.due_ms.unwrap_or_else(|| unix_us() / 1_000);
            // As long as the ids that dueq makes.
            call.arg(format!("{number:022}")).arg(due_ms).arg(message.payload);
        }
        let () = call.invoke_async(&mut self.connection.clone()).await?;
        Ok(())
    }

    async fn work(&self, _: usize, sink: Sink) -> Result<()> {
        let mut workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..LOOPS {
            workers.spawn(work(self.connection.clone(), self.keys.clone(), sink.clone()));
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

async fn work(mut connection: MultiplexedConnection, keys: [String; 2], sink: Sink) -> Result<()> {
    loop {
        let now_ms = unix_us() / 1_000;
        let mut found: Vec<Vec<Vec<u8>>> = CLAIM.key(&keys).arg(now_ms).invoke_async(&mut connection).await?;
        let Some(payloads) = found.pop() else {
            tokio::time::sleep(POLL).await;
            continue;
        };
        let ids = found.pop().context("ids before payloads")?;
        payloads.iter().for_each(|payload| sink.start(payload));
        let count = ids.len() as u64;
        let () = redis::cmd("HDEL").arg(&keys[1]).arg(ids).query_async(&mut connection).await?;
        sink.acknowledge(count);
    }
}
