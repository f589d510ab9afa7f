//! Measures the lateness of long polls and of a worker of the library in one run.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use dueq::{Client, Delivery, Due, Message, Queue};
use dueq_bench_driver::unix_us;
use dueq_testkit::Server;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use super::Arguments;
use super::consume::Consumer;
use super::process::Process;
use dueq_testkit::report::{Report, ms, quantile};

const POLLED: &str = "polled";
const WORKED: &str = "worked";
const PER_S: u64 = 100;
const SECONDS: u64 = 20;
/// The number of messages in the first second, which are not counted: they open connections.
const WARM_UP: u64 = PER_S;
const AHEAD_MS: u64 = 1_000;
/// The number of consumers over HTTP: while one settles, others wait for messages.
const CONSUMERS: usize = 4;
const MAX: usize = 16;
const WAIT: Duration = Duration::from_secs(2);
/// The most by which the median lateness may exceed the worker's.
const MOST_MORE_US: u64 = 2_000;

/// The lateness of each message, in microseconds.
type Lateness = Arc<Mutex<Vec<u64>>>;

pub(super) async fn run(arguments: &Arguments, report: &mut Report) -> Result<()> {
    report.scenario("poll");
    let redis = Server::start(&[])?;
    let serve = Process::serve(&arguments.dueq, &redis.url(), &[]).await?;
    let client = Client::connect(&redis.url()).await?;
    let (polled, worked) = (Lateness::default(), Lateness::default());
    let queue = client.queue(WORKED)?;
    let of_worker = Arc::clone(&worked);
    let worker = Client::connect(&redis.url())
        .await?
        .queue(WORKED)?
        .worker()
        .spawn(move |delivery: Delivery| {
            add(&of_worker, delivery.due_ms());
            async {}
        })?;
    let queues = [client.queue(POLLED)?, queue];
    let mut consumers: JoinSet<_> = (0..CONSUMERS)
        .map(|_| poll(serve.address, Arc::clone(&polled)))
        .collect();
    eprintln!("poll: pushes {PER_S} messages a second to each queue for {SECONDS} s");
    tokio::select! {
        pushed = push(&queues) => pushed?,
        Some(ended) = consumers.join_next() => ended?.context("a consumer")?,
    }
    settled(&queues).await?;
    worker.shutdown().await?;
    judge(report, &taken(&polled), &taken(&worked));
    Ok(())
}

fn add(lateness: &Lateness, due_ms: u64) {
    let us = unix_us().saturating_sub(due_ms * 1_000);
    lateness
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(us);
}

fn taken(lateness: &Lateness) -> Vec<u64> {
    std::mem::take(&mut *lateness.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Pushes alternately to both queues.
async fn push(queues: &[Queue; 2]) -> Result<()> {
    let mut ticks = interval(Duration::from_secs(1) / PER_S as u32);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    for _ in 0..WARM_UP + PER_S * SECONDS {
        ticks.tick().await;
        for queue in queues {
            let due = Due::at_ms(unix_us() / 1_000 + AHEAD_MS);
            queue
                .push_message(Message::new("x".repeat(100)).due(due))
                .await?;
        }
    }
    Ok(())
}

/// Waits for messages, and acks them.
async fn poll(address: SocketAddr, lateness: Lateness) -> Result<()> {
    let mut consumer = Consumer::new(address, POLLED);
    loop {
        let deliveries = match consumer.claim(MAX, WAIT).await {
            // The first push creates the queue.
            Err(error) if error.to_string().contains("no_such_queue") => {
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            }
            deliveries => deliveries?,
        };
        for delivery in &deliveries {
            add(&lateness, delivery["due_ms"].as_u64().context("a time")?);
        }
        if !deliveries.is_empty() {
            consumer.ack(&deliveries).await?;
        }
    }
}

/// Waits until both queues are empty.
async fn settled(queues: &[Queue; 2]) -> Result<()> {
    for queue in queues {
        loop {
            let stats = queue.stats().await?;
            if stats.scheduled + stats.ready + stats.leased == 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    Ok(())
}

fn judge(report: &mut Report, polled: &[u64], worked: &[u64]) {
    let [mut polled, mut worked] = [polled, worked].map(|all| {
        let warm = all.len().min(WARM_UP as usize);
        all[warm..].to_vec()
    });
    report.figure("messages", polled.len());
    let [of_polls, of_worker] = [&mut polled, &mut worked].map(|late| quantile(late, 0.5));
    report.figure("worker, p50, ms", ms(of_worker));
    report.figure("worker, p99, ms", ms(quantile(&mut worked, 0.99)));
    report.figure("long poll, p50, ms", ms(of_polls));
    report.figure("long poll, p99, ms", ms(quantile(&mut polled, 0.99)));
    let more = of_polls.saturating_sub(of_worker);
    let wanted = format!("at most {}", ms(MOST_MORE_US));
    report.goal(
        "long poll, p50 more than the worker, ms",
        ms(more),
        wanted,
        more <= MOST_MORE_US,
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lateness_of_the_first_second_is_not_counted() {
        let missed = |late: u64| {
            let late = [vec![9_000_000; WARM_UP as usize], vec![late; 9]].concat();
            let worker = [vec![0; WARM_UP as usize], vec![500; 9]].concat();
            let mut report = Report::default();
            report.scenario("poll");
            judge(&mut report, &late, &worker);
            report.failures(true).len()
        };
        assert_eq!((missed(2_500), missed(2_501)), (0, 1));
    }
}
