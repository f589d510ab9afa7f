//! A million expired messages lie before a thousand live ones. Measures how long one caller needs
//! to get through them, compared with a million ordinary messages.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::task::Poll;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use dueq::outcomes::SettleOutcome;
use dueq::{Client, Delivery, Due, Message, Queue};
use dueq_testkit::Server;
use dueq_testkit::report::{Report, rounded};

use super::Arguments;
use crate::kit::scenarios::{push, wall_us};

const LIVE: u64 = 1_000;
const AT_ONCE: usize = 64;
const LEASE: Duration = Duration::from_secs(60);
/// The first letter of the ids of expired messages.
const EXPIRED: char = 'x';
/// How long a worker may trim dead messages: a beat trims 500, so a million take half an hour.
const TRIMMING: Duration = Duration::from_secs(20);
/// If the caller gets no message for this time, the queue is stuck.
const STUCK: Duration = Duration::from_secs(600);

pub(super) async fn run(arguments: &Arguments, report: &mut Report) -> Result<()> {
    let server = Server::start(&[])?;
    let client = Client::connect(&server.url()).await?;
    let count = arguments.messages;
    let (expiring, ordinary) = (client.queue("expiring")?, client.queue("ordinary")?);
    let base_ms = wall_us() / 1_000 - 86_400_000;
    eprintln!("expiry: pushes {count} expired messages, and as many ordinary ones");
    let due = |number: u64| Due::at_ms(base_ms + number / 1_000);
    push(&expiring, count, |number| {
        let message = Message::new("x").id(format!("{EXPIRED}{number}"));
        message
            .due(due(number))
            .expires_after(Duration::from_millis(1))
    })
    .await?;
    push(&expiring, LIVE, |number| {
        Message::new("x")
            .id(format!("live{number}"))
            .due(due(count + 1_000))
    })
    .await?;
    push(&ordinary, count, |number| {
        Message::new("x").id(number.to_string()).due(due(number))
    })
    .await?;

    eprintln!("expiry: claims the live ones");
    let through_expired = drain(&expiring, LIVE).await?;
    eprintln!("expiry: claims the ordinary ones");
    let through_ordinary = drain(&ordinary, count).await?;

    let stats = expiring.stats().await?;
    let wrong = through_expired
        .ids
        .iter()
        .filter(|id| id.starts_with(EXPIRED));
    let wrong = wrong.count();
    report.rule("expired messages handed out", wrong, "0", wrong == 0);
    let live = through_expired.ids.len() as u64;
    report.rule(
        "live messages claimed",
        live,
        LIVE.to_string(),
        live == LIVE,
    );
    let (expired, dead) = (stats.expired, stats.dead);
    report.rule("expired", expired, count.to_string(), expired == count);
    report.rule(
        "dead before a worker runs",
        dead,
        count.to_string(),
        dead == count,
    );
    let (seconds, of_others) = (through_expired.seconds, through_ordinary.seconds);
    report.figure("time until all live ones are claimed, s", rounded(seconds));
    report.figure(
        "time to claim and ack as many ordinary, s",
        rounded(of_others),
    );
    let ratio = seconds / of_others;
    report.goal(
        "ratio of the two",
        rounded(ratio),
        "at most 1",
        ratio <= 1.0,
    );
    report.figure("claims that granted nothing", through_expired.empty);
    let seconds = trim(&expiring).await?;
    let stats = expiring.stats().await?;
    let (trimmed, dead) = (stats.trimmed, stats.dead);
    report.figure(
        "trimmed by the beats of a worker (dead_keep 100,000)",
        trimmed,
    );
    report.figure("time of these beats, s", rounded(seconds));
    let text = format!("{count}");
    report.rule(
        "trimmed and dead",
        trimmed + dead,
        text,
        trimmed + dead == count,
    );
    Ok(())
}

struct Drained {
    ids: BTreeSet<String>,
    /// The number of claims that returned no message.
    empty: u64,
    seconds: f64,
}

/// One caller claims and acks this number of messages.
async fn drain(queue: &Queue, count: u64) -> Result<Drained> {
    let (begin, mut last) = (Instant::now(), Instant::now());
    let mut drained = Drained {
        ids: BTreeSet::new(),
        empty: 0,
        seconds: 0.0,
    };
    while (drained.ids.len() as u64) < count {
        let deliveries = queue.claim(AT_ONCE, LEASE).await?;
        if deliveries.is_empty() {
            drained.empty += 1;
            ensure!(last.elapsed() < STUCK, "claims grant nothing any more");
            continue;
        }
        last = Instant::now();
        for delivery in &deliveries {
            let is_new = drained.ids.insert(delivery.id().into_owned());
            ensure!(is_new, "{} was granted twice", delivery.id());
        }
        ack(deliveries).await?;
    }
    drained.seconds = begin.elapsed().as_secs_f64();
    Ok(drained)
}

/// Acks all deliveries concurrently in one task, so that they share a call.
async fn ack(deliveries: Vec<Delivery>) -> Result<()> {
    let ack = |delivery: Delivery| Box::pin(async move { delivery.ack().await });
    let mut acks: Vec<_> = deliveries.into_iter().map(ack).collect();
    let mut settled = Vec::new();
    poll_fn(|context| {
        acks.retain_mut(|ack| match ack.as_mut().poll(context) {
            Poll::Ready(result) => {
                settled.push(result);
                false
            }
            Poll::Pending => true,
        });
        match acks.is_empty() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
    for settled in settled {
        let settled = settled?;
        ensure!(settled == SettleOutcome::Done, "an ack is {settled:?}");
    }
    Ok(())
}

/// Runs a worker, whose beats trim dead messages, until enough are trimmed or `TRIMMING` is over.
/// Returns the time in seconds.
async fn trim(queue: &Queue) -> Result<f64> {
    let begin = Instant::now();
    let worker = queue.worker().spawn(|_: Delivery| async {})?;
    while begin.elapsed() < TRIMMING {
        let stats = queue.stats().await?;
        if stats.dead <= stats.keep_dead {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let seconds = begin.elapsed().as_secs_f64();
    worker.shutdown().await?;
    Ok(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the whole scenario with few messages.
    #[tokio::test]
    async fn live_message_behind_expired_ones_is_claimed() -> Result<()> {
        let server = Server::start(&[])?;
        let queue = Client::connect(&server.url()).await?.queue("expiring")?;
        let past = Due::at_ms(wall_us() / 1_000 - 10_000);
        push(&queue, 600, |number| {
            let message = Message::new("x").id(format!("{EXPIRED}{number}"));
            message.due(past).expires_after(Duration::from_millis(1))
        })
        .await?;
        let later = Due::at_ms(wall_us() / 1_000 - 5_000);
        push(&queue, 2, |number| {
            Message::new("x").id(format!("live{number}")).due(later)
        })
        .await?;
        let drained = drain(&queue, 2).await?;
        assert!(drained.ids.iter().all(|id| id.starts_with("live")));
        assert_eq!(queue.stats().await?.expired, 600);
        Ok(())
    }
}
