//! 64 concurrent handlers of `dueq work --http --throttle-queue` that all get a 429: no start during
//! the break, then the same 64 messages first.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use dueq::{Client, Message, Queue};
use dueq_testkit::Server;
use dueq_testkit::report::{Report, ms};

use super::Arguments;
use super::receiver::{Receiver, Request};
use crate::kit::process::{Process, Start};
use crate::kit::scenarios::{alive, push};

const QUEUE: &str = "limits";
const WORKERS: usize = 4;
const HANDLERS: usize = 64;
const BREAK_S: u64 = 3;
/// Messages that wait behind the first ones.
const OTHERS: u64 = 1_000;
const STEP: Duration = Duration::from_millis(20);
const LIMIT: Duration = Duration::from_secs(60);

pub(super) async fn run(arguments: &Arguments, report: &mut Report) -> Result<()> {
    let server = Server::start(&[])?;
    let queue = Client::connect(&server.url()).await?.queue(QUEUE)?;
    // The receiver holds the requests until each handler has one.
    let receiver = Receiver::start(HANDLERS, BREAK_S).await?;
    let message = |number: u64| Message::new("x").id(number.to_string());
    push(&queue, HANDLERS as u64 + OTHERS, message).await?;
    let mut workers = Vec::new();
    for _ in 0..WORKERS {
        workers.push(worker(arguments, &server.url(), receiver.port)?);
    }
    eprintln!("throttle: {HANDLERS} handlers of {WORKERS} workers");
    let answered = || {
        let requests = receiver.requests().into_iter().take(HANDLERS);
        requests.filter(|request| request.answered_us > 0).count()
    };
    until(&mut workers, "all handlers to get a 429", async || {
        Ok(answered() == HANDLERS)
    })
    .await?;
    until(&mut workers, "the break", async || {
        Ok(queue.stats().await?.throttled >= HANDLERS as u64)
    })
    .await?;
    let failures = failures(&queue, &receiver.requests()[..HANDLERS]).await?;
    until(&mut workers, "all messages to be handled", async || {
        Ok(alive(&queue.stats().await?) == 0)
    })
    .await?;
    let stats = queue.stats().await?;
    judge(report, &receiver.requests());
    let throttled = stats.throttled;
    let text = format!("{HANDLERS}");
    report.rule("throttled", throttled, text, throttled == HANDLERS as u64);
    report.rule("failures of the throttled", failures, "0", failures == 0);
    let charged = stats.retried + stats.crashed + stats.died;
    report.rule("retries, crashes and deaths", charged, "0", charged == 0);
    let all = HANDLERS as u64 + OTHERS;
    report.rule("acked", stats.acked, all.to_string(), stats.acked == all);
    Ok(())
}

fn judge(report: &mut Report, requests: &[Request]) {
    let (firsts, rest) = requests.split_at(HANDLERS.min(requests.len()));
    let asked_us = firsts.iter().map(|one| one.answered_us).max().unwrap_or(0);
    let begun_us = rest.first().map_or(0, |one| one.arrived_us);
    let pause_us = begun_us.saturating_sub(asked_us);
    let (name, wanted_us) = ("last 429 to next start, ms", BREAK_S * 1_000_000);
    let text = format!("at least {}", ms(wanted_us));
    report.rule(name, ms(pause_us), text, pause_us >= wanted_us);
    let late_us = pause_us.saturating_sub(wanted_us);
    report.figure("first start after the break, ms late", ms(late_us));
    let again = same(firsts, rest);
    let text = format!("the {HANDLERS} throttled ones");
    report.rule(
        "first starts after the break",
        again,
        text,
        again == HANDLERS,
    );
}

/// How many messages of `firsts` are also among as many first ones of `rest`.
fn same(firsts: &[Request], rest: &[Request]) -> usize {
    let ids = |requests: &[Request]| -> BTreeSet<String> {
        requests.iter().map(|request| request.id.clone()).collect()
    };
    let next = &rest[..firsts.len().min(rest.len())];
    ids(firsts).intersection(&ids(next)).count()
}

fn worker(arguments: &Arguments, url: &str, port: u16) -> Result<Process> {
    Start::program(&arguments.dueq)
        .args(["work", QUEUE, "--throttle-queue", "--allow-private"])
        .args(["--http", &format!("http://127.0.0.1:{port}/")])
        .args(["--concurrency", &(HANDLERS / WORKERS).to_string()])
        .env("REDIS_URL", url)
        .env("RUST_LOG", "error")
        .env(
            "DUEQ_WEBHOOK_SECRET",
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        )
        .start()
}

/// Waits until `look` returns true.
async fn until(
    workers: &mut [Process],
    what: &str,
    look: impl AsyncFn() -> Result<bool>,
) -> Result<()> {
    let begin = Instant::now();
    while !look().await? {
        for worker in workers.iter_mut() {
            if let Some(status) = worker.ended()? {
                anyhow::bail!("a worker ended: {status}");
            }
        }
        ensure!(begin.elapsed() < LIMIT, "waited in vain for {what}");
        tokio::time::sleep(STEP).await;
    }
    Ok(())
}

/// The failures and crashes that these messages are charged with.
async fn failures(queue: &Queue, requests: &[Request]) -> Result<u32> {
    let mut failures = 0;
    for request in requests {
        let stored = queue.get(&request.id).await?;
        let stored = stored.with_context(|| format!("message {} is gone", request.id))?;
        failures += stored.failures + stored.crashes;
    }
    Ok(failures)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(numbers: impl Iterator<Item = u64>) -> Vec<Request> {
        numbers
            .map(|number| Request {
                id: number.to_string(),
                arrived_us: number,
                answered_us: number,
            })
            .collect()
    }

    #[test]
    fn another_message_among_the_first_ones_is_found() {
        let firsts = requests(0..4);
        assert_eq!(same(&firsts, &requests([3, 1, 0, 2, 7].into_iter())), 4);
        assert_eq!(same(&firsts, &requests([3, 1, 7, 0, 2].into_iter())), 3);
        assert_eq!(same(&firsts, &requests([3].into_iter())), 1);
    }

    #[test]
    fn early_start_breaks_the_rule() {
        let mut all = requests(0..64).into_iter().chain(requests(0..64));
        let mut all: Vec<_> = all.by_ref().collect();
        all[63].answered_us = 1_000_000;
        let broken = |all: &[Request]| {
            let mut report = Report::default();
            report.scenario("throttle");
            judge(&mut report, all);
            report.failures(false).len()
        };
        all[64].arrived_us = 3_999_999;
        assert_eq!(broken(&all), 1);
        all[64].arrived_us = 4_000_000;
        assert_eq!(broken(&all), 0);
    }
}
