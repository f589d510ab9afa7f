//! Fills Redis for a run: one queue with many waiting messages, and many small queues.

use std::time::{Duration, SystemTime};

use anyhow::{Result, ensure};
use dueq::outcomes::SettleOutcome;
use dueq::schedules::Schedule;
use dueq::{Client, Message, Queue};
use dueq_bench_driver::unix_us;
use redis::Value;
use tokio::task::JoinSet;

use dueq_testkit::scripts::{Raw, texts};

/// The queue with the waiting messages.
pub(super) const MAIN: &str = "main";
/// The name of a schedule in the main queue.
pub(super) const SCHEDULE: &str = "nightly";
/// The number of its dead messages; below, of those in other states.
const DEAD: usize = 1_500;
const LEASED: usize = 300;
const READY: usize = 300;
/// The waiting messages are due within these hours, from the day after tomorrow on.
const FROM_MS: u64 = 48 * 3_600_000;
const SPREAD_MS: u64 = 24 * 3_600_000;
const HOUR: Duration = Duration::from_secs(3_600);
/// The items of a call; below, the calls of a pipeline.
const ITEMS: u64 = 1_000;
const CALLS: u64 = 8;
/// The number of messages of a small queue.
const FEW: usize = 10;
const PAYLOAD: usize = 100;
const SEED: u64 = 1;

/// Fills an empty server: `waiting` messages in the main queue, and this number of small queues.
pub(super) async fn fill(url: &str, waiting: u64, queues: u64) -> Result<()> {
    let server = url.to_owned();
    tokio::task::spawn_blocking(move || push_waiting(&server, waiting)).await??;
    let client = Client::connect(url).await?;
    other_states(&client.queue(MAIN)?).await?;
    ready(url)?;
    for number in 0..queues {
        let queue = client.queue(&format!("small-{number:04}"))?;
        let messages = (0..FEW).map(|number| message(number).due(HOUR));
        for pushed in queue.push_many(messages).await {
            pushed?;
        }
    }
    Ok(())
}

/// The id of a waiting message.
fn id(number: u64) -> String {
    format!("w{number:022}")
}

/// Pushes the waiting messages by the script itself: several times as fast as the library in a
/// debug build.
fn push_waiting(url: &str, waiting: u64) -> Result<()> {
    let mut raw = Raw::connect(url, None)?;
    let (mut random, payload) = (fastrand::Rng::with_seed(SEED), "x".repeat(PAYLOAD));
    let from_ms = unix_us() / 1_000 + FROM_MS;
    let mut first = 0;
    while first < waiting {
        let mut calls = redis::pipe();
        let end = waiting.min(first + CALLS * ITEMS);
        while first < end {
            let items = first..end.min(first + ITEMS);
            first = items.end;
            let mut words = vec![String::new()];
            for number in items {
                let due_ms = from_ms + random.u64(..SPREAD_MS);
                words.extend([
                    id(number),
                    due_ms.to_string(),
                    payload.clone(),
                    String::new(),
                ]);
            }
            calls.add_command(raw.prepared("push", MAIN, "", &words)?);
        }
        for reply in raw.pipelined(&calls)? {
            let results = texts(reply.get(1).unwrap_or(&Value::Nil))?;
            ensure!(
                results.iter().all(|result| result == "CREATED"),
                "push: {results:?}"
            );
        }
        if first % 1_000_000 == 0 {
            eprintln!("{first} of {waiting} messages are pushed");
        }
    }
    Ok(())
}

fn message(number: usize) -> Message {
    Message::new("x".repeat(PAYLOAD)).id(format!("m{number}"))
}

/// Adds dead and leased messages, and a schedule.
async fn other_states(queue: &Queue) -> Result<()> {
    for pushed in queue.push_many((0..DEAD + LEASED).map(message)).await {
        pushed?;
    }
    let mut granted = Vec::new();
    while granted.len() < DEAD + LEASED {
        let claimed = queue.claim(1_000, HOUR).await?;
        ensure!(!claimed.is_empty(), "the claim granted nothing");
        granted.extend(claimed);
    }
    let leased = granted.split_off(DEAD);
    let mut buried = JoinSet::new();
    for (number, delivery) in granted.into_iter().enumerate() {
        let reason = format!("the bank is closed, branch {}", number % 20);
        buried.spawn(async move { delivery.bury(&reason).await });
    }
    while let Some(settled) = buried.join_next().await {
        ensure!(settled?? == SettleOutcome::Done, "a delivery was lost");
    }
    // Forget the deliveries, because dropping them would end their leases.
    leased.into_iter().for_each(std::mem::forget);
    let first = SystemTime::now() + 48 * HOUR;
    let schedule = Schedule::every(24 * HOUR).name(SCHEDULE).anchor(first);
    queue.schedules("ops").apply([schedule]).await?;
    Ok(())
}

/// Makes ready messages: due messages that a promote has moved, and no node claims.
fn ready(url: &str) -> Result<()> {
    let mut raw = Raw::connect(url, None)?;
    // A minute ago: a promote would leave a message that is due in this very millisecond.
    let due_ms = (unix_us() / 1_000 - 60_000).to_string();
    let mut words = vec![String::new()];
    for number in 0..READY {
        words.extend([
            format!("r{number}"),
            due_ms.clone(),
            "x".to_owned(),
            String::new(),
        ]);
    }
    let mut calls = redis::pipe();
    calls.add_command(raw.prepared("push", MAIN, "", &words)?);
    calls.add_command(raw.prepared("promote", MAIN, "", &[READY.to_string()])?);
    raw.pipelined(&calls)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use dueq_testkit::Server;

    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn queue_has_messages_in_every_state() -> Result<()> {
        let server = Server::start(&[])?;
        fill(&server.url(), 8_500, 2).await?;
        let client = Client::connect(&server.url()).await?;
        let stats = client.queue(MAIN)?.stats().await?;
        assert_eq!(
            stats.scheduled,
            8_500 + 1,
            "with the timer of the schedule: {stats:?}"
        );
        let found = [stats.ready, stats.leased, stats.dead].map(|count| count as usize);
        assert_eq!(found, [READY, LEASED, DEAD]);
        assert_eq!(client.queues().await?, [MAIN, "small-0000", "small-0001"]);
        let known = super::super::document::KNOWN
            .iter()
            .find(|(name, _)| *name == "id");
        assert_eq!(known.map(|(_, value)| *value), Some(&*id(0)));
        Ok(())
    }
}
