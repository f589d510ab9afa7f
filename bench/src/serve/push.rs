//! Measures single pushes over HTTP and on the floor, alternately on one Redis: CPU time of both
//! servers and of Redis.

use anyhow::{Context, Result};
use dueq::{Client, Message};
use dueq_testkit::Server;
use serde_json::json;
use tokio::process::Command;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Arguments;
use super::fill::MAIN;
use super::load::pushes;
use super::process::Process;
use crate::curves::median;
use dueq_testkit::report::{Report, rounded};

const CONNECTIONS: usize = 64;
/// The number of pushes of a round, for each side.
const PUSHES: u64 = 20_000;
const ROUNDS: usize = 5;
/// The largest allowed ratio of a push's CPU time to the floor's.
const MOST_RATIO: f64 = 2.0;

/// What is measured. The floor is measured with a pool of connections, and with one shared
/// connection, which costs it less.
const ROWS: [&str; 6] = [
    "PUT",
    "POST",
    "floor, PUT",
    "floor, POST",
    "floor with one connection, PUT",
    "library",
];

/// The cost of one push, in microseconds.
#[derive(Debug, Clone, Copy)]
struct Cost {
    /// CPU time of the server of HTTP.
    cpu: f64,
    /// CPU time of Redis.
    redis: f64,
    /// The wall time of the round divided by its pushes.
    wall: f64,
}

pub(super) async fn run(arguments: &Arguments, report: &mut Report) -> Result<()> {
    report.scenario("push");
    let redis = Server::start(&[])?;
    let serve = Process::serve(&arguments.dueq, &redis.url(), &[]).await?;
    let floor = floor_of(&redis.url(), &[]).await?;
    let shared = floor_of(&redis.url(), &["--shared"]).await?;
    let library = Client::connect(&redis.url()).await?;
    let mut rows = ROWS.map(|name| (name, Vec::new()));
    for round in 0..=ROUNDS {
        eprintln!("push: round {round} of {ROUNDS}");
        for (index, (name, costs)) in rows.iter_mut().enumerate() {
            let process = match index {
                0 | 1 => &serve,
                2 | 3 => &floor,
                _ => &shared,
            };
            let method = if name.ends_with("PUT") { "PUT" } else { "POST" };
            let prefix = format!("p{round}-");
            let (cpu, of_redis) = (
                process.cpu_us()?,
                dueq_testkit::process::cpu_us(redis.pid())?,
            );
            let wall = match *name {
                "library" => by_library(&library).await?,
                _ => pushes(process.address, CONNECTIONS, PUSHES, &prefix, method).await?,
            };
            let each = |us: f64| us / PUSHES as f64;
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
    judge(report, &rows);
    Ok(())
}

/// Starts the floor, which is a hidden subcommand of this program.
pub(super) async fn floor_of(url: &str, arguments: &[&str]) -> Result<Process> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["serve-floor", url]).args(arguments);
    Process::start(command).await.context("the floor")
}

/// Pushes by the library, with as many calls in flight as over HTTP.
async fn by_library(client: &Client) -> Result<std::time::Duration> {
    let queue = client.queue(MAIN)?;
    let (begin, mut tasks) = (Instant::now(), JoinSet::new());
    for _ in 0..CONNECTIONS {
        let queue = queue.clone();
        tasks.spawn(async move {
            for _ in 0..PUSHES / CONNECTIONS as u64 {
                let due = std::time::Duration::from_secs(48 * 3_600);
                queue
                    .push_message(Message::new("x".repeat(100)).due(due))
                    .await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(begin.elapsed())
}

fn judge(report: &mut Report, rows: &[(&'static str, Vec<Cost>); 6]) {
    let of = |costs: &[Cost], of: fn(&Cost) -> f64| {
        let mut figures: Vec<_> = costs.iter().map(of).collect();
        median(&mut figures)
    };
    for (name, costs) in rows {
        let is_library = *name == "library";
        let cpu = (!is_library).then(|| rounded(of(costs, |cost| cost.cpu)));
        report.figure(
            name,
            json!({
                "us": cpu,
                "redis_us": rounded(of(costs, |cost| cost.redis)),
                "per_s": (1e6 / of(costs, |cost| cost.wall)).round(),
            }),
        );
    }
    for (name, ours, floor) in [
        ("PUT, times of the floor", &rows[0].1, &rows[2].1),
        ("POST, times of the floor", &rows[1].1, &rows[3].1),
        (
            "PUT, times of the floor with one connection",
            &rows[0].1,
            &rows[4].1,
        ),
    ] {
        // Ratios within a round, because the machine then has one speed for both sides.
        let mut ratios: Vec<_> = ours
            .iter()
            .zip(floor)
            .map(|(ours, floor)| ours.cpu / floor.cpu)
            .collect();
        let ratio = rounded(median(&mut ratios));
        report.goal(
            name,
            ratio,
            format!("at most {MOST_RATIO}"),
            ratio <= MOST_RATIO,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratio_is_the_median_of_rounds() {
        let cost = |cpu| Cost {
            cpu,
            redis: 1.0,
            wall: 10.0,
        };
        let missed = |ours: [f64; 3]| {
            let ours: Vec<_> = ours.into_iter().map(cost).collect();
            let floor: Vec<_> = [10.0, 20.0, 40.0].into_iter().map(cost).collect();
            let mut rows = ROWS.map(|name| (name, vec![cost(0.0)]));
            (rows[0].1, rows[1].1) = (ours.clone(), ours);
            (rows[2].1, rows[3].1, rows[4].1) = (floor.clone(), floor.clone(), floor);
            let mut report = Report::default();
            report.scenario("push");
            judge(&mut report, &rows);
            report.failures(true).len()
        };
        assert_eq!(missed([99.0, 40.0, 80.0]), 0);
        assert_eq!(missed([21.0, 41.0, 10.0]), 3);
    }
}
