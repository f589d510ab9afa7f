//! Measures what a read costs Redis with many waiting messages and queues: its calls, the longest
//! of them, and their time compared with few waiting messages.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use dueq_testkit::{Server, cluster};
use redis::aio::MultiplexedConnection;

use super::Arguments;
use super::calls::{Monitor, longest_us};
use super::document::{Read, reads};
use super::fill::{MAIN, fill};
use super::http::Connection;
use super::judge::{Measured, judge};
use super::process::{Process, thread_us};
use dueq_testkit::report::Report;

/// The number of messages that wait on the server for comparison.
const FEW: u64 = 10_000;
/// The number of passes. Each has a new process of `dueq serve`, which has nothing cached.
const PASSES: usize = 4;
const ROUNDS: usize = 7;
/// The slowlog's threshold, in microseconds: logging each shorter call would cost more than the
/// call.
const SLOW_US: i64 = 500;
/// How long a read is repeated in a round; below, the least number of repetitions.
const ROUND: Duration = Duration::from_millis(40);
const LEAST: u32 = 3;

/// A Redis with its data, and the number of its queues.
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
    let few = Side::start(FEW.min(waiting), queues).await?;
    let mut measured = first_reads(arguments, &many).await?;
    for pass in 1..=PASSES {
        eprintln!(
            "bounds: counts the calls of {} reads, pass {pass} of {PASSES}",
            measured.len()
        );
        count(arguments, &many, &mut measured).await?;
        longest(arguments, &mut many, &mut measured).await?;
    }
    eprintln!("bounds: measures the time of Redis for each read");
    time(arguments, [&many, &few], &mut measured).await?;
    report.figure("waiting messages", waiting);
    report.figure("small queues", queues);
    judge(report, &measured, queues + 1);
    Ok(())
}

/// All reads of the OpenAPI document, and the second page of each list.
async fn first_reads(arguments: &Arguments, side: &Side) -> Result<Vec<Measured>> {
    let serve = Process::serve(&arguments.dueq, &side.redis.url(), &[]).await?;
    let mut connection = serve.connection();
    let document = connection.get("/openapi.json").await?.expect(&[200])?;
    let mut found = Vec::new();
    for read in reads(&document.json()?)? {
        let answer = connection.get(&read.target).await?;
        let has_next = answer.json().is_ok_and(|body| body["next"].is_string());
        let second = has_next.then(|| read.second_page());
        for read in [Some(read), second].into_iter().flatten() {
            found.push(Measured::new(read, answer.status));
        }
    }
    Ok(found)
}

/// The address of a read on this server. That of a second page is read from the first page.
async fn target(connection: &mut Connection, read: &Read) -> Result<Option<String>> {
    if !read.is_second_page {
        return Ok(Some(read.target.clone()));
    }
    let first = connection.get(&read.target).await?.json()?;
    Ok(first["next"].as_str().map(str::to_owned))
}

/// Counts the calls of each read, made once by a new process that has nothing cached.
async fn count(arguments: &Arguments, side: &Side, measured: &mut [Measured]) -> Result<()> {
    let serve = Process::serve(&arguments.dueq, &side.redis.url(), &[]).await?;
    let mut connection = serve.connection();
    warm(&mut connection).await?;
    let mut monitor = Monitor::start(side.redis.port()).await?;
    for measured in measured {
        let target = target(&mut connection, &measured.read).await?;
        let target = target.context("the second page has gone")?;
        monitor.calls().await?;
        connection.get(&target).await?;
        measured.add_calls(&monitor.calls().await?);
    }
    Ok(())
}

/// Measures the longest call of each read. It is done without MONITOR, which makes all calls
/// slower.
async fn longest(arguments: &Arguments, side: &mut Side, measured: &mut [Measured]) -> Result<()> {
    let serve = Process::serve(&arguments.dueq, &side.redis.url(), &[]).await?;
    let mut connection = serve.connection();
    warm(&mut connection).await?;
    side.slowlog(SLOW_US).await?;
    for measured in measured {
        let Some(target) = target(&mut connection, &measured.read).await? else {
            continue;
        };
        longest_us(&mut side.control).await?;
        connection.get(&target).await?;
        measured.add_longest(longest_us(&mut side.control).await?);
    }
    side.slowlog(-1).await
}

/// Opens the server's connections to Redis, and waits until its poller knows the queues.
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

/// Measures the reads alternately on both servers. Both processes serve one queue only, so that the
/// poller asks just once or twice a second.
async fn time(arguments: &Arguments, sides: [&Side; 2], measured: &mut [Measured]) -> Result<()> {
    let mut timed = Vec::new();
    for side in sides {
        let of_one = ["--queues", MAIN];
        let serve = Process::serve(&arguments.dueq, &side.redis.url(), &of_one).await?;
        let mut connection = serve.connection();
        warm(&mut connection).await?;
        let mut targets = Vec::new();
        for measured in &*measured {
            targets.push(target(&mut connection, &measured.read).await?);
        }
        timed.push((serve, connection, targets, side.redis.pid()));
    }
    for round in 0..ROUNDS {
        for (number, measured) in measured.iter_mut().enumerate() {
            let mut us = [None; 2];
            for turn in 0..2 {
                let index = (round + turn) % 2;
                let (_, connection, targets, pid) = &mut timed[index];
                if let Some(target) = &targets[number] {
                    us[index] = Some(redis_us(connection, *pid, target).await?);
                }
            }
            if let [Some(many), Some(few)] = us {
                measured.add_times(many, few);
            }
        }
    }
    Ok(())
}

/// Redis's CPU time for a read, in microseconds. Wall time would be longer if other programs use
/// the CPU.
async fn redis_us(connection: &mut Connection, redis: u32, target: &str) -> Result<f64> {
    let (before, begin) = (thread_us(redis)?, Instant::now());
    let mut reads = 0;
    while reads < LEAST || begin.elapsed() < ROUND {
        connection.get(target).await?;
        reads += 1;
    }
    Ok((thread_us(redis)? - before) / f64::from(reads))
}
