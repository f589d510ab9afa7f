//! What a read costs Redis beside many waiting messages and queues: calls, the longest of them, and
//! their time beside the same with few waiting.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use dueq_testkit::{Server, cluster};
use redis::aio::MultiplexedConnection;

use super::Arguments;
use super::calls::{Calls, Monitor, Usage, longest_us};
use super::document::{Read, reads};
use super::fill::{MAIN, fill};
use super::http::Connection;
use super::judge::{Measured, judge};
use super::process::Process;
use crate::limits::report::Report;

/// The other server has so many waiting messages.
const FEW: u64 = 10_000;
/// Each pass has a new process of `dueq serve`, so that nothing is remembered.
const PASSES: usize = 3;
const ROUNDS: usize = 7;
/// How long a read is repeated in a round, and how often at least.
const ROUND: Duration = Duration::from_millis(60);
const LEAST: u32 = 3;

/// A server with its data.
struct Side {
    redis: Server,
    control: MultiplexedConnection,
}

impl Side {
    async fn start(waiting: u64, queues: u64) -> Result<Self> {
        let redis = Server::start(&["--slowlog-max-len", "100000"])?;
        let control = cluster::connection(redis.port()).await?;
        let begin = Instant::now();
        fill(&redis.url(), waiting, queues).await?;
        let seconds = begin.elapsed().as_secs();
        eprintln!(
            "bounds: {waiting} messages wait, beside {queues} small queues, after {seconds} s"
        );
        Ok(Self { redis, control })
    }

    async fn slowlog(&mut self, threshold_us: i64) -> Result<()> {
        let mut config = redis::cmd("CONFIG");
        config
            .arg("SET")
            .arg("slowlog-log-slower-than")
            .arg(threshold_us);
        Ok(config.exec_async(&mut self.control).await?)
    }
}

pub(super) async fn run(arguments: &Arguments, report: &mut Report) -> Result<()> {
    report.scenario("bounds");
    let (waiting, queues) = (arguments.waiting, arguments.queues);
    let mut many = Side::start(waiting, queues).await?;
    let mut few = Side::start(FEW.min(waiting), queues).await?;
    let mut measured = first_reads(arguments, &many).await?;
    for pass in 0..PASSES {
        eprintln!(
            "bounds: counts the calls of {} reads, pass {}",
            measured.len(),
            pass + 1
        );
        count(arguments, &mut many, &mut measured).await?;
    }
    eprintln!("bounds: measures the time of Redis for each read");
    time(arguments, [&mut many, &mut few], &mut measured).await?;
    report.figure("waiting messages", waiting);
    report.figure("small queues", queues);
    judge(report, &measured, queues + 1);
    Ok(())
}

/// The reads of the document, and the following page of each list.
async fn first_reads(arguments: &Arguments, side: &Side) -> Result<Vec<Measured>> {
    let serve = Process::serve(&arguments.dueq, &side.redis.url(), &[]).await?;
    let mut connection = serve.connection();
    let document = connection.get("/openapi.json").await?.expect(&[200])?;
    let mut found = Vec::new();
    for read in reads(&document.json()?)? {
        let answer = connection.get(&read.target).await?;
        let body = answer.json().unwrap_or_default();
        let next = body["next"].as_str().map(str::to_owned);
        let route = read.route.clone();
        found.push(Measured::new(read, answer.status));
        if let Some(target) = next {
            let status = connection.get(&target).await?.status;
            found.push(Measured::new(Read { route, target }, status));
        }
    }
    Ok(found)
}

/// Counts the calls of each read once, by a new process: nothing is cached.
async fn count(arguments: &Arguments, side: &mut Side, measured: &mut [Measured]) -> Result<()> {
    let serve = Process::serve(&arguments.dueq, &side.redis.url(), &[]).await?;
    let mut connection = serve.connection();
    warm(&mut connection).await?;
    side.slowlog(0).await?;
    let mut monitor = Monitor::start(side.redis.port()).await?;
    for measured in measured {
        monitor.calls().await?;
        longest_us(&mut side.control).await?;
        connection.get(&measured.read.target).await?;
        let calls: Calls = monitor.calls().await?;
        measured.add(&calls, longest_us(&mut side.control).await?);
    }
    side.slowlog(-1).await
}

/// Opens the connections to Redis, and waits until the poller knows the queues.
async fn warm(connection: &mut Connection) -> Result<()> {
    for target in [
        "/v1/queues".to_owned(),
        format!("/v1/queues/{MAIN}"),
        format!("/v1/queues/{MAIN}/messages?state=dead"),
    ] {
        connection.get(&target).await?.expect(&[200])?;
    }
    Ok(())
}

/// Measures the reads in turn on both servers. Both processes serve one queue, so that the poller asks
/// once or twice a second.
async fn time(
    arguments: &Arguments,
    sides: [&mut Side; 2],
    measured: &mut [Measured],
) -> Result<()> {
    let mut timed = Vec::new();
    for side in sides {
        let arguments_of_one = ["--queues", MAIN];
        let serve = Process::serve(&arguments.dueq, &side.redis.url(), &arguments_of_one).await?;
        let mut connection = serve.connection();
        warm(&mut connection).await?;
        timed.push((serve, connection, &mut side.control));
    }
    for round in 0..ROUNDS {
        for measured in &mut *measured {
            let mut us = [0.0; 2];
            for turn in 0..2 {
                let index = (round + turn) % 2;
                let (_, connection, control) = timed.get_mut(index).context("two servers")?;
                us[index] = redis_us(connection, control, &measured.read.target).await?;
            }
            measured.add_times(us[0], us[1]);
        }
    }
    Ok(())
}

/// The microseconds of Redis for a read.
async fn redis_us(
    connection: &mut Connection,
    control: &mut MultiplexedConnection,
    target: &str,
) -> Result<f64> {
    let (before, begin) = (Usage::read(control).await?, Instant::now());
    let mut reads = 0;
    while reads < LEAST || begin.elapsed() < ROUND {
        connection.get(target).await?;
        reads += 1;
    }
    let (_, us) = Usage::read(control).await?.of_scripts_since(&before);
    Ok(us as f64 / f64::from(reads))
}
