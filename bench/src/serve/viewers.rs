//! Measures what a hundred viewers cost Redis, compared with one.

use std::time::Duration;

use anyhow::{Context, Result};
use dueq_testkit::{Server, cluster};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::Arguments;
use super::calls::Usage;
use super::fill::fill;
use super::http::Connection;
use super::process::Process;
use crate::curves::median;
use dueq_testkit::report::{Report, rounded};

const VIEWERS: u64 = 100;
/// The number of queues that each viewer follows, while it reads the list and the metrics each
/// second.
const FOLLOWED: u64 = 20;
const WAITING: u64 = 10_000;
const QUEUES: u64 = 999;
const ROUNDS: usize = 3;
/// How long to wait until the poller has asked every queue since its pause, at 100 a second.
const SETTLING: Duration = Duration::from_secs(12);
const PHASE: Duration = Duration::from_secs(6);
/// The largest allowed ratio of Redis calls with all viewers to those with one.
const MOST_RATIO: f64 = 1.1;

/// The cost of a second: script calls, their microseconds, and Redis's CPU time.
#[derive(Debug, Clone, Copy)]
struct Cost {
    calls: f64,
    us: f64,
    cpu_us: f64,
}

pub(super) async fn run(arguments: &Arguments, report: &mut Report) -> Result<()> {
    report.scenario("viewers");
    let redis = Server::start(&[])?;
    fill(&redis.url(), WAITING, QUEUES).await?;
    let serve = Process::serve(&arguments.dueq, &redis.url(), &[]).await?;
    // The first viewer stays, because the poller pauses without any viewer.
    let mut first = views(&serve, 0..1);
    tokio::time::sleep(SETTLING).await;
    let (mut one, mut all) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        eprintln!("viewers: round {}", round + 1);
        one.push(cost(&redis, &mut first).await?);
        let mut others = views(&serve, 1..VIEWERS);
        tokio::time::sleep(Duration::from_secs(1)).await;
        all.push(cost(&redis, &mut others).await?);
    }
    judge(report, &one, &all);
    Ok(())
}

/// Starts viewers, each like a page in a browser. They end when the set is dropped.
fn views(serve: &Process, numbers: std::ops::Range<u64>) -> JoinSet<Result<()>> {
    numbers
        .map(|number| view(serve.connection(), serve.connection(), number))
        .collect()
}

/// Follows some queues, for each viewer others, and reads the list and the metrics each second.
async fn view(mut events: Connection, mut pages: Connection, number: u64) -> Result<()> {
    let names =
        (0..FOLLOWED).map(|queue| format!("small-{:04}", (number * FOLLOWED + queue) % QUEUES));
    let names = names.collect::<Vec<_>>().join(",");
    let request = events.head("GET", &format!("/v1/events?queues={names}"), &[], None);
    events.write(&request).await?;
    let mut seconds = interval(Duration::from_secs(1));
    seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            followed = events.follow() => followed?,
            _ = seconds.tick() => {
                pages.get("/v1/queues?limit=1000").await?.expect(&[200])?;
                pages.get("/metrics").await?.expect(&[200])?;
            }
        }
    }
}

/// Measures Redis for some seconds, while these viewers look.
async fn cost(redis: &Server, viewers: &mut JoinSet<Result<()>>) -> Result<Cost> {
    let mut control = cluster::connection(redis.port()).await?;
    let (begin, cpu) = (Instant::now(), dueq_testkit::process::cpu_us(redis.pid())?);
    let before = Usage::read(&mut control).await?;
    tokio::select! {
        () = tokio::time::sleep(PHASE) => {}
        Some(ended) = viewers.join_next() => ended?.context("a viewer")?,
    }
    let (calls, us) = Usage::read(&mut control).await?.of_scripts_since(&before);
    let cpu_us = dueq_testkit::process::cpu_us(redis.pid())? - cpu;
    let seconds = begin.elapsed().as_secs_f64();
    Ok(Cost {
        calls: calls as f64 / seconds,
        us: us as f64 / seconds,
        cpu_us: cpu_us / seconds,
    })
}

fn judge(report: &mut Report, one: &[Cost], all: &[Cost]) {
    let ratio = |of: fn(&Cost) -> f64| {
        let [mut all, mut one] = [all, one].map(|costs| costs.iter().map(of).collect::<Vec<_>>());
        rounded(median(&mut all) / median(&mut one))
    };
    let mut calls: Vec<_> = one.iter().map(|cost| cost.calls).collect();
    report.figure(
        "calls a second with one viewer",
        rounded(median(&mut calls)),
    );
    let calls = ratio(|cost| cost.calls);
    let wanted = format!("at most {MOST_RATIO}");
    report.rule(
        "calls with 100, times",
        calls,
        wanted.clone(),
        calls <= MOST_RATIO,
    );
    let us = ratio(|cost| cost.us);
    report.goal(
        "time of scripts with 100, times",
        us,
        wanted.clone(),
        us <= MOST_RATIO,
    );
    let cpu = ratio(|cost| cost.cpu_us);
    report.goal(
        "processor time of Redis with 100, times",
        cpu,
        wanted,
        cpu <= MOST_RATIO,
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_has_calls_as_a_rule_and_times_as_goals() {
        let cost = |calls, us| Cost {
            calls,
            us,
            cpu_us: us,
        };
        let failures = |all: Cost, strict| {
            let mut report = Report::default();
            report.scenario("viewers");
            judge(&mut report, &[cost(100.0, 10.0); 3], &[all; 3]);
            report.failures(strict)
        };
        assert!(failures(cost(110.0, 11.0), true).is_empty());
        assert_eq!(failures(cost(110.0, 12.0), false), Vec::<String>::new());
        assert_eq!(failures(cost(110.0, 12.0), true).len(), 2);
        assert!(failures(cost(111.0, 10.0), false)[0].contains("calls with 100"));
    }
}
