//! Measures claims and settlements over HTTP, by a worker of the library, and on the floor,
//! alternately on one Redis.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use dueq::{Client, Delivery, Message, Queue};
use dueq_testkit::Server;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::Arguments;
use super::fill::MAIN;
use super::http::Connection;
use super::process::Process;
use super::push::floor_of;
use crate::curves::median;
use crate::drive::floor::{Calls, id};
use dueq_testkit::report::{Report, rounded};

/// The number of consumers, each with a connection.
const CONSUMERS: usize = 8;
/// The number of messages of a claim; below, of a round.
const BATCH: usize = 100;
const MESSAGES: u64 = 20_000;
const ROUNDS: usize = 5;
const JSON: [(&str, &str); 1] = [("content-type", "application/json")];

/// The cost of one message, in microseconds.
struct Cost {
    /// CPU time of the server of HTTP.
    cpu: f64,
    redis: f64,
    wall: f64,
}

/// A consumer over HTTP.
pub(super) struct Consumer {
    connection: Connection,
    queue: &'static str,
}

impl Consumer {
    pub(super) fn new(address: SocketAddr, queue: &'static str) -> Self {
        let connection = Connection::new(address);
        Self { connection, queue }
    }

    async fn post(&mut self, what: &str, body: &Value) -> Result<Value> {
        let (body, queue) = (serde_json::to_vec(body)?, self.queue);
        let target = format!("/v1/queues/{queue}/{what}");
        let mut request = self
            .connection
            .head("POST", &target, &JSON, Some(body.len()));
        request.extend_from_slice(&body);
        let answer = self.connection.send(&request).await?.expect(&[200, 204])?;
        match answer.status {
            204 => Ok(Value::Null),
            _ => answer.json(),
        }
    }

    /// Claims up to `max` messages; waits until there is one.
    pub(super) async fn claim(&mut self, max: usize, wait: Duration) -> Result<Vec<Value>> {
        let wait_ms = u64::try_from(wait.as_millis())?;
        let body = json!({ "max": max, "lease_ms": 60_000, "wait_ms": wait_ms });
        let mut answer = self.post("claims", &body).await?;
        match answer["deliveries"].take() {
            Value::Array(deliveries) => Ok(deliveries),
            _ => Ok(Vec::new()),
        }
    }

    pub(super) async fn ack(&mut self, deliveries: &[Value]) -> Result<()> {
        let ack = |delivery: &Value| json!({ "handle": delivery["handle"], "action": "ack" });
        let settlements: Vec<_> = deliveries.iter().map(ack).collect();
        let body = json!({ "settlements": settlements });
        self.post("settlements", &body).await.map(drop)
    }
}

pub(super) async fn run(arguments: &Arguments, report: &mut Report) -> Result<()> {
    report.scenario("consume");
    let redis = Server::start(&[])?;
    let serve = Process::serve(&arguments.dueq, &redis.url(), &[]).await?;
    let floor = floor_of(&redis.url(), &[]).await?;
    let queue = Client::connect(&redis.url()).await?.queue(MAIN)?;
    let calls = Calls::connect(&redis.url(), MAIN).await?;
    let mut rows = ["HTTP", "floor", "worker"].map(|name| (name, Vec::new()));
    for round in 0..=ROUNDS {
        eprintln!("consume: round {round} of {ROUNDS}");
        for (name, costs) in &mut rows {
            let process = if *name == "floor" { &floor } else { &serve };
            match *name {
                "floor" => fill_floor(&calls, round).await?,
                _ => fill(&queue).await?,
            }
            let (cpu, of_redis) = (
                process.cpu_us()?,
                dueq_testkit::process::cpu_us(redis.pid())?,
            );
            let wall = match *name {
                "worker" => by_worker(&queue).await?,
                _ => by_http(process.address).await?,
            };
            let each = |us: f64| us / MESSAGES as f64;
            let cost = Cost {
                cpu: each(process.cpu_us()? - cpu),
                redis: each(dueq_testkit::process::cpu_us(redis.pid())? - of_redis),
                wall: each(wall.as_secs_f64() * 1e6),
            };
            // The first round is not counted: it opens connections and loads scripts.
            if round > 0 {
                costs.push(cost);
            }
        }
    }
    for (name, costs) in &rows {
        let of = |figure: fn(&Cost) -> f64| {
            let mut figures: Vec<_> = costs.iter().map(figure).collect();
            median(&mut figures)
        };
        let cpu = (*name != "worker").then(|| rounded(of(|cost| cost.cpu)));
        let (redis, per_s) = (rounded(of(|cost| cost.redis)), 1e6 / of(|cost| cost.wall));
        let row = json!({ "us": cpu, "redis_us": redis, "per_s": per_s.round() });
        report.figure(name, row);
    }
    Ok(())
}

async fn fill(queue: &Queue) -> Result<()> {
    let message = |_| Message::new("x".repeat(100));
    for pushed in queue.push_many((0..MESSAGES).map(message)).await {
        pushed?;
    }
    Ok(())
}

async fn fill_floor(calls: &Calls, round: usize) -> Result<()> {
    let first = round as u64 * MESSAGES;
    let numbers: Vec<_> = (first..first + MESSAGES).collect();
    for numbers in numbers.chunks(BATCH) {
        let message = |number: &u64| (id(*number), dueq_bench_driver::Message::new(None));
        calls.push(numbers.iter().map(message)).await?;
    }
    Ok(())
}

async fn by_http(address: SocketAddr) -> Result<Duration> {
    let done = Arc::new(AtomicU64::new(0));
    let (begin, mut tasks) = (Instant::now(), JoinSet::new());
    for _ in 0..CONSUMERS {
        let done = Arc::clone(&done);
        tasks.spawn(async move {
            let mut consumer = Consumer::new(address, MAIN);
            while done.load(Ordering::Relaxed) < MESSAGES {
                let deliveries = consumer.claim(BATCH, Duration::ZERO).await?;
                if !deliveries.is_empty() {
                    consumer.ack(&deliveries).await?;
                }
                done.fetch_add(deliveries.len() as u64, Ordering::Relaxed);
            }
            anyhow::Ok(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    ensure!(
        done.load(Ordering::Relaxed) == MESSAGES,
        "a message came twice"
    );
    Ok(begin.elapsed())
}

async fn by_worker(queue: &Queue) -> Result<Duration> {
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let begin = Instant::now();
    let worker = queue
        .worker()
        .concurrency(BATCH)
        .spawn(move |_: Delivery| {
            let sender = sender.clone();
            async move {
                let _ = sender.send(());
            }
        })?;
    for _ in 0..MESSAGES {
        receiver.recv().await.context("the worker ended")?;
    }
    worker.shutdown().await?;
    Ok(begin.elapsed())
}
