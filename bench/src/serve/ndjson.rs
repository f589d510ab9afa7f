//! Measures pushes of lines over HTTP and `push_many` of the library, alternately on one Redis.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use dueq::{Client, Message, Queue};
use dueq_testkit::Server;
use serde_json::json;

use super::Arguments;
use super::fill::MAIN;
use super::load::{Bodies, body};
use super::process::Process;
use crate::curves::median;
use dueq_testkit::report::{Report, rounded};

const LINES: usize = 200_000;
const ROUNDS: usize = 5;
/// The least ratio of lines per second to the library's messages per second.
const LEAST_RATIO: f64 = 0.6;

pub(super) async fn run(arguments: &Arguments, report: &mut Report) -> Result<()> {
    report.scenario("ndjson");
    let redis = Server::start(&[])?;
    let serve = Process::serve(&arguments.dueq, &redis.url(), &[]).await?;
    let queue = Client::connect(&redis.url()).await?.queue(MAIN)?;
    let lines = format!("{}\n", body()).repeat(LINES).into_bytes();
    let bodies = Bodies::new(
        serve.address,
        "/v1/queues/main/messages",
        "application/x-ndjson",
    );
    let (mut by_http, mut by_library, mut cpu) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        eprintln!("ndjson: round {round} of {ROUNDS}");
        let before = serve.cpu_us()?;
        let begin = Instant::now();
        let answer = bodies.send(&lines).await?.expect(&[200])?.json()?;
        let http = LINES as f64 / begin.elapsed().as_secs_f64();
        ensure!(answer["created"] == LINES, "{answer}");
        let of_serve = (serve.cpu_us()? - before) / LINES as f64;
        let library = library(&queue).await?;
        // The first round is not counted: it opens connections and loads scripts.
        if round > 0 {
            by_http.push(http);
            by_library.push(library);
            cpu.push(of_serve);
        }
    }
    judge(report, &by_http, &by_library);
    report.figure("processor time of a line, us", rounded(median(&mut cpu)));
    Ok(())
}

/// Messages per second that the library pushes by `push_many`.
async fn library(queue: &Queue) -> Result<f64> {
    let due = Duration::from_secs(48 * 3_600);
    let message = |_| Message::new("x".repeat(100)).due(due);
    let messages: Vec<_> = (0..LINES).map(message).collect();
    let begin = Instant::now();
    for pushed in queue.push_many(messages).await {
        pushed?;
    }
    Ok(LINES as f64 / begin.elapsed().as_secs_f64())
}

fn judge(report: &mut Report, by_http: &[f64], by_library: &[f64]) {
    let middle = |figures: &[f64]| json!(median(&mut figures.to_vec()).round());
    report.figure("lines a second", middle(by_http));
    report.figure("messages a second of push_many", middle(by_library));
    let ratios = by_http
        .iter()
        .zip(by_library)
        .map(|(http, library)| http / library);
    let ratio = rounded(median(&mut ratios.collect::<Vec<_>>()));
    let wanted = format!("at least {LEAST_RATIO}");
    report.goal("times of push_many", ratio, wanted, ratio >= LEAST_RATIO);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_need_six_tenths_of_the_librarys_speed() {
        let missed = |by_http: &[f64]| {
            let mut report = Report::default();
            report.scenario("ndjson");
            judge(&mut report, by_http, &[100.0, 200.0, 50.0]);
            report.failures(true).len()
        };
        assert_eq!(
            (missed(&[1.0, 120.0, 99.0]), missed(&[99.0, 118.0, 1.0])),
            (0, 1)
        );
    }
}
