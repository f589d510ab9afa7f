//! The samples of a soak, one every few seconds.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use dueq::Queue;
use dueq_testkit::process::{cpu_us, descriptors, status_bytes, stolen_us};
use dueq_testkit::{Server, cluster};
use redis::aio::MultiplexedConnection;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::roles::{Answer, Begin, Handled, Pushed, Request};
use super::spread::Spread;
use crate::kit::process::{self, Start};

/// The longest time for a process to answer, or to finish its work in flight.
const LIMIT: Duration = Duration::from_secs(120);

/// All values of one sample. Durations are those of the interval before it.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Sample {
    /// The time since the start of the counted part, in seconds.
    pub(super) at_s: f64,
    /// The messages pushed, acked and cancelled since the start; and those that wait, of which due,
    /// ready and handled ones are parts.
    pub(super) pushed: u64,
    pub(super) acked: u64,
    pub(super) cancelled: u64,
    pub(super) scheduled: u64,
    pub(super) due: u64,
    pub(super) ready: u64,
    pub(super) leased: u64,
    pub(super) late_p50_ms: Option<f64>,
    pub(super) late_p99_ms: Option<f64>,
    pub(super) late_max_ms: Option<f64>,
    pub(super) immediate_p99_ms: Option<f64>,
    /// p99 of how long after its intended time a message was stored.
    pub(super) behind_p99_ms: Option<f64>,
    pub(super) behind_max_ms: Option<f64>,
    /// The memory of Redis's data, without buffers of clients.
    pub(super) redis_data_kib: f64,
    /// The number of cores that the host withheld from this machine on average.
    pub(super) stolen_cores: f64,
    pub(super) node: Process,
    pub(super) producer: Process,
    pub(super) redis: Process,
}

#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Process {
    pub(super) resident_kib: f64,
    pub(super) descriptors: u64,
    /// The number of cores that the process used on average.
    pub(super) cores: f64,
}

/// The two processes and the server, as observed from outside.
pub(super) struct Stage {
    queue: Queue,
    node: process::Process,
    producer: process::Process,
    redis_pid: u32,
    connection: MultiplexedConnection,
    /// The time of the last sample; the CPU time of each process until then, and the time withheld
    /// by the host.
    last: (Instant, [f64; 4]),
}

impl Stage {
    pub(super) async fn start(server: &Server, queue: &str) -> Result<Self> {
        let url = server.url();
        let role = |role: &str| {
            let start = Start::role("soak-role")?.args([role, &url, queue]);
            start.heard().talking().start()
        };
        let (node, producer) = (role("node")?, role("producer")?);
        let queue = dueq::Client::connect(&url).await?.queue(queue)?;
        Ok(Self {
            queue,
            node,
            producer,
            redis_pid: server.pid(),
            connection: cluster::connection(server.port()).await?,
            last: (Instant::now(), [0.0; 4]),
        })
    }

    pub(super) async fn begin(&mut self, rate: Option<u64>) -> Result<()> {
        let begin = Request::Begin(Begin { rate });
        ask::<Option<Handled>>(&mut self.node, &begin).await?;
        ask::<Option<Pushed>>(&mut self.producer, &begin).await?;
        self.last = (Instant::now(), self.worked_us()?);
        Ok(())
    }

    /// The process ids of the node, the producer and Redis.
    fn pids(&self) -> Result<[u32; 3]> {
        Ok([self.node.number()?, self.producer.number()?, self.redis_pid])
    }

    fn worked_us(&self) -> Result<[f64; 4]> {
        let [node, producer, redis] = self.pids()?;
        Ok([
            cpu_us(node)?,
            cpu_us(producer)?,
            cpu_us(redis)?,
            stolen_us()?,
        ])
    }

    /// The reports of both processes since the last sample.
    pub(super) async fn done(&mut self) -> Result<(Handled, Pushed)> {
        let handled = ask::<Option<Handled>>(&mut self.node, &Request::Sample).await?;
        let pushed = ask::<Option<Pushed>>(&mut self.producer, &Request::Sample).await?;
        Ok((handled.unwrap_or_default(), pushed.unwrap_or_default()))
    }

    /// Tells the producer to stop, and returns its report since the last sample.
    pub(super) async fn end_pushing(&mut self) -> Result<Pushed> {
        Ok(ask::<Option<Pushed>>(&mut self.producer, &Request::End)
            .await?
            .unwrap_or_default())
    }

    /// Tells the node to stop, and returns its report since the last sample.
    pub(super) async fn end_handling(&mut self) -> Result<Handled> {
        Ok(ask::<Option<Handled>>(&mut self.node, &Request::End)
            .await?
            .unwrap_or_default())
    }

    pub(super) async fn stats(&self) -> Result<dueq::QueueStats> {
        Ok(self.queue.stats().await?)
    }

    /// The memory of the server's data, without buffers of clients.
    async fn data_bytes(&mut self) -> Result<f64> {
        let mut info = redis::cmd("INFO");
        let info: String = info.arg("memory").query_async(&mut self.connection).await?;
        let number = |field: &str| -> Result<f64> {
            let line = info
                .lines()
                .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
            Ok(line.with_context(|| format!("no {field}"))?.parse()?)
        };
        Ok(number("used_memory")? - number("mem_clients_normal")?)
    }

    /// Takes a sample.
    pub(super) async fn sample(
        &mut self,
        at_s: f64,
        handled: &Handled,
        pushed: &Pushed,
    ) -> Result<Sample> {
        let (late, immediate) = (handled.late.spread()?, handled.immediate.spread()?);
        let behind = pushed.behind.spread()?;
        let stats = self.stats().await?;
        let (pids, worked, now) = (self.pids()?, self.worked_us()?, Instant::now());
        let (before, worked_before) = std::mem::replace(&mut self.last, (now, worked));
        let us = (now - before).as_micros().max(1) as f64;
        let cores = |i: usize| (worked[i] - worked_before[i]) / us;
        let process = |i: usize| -> Result<Process> {
            Ok(Process {
                resident_kib: status_bytes(pids[i], "VmRSS")? as f64 / 1024.0,
                descriptors: descriptors(pids[i])?,
                cores: cores(i),
            })
        };
        let at = |spread: &Spread, share| spread.quantile_ms(share);
        Ok(Sample {
            at_s,
            pushed: stats.pushed,
            acked: stats.acked,
            cancelled: stats.cancelled,
            scheduled: stats.scheduled,
            due: stats.due,
            ready: stats.ready,
            leased: stats.leased,
            late_p50_ms: at(&late, 0.5),
            late_p99_ms: at(&late, 0.99),
            late_max_ms: at(&late, 1.0),
            immediate_p99_ms: at(&immediate, 0.99),
            behind_p99_ms: at(&behind, 0.99),
            behind_max_ms: at(&behind, 1.0),
            redis_data_kib: self.data_bytes().await? / 1024.0,
            stolen_cores: cores(3),
            node: process(0)?,
            producer: process(1)?,
            redis: process(2)?,
        })
    }
}

async fn ask<A: DeserializeOwned>(process: &mut process::Process, request: &Request) -> Result<A> {
    match process.ask(request, LIMIT).await? {
        Answer::Report(report) => Ok(report),
        Answer::Error(error) => bail!(error),
    }
}
