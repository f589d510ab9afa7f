//! Lines that are cut off three times, and sent again with the same key: every id once.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use dueq::{Client, Queue, State};
use dueq_testkit::Server;

use super::Arguments;
use super::fill::MAIN;
use super::load::Bodies;
use super::process::Process;
use dueq_testkit::report::Report;

/// The parts of the body after which it is cut off.
const CUTS: [f64; 3] = [0.3, 0.6, 0.9];
const PAGE: usize = 1_000;
const LOOK: Duration = Duration::from_millis(200);

pub(super) async fn run(arguments: &Arguments, report: &mut Report) -> Result<()> {
    report.scenario("ndjson-cut");
    let redis = Server::start(&[])?;
    let serve = Process::serve(&arguments.dueq, &redis.url(), &[]).await?;
    let queue = Client::connect(&redis.url()).await?.queue(MAIN)?;
    let lines = arguments.lines;
    let body: String = (1..=lines)
        .map(|number| format!("{{\"payload\": \"{number}\", \"delay\": \"24h\"}}\n"))
        .collect();
    let bodies = Bodies::new(
        serve.address,
        "/v1/queues/main/messages",
        "application/x-ndjson",
    );
    let bodies = bodies.with_key("nightly");
    let mut stored = Vec::new();
    for part in CUTS {
        // Most cuts are within a line.
        let bytes = (body.len() as f64 * part) as usize;
        bodies.cut(body.as_bytes(), bytes).await?;
        stored.push(settled(&queue).await?);
        eprintln!(
            "ndjson-cut: {} messages are stored after a cut at {part}",
            stored[stored.len() - 1]
        );
    }
    let begin = Instant::now();
    let answer = bodies.send(body.as_bytes()).await?.expect(&[200])?.json()?;
    let seconds = begin.elapsed().as_secs_f64();
    let count = |name: &str| answer[name].as_u64().context("a count");
    let (created, existed) = (count("created")?, count("existed")?);
    report.figure("lines", lines);
    report.figure("stored after each cut", stored.clone());
    report.figure(
        "lines a second at the end",
        (lines as f64 / seconds).round(),
    );
    let before = stored.last().copied().unwrap_or(0);
    // The last batch of a body that was cut off may be stored later.
    let sums = created + existed == lines && existed >= before;
    report.rule(
        "created and existed at the end",
        format!("{created}, {existed}"),
        "all lines",
        sums,
    );
    report.rule(
        "parts that were stored",
        stored.len(),
        "more after each cut",
        grows(&stored, lines),
    );
    let found = numbers(&queue).await?;
    let each_once = found == lines && queue.stats().await?.pushed == lines;
    report.rule(
        "different messages",
        found,
        format!("{lines}, each pushed once"),
        each_once,
    );
    Ok(())
}

/// Whether the cuts cut something off, and each body got further than the one before.
fn grows(stored: &[u64], lines: u64) -> bool {
    let further = stored.windows(2).all(|pair| pair[0] < pair[1]);
    further && stored.first() > Some(&0) && stored.last() < Some(&lines)
}

/// How many messages the queue has, once the request that was cut off has ended.
async fn settled(queue: &Queue) -> Result<u64> {
    let mut last = None;
    loop {
        let now = queue.stats().await?.scheduled;
        if now > 0 && last == Some(now) {
            return Ok(now);
        }
        last = Some(now);
        tokio::time::sleep(LOOK).await;
    }
}

/// How many different messages the queue lists, each with the id of its line.
async fn numbers(queue: &Queue) -> Result<u64> {
    let (mut numbers, mut cursor) = (HashSet::new(), None);
    loop {
        let page = queue.list(State::Scheduled, cursor.as_ref(), PAGE).await?;
        for listed in page.messages {
            let id = String::from_utf8(listed.id)?;
            let number: u64 = id.rsplit(':').next().context("a number")?.parse()?;
            ensure!(numbers.insert(number), "the list has {id} twice");
        }
        match page.next {
            Some(next) => cursor = Some(next),
            None => return Ok(numbers.len() as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cut_must_store_more_but_not_all() {
        assert!(grows(&[1, 2, 3], 4));
        assert!(!grows(&[1, 2, 4], 4) && !grows(&[0, 2, 3], 4) && !grows(&[2, 2, 3], 4));
        assert!(!grows(&[], 4));
    }
}
