//! A million connections, each closed after 30 seconds of silence; every packet resets a timer.
//!
//! The same load runs on `dueq::timers` and on common alternatives, one after the other, each in
//! its own process. The example needs no Redis.
//!
//! `cargo run --release --example idle_connections`

mod traffic;
mod ways;

use std::process::{Command, Stdio};

use anyhow::{Result, ensure};
use clap::{Parser, ValueEnum};
use serde::{Deserialize, Serialize};

/// Closes idle connections in five ways, under the same load.
#[derive(Parser, Clone)]
struct Args {
    /// Connections that are open at first; a closed one opens again with its next packet
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..))]
    connections: u32,
    /// Duration of each run
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Seconds of silence after which a connection is closed
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// Packets per second, to random connections [default: a fifth of the connections]
    #[arg(long, value_name = "N")]
    packets: Option<u32>,
    /// Print one JSON object per line for each way
    #[arg(long)]
    json: bool,
    /// Run only this way, in this process
    #[arg(long, hide = true)]
    way: Option<Way>,
}

/// The timer mechanism under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Way {
    /// No timers: the cost of the load alone
    Nothing,
    /// `dueq::timers`
    Dueq,
    /// A map of the last packets, scanned every second
    Scan,
    /// A task with a tokio timeout for each connection
    Sleeps,
    /// A ring of sets, one for each second of the limit, and a map from connection to set
    Ring,
}

/// The results of a way.
#[derive(Serialize, Deserialize)]
struct Report {
    way: Way,
    connections: u32,
    packets_per_second: f64,
    resets_per_second: f64,
    closed: u64,
    /// Connections closed too early.
    wrong: u64,
    /// Connections still open more than three seconds after their limit.
    missed: u64,
    /// Greatest delay between the limit of a connection and its close.
    latest_ms: f64,
    bytes_per_connection: Option<f64>,
    /// Share of one core.
    cpu_percent: Option<f64>,
}

fn main() -> Result<()> {
    let args = Args::parse();
    if let Some(way) = args.way {
        println!("{}", serde_json::to_string(&ways::run(way, &args)?)?);
        return Ok(());
    }
    if !args.json {
        let Args {
            connections,
            limit,
            seconds,
            ..
        } = args;
        println!(
            "{connections} connections, closed after {limit} s of silence; each way runs for {seconds} s"
        );
        println!(
            "              resets/s     closed  wrong  missed  at most late  B/connection  CPU of a core"
        );
    }
    for &way in Way::value_variants() {
        let report = in_child(way)?;
        if args.json {
            println!("{}", serde_json::to_string(&report)?);
        } else {
            println!("{}", line(&report));
        }
        ensure!(
            way != Way::Dueq || report.wrong == 0,
            "dueq closed {} early",
            report.wrong
        );
    }
    Ok(())
}

/// Runs one way in its own process, so that its memory is measured separately.
fn in_child(way: Way) -> Result<Report> {
    let name = way
        .to_possible_value()
        .map(|value| value.get_name().to_owned())
        .unwrap_or_default();
    let mut child = Command::new(std::env::current_exe()?);
    child
        .args(std::env::args_os().skip(1))
        .args(["--way", &name])
        .stderr(Stdio::inherit());
    let output = child.output()?;
    ensure!(output.status.success(), "{name}: {}", output.status);
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn line(report: &Report) -> String {
    let name = match report.way {
        Way::Nothing => "load alone",
        Way::Dueq => "dueq::timers",
        Way::Scan => "map, scanned",
        Way::Sleeps => "tokio sleeps",
        Way::Ring => "ring of sets",
    };
    let Report {
        resets_per_second,
        closed,
        wrong,
        missed,
        latest_ms,
        ..
    } = report;
    let shown = |value: Option<f64>, unit| {
        value.map_or("-".to_owned(), |value| format!("{value:.1}{unit}"))
    };
    let (bytes, cpu) = (
        shown(report.bytes_per_connection, ""),
        shown(report.cpu_percent, " %"),
    );
    format!(
        "{name:12} {resets_per_second:>9.0} {closed:>10} {wrong:>6} {missed:>7} {latest_ms:>10.0} ms {bytes:>13} {cpu:>14}"
    )
}
