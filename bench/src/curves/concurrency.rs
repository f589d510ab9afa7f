//! Measures the throughput by the number of callers and of handlers.

use std::time::Duration;

use anyhow::Result;
use dueq_bench_driver::{Dues, Request};
use serde_json::{Value, json};

use super::Output;
use crate::peers::systems::{System, chosen};
use crate::peers::workload::{enough_for, push::in_an_hour};

const CALLERS: [usize; 10] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];
/// How long a figure is measured, in seconds; below, the number of repetitions.
const LENGTH_S: f64 = 0.8;
const ROUNDS: usize = 3;
const PATIENCE: Duration = Duration::from_secs(60);

/// Pushes a second by the number of callers, and whole lives a second by the number of handlers.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Only these systems
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "NAME,...",
        default_value = "dueq,floor"
    )]
    only: Vec<String>,
    #[command(flatten)]
    output: Output,
}

#[tokio::main]
pub(crate) async fn run(arguments: &Arguments) -> Result<()> {
    let mut systems = Vec::new();
    for kind in chosen(&arguments.only)? {
        systems.push((System::start(kind, None).await?, Vec::<Value>::new()));
    }
    for callers in CALLERS {
        let mut best = vec![(0.0_f64, 0.0_f64); systems.len()];
        for _ in 0..ROUNDS {
            for ((system, _), best) in systems.iter_mut().zip(&mut best) {
                let (push, life) = (push(system, callers).await?, life(system, callers).await?);
                *best = (best.0.max(push), best.1.max(life));
            }
        }
        for ((system, points), (push, life)) in systems.iter_mut().zip(best) {
            eprintln!(
                "{callers:>4} {}: push {push:.0}/s, life {life:.0}/s",
                system.kind.key
            );
            points.push(json!({ "callers": callers, "push_per_s": push, "life_per_s": life }));
        }
    }
    let points: Vec<_> = systems
        .iter()
        .map(|(system, points)| json!({ "system": system.kind.key, "points": points }))
        .collect();
    arguments
        .output
        .write(&json!({ "curve": "concurrency", "systems": points }))
}

/// The number of pushes, in proportion to those of 64 callers: each caller waits for its round
/// trips.
fn number(system: &System, callers: usize) -> u64 {
    let share = (callers as f64 / 64.0).min(1.0);
    enough_for(system.measured.push_c64_per_s.about() * share, LENGTH_S)
}

async fn push(system: &mut System, callers: usize) -> Result<f64> {
    let n = number(system, callers);
    system.clear().await?;
    system.open().await?;
    let reply = system
        .ask(&Request::Push {
            n,
            concurrency: callers,
            due: in_an_hour(),
        })
        .await?;
    system.close().await?;
    Ok(n as f64 / reply.seconds())
}

async fn life(system: &mut System, handlers: usize) -> Result<f64> {
    let n = enough_for(system.measured.life_per_s.about(), LENGTH_S / 2.0);
    system.clear().await?;
    system.open().await?;
    system
        .ask(&Request::Work {
            concurrency: handlers,
        })
        .await?;
    let push = system
        .ask(&Request::Bulk {
            n,
            batch: 0,
            due: Dues::default(),
        })
        .await?;
    let drain = system.drain(n, PATIENCE, false).await?;
    system.close().await?;
    Ok(n as f64 * 1e6 / (drain.to_us - push.from_us) as f64)
}
