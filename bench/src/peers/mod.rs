//! Measures dueq beside other delay queues.

pub(crate) mod driver;
pub(crate) mod measured;
mod report;
pub(crate) mod server;
pub(crate) mod systems;
pub(crate) mod workload;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Result, bail};

use crate::unless_interrupted;
use server::Server;
use systems::{Kind, System, chosen};
use workload::{Plan, Workload};

/// Measures dueq beside other delay queues.
///
/// Each runs as a program of its own, on a private server of its own, and they take turns. bench/peers/install installs the
/// others. Exits with 1 unless those that a comparison needs were all measured.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Fewer rounds and no long ones: under 15 minutes
    #[arg(long)]
    quick: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Only these systems
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    only: Vec<String>,
    /// Only these workloads
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    workloads: Vec<Workload>,
    /// How many rounds of each workload; 0 for as many as it deserves
    #[arg(long, default_value_t = 0)]
    rounds: usize,
    /// Use this server, which must be empty and is emptied, instead of private ones
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// Also write the JSON to this file, with the curves for `plot`
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
}

#[tokio::main]
pub(crate) async fn run(arguments: &Arguments) -> Result<()> {
    unless_interrupted(measure(arguments)).await
}

async fn measure(arguments: &Arguments) -> Result<()> {
    let start = Instant::now();
    let mut systems = start_all(&chosen(&arguments.only)?, arguments.server.as_deref()).await?;
    let mut plan = Plan::new(arguments.quick);
    for workload in Workload::all(&arguments.workloads, arguments.quick) {
        let rounds = if arguments.rounds == 0 {
            workload.rounds(arguments.quick)
        } else {
            arguments.rounds
        };
        for round in 0..rounds {
            eprintln!(
                "{:>4} s  {workload}, round {} of {rounds}",
                start.elapsed().as_secs(),
                round + 1
            );
            for system in &mut systems {
                system.clear().await?;
            }
            for stage in 0..workload.stages() {
                for system in systems.iter_mut().filter(|system| workload.suits(system)) {
                    system.attempt(workload, stage, &mut plan).await;
                }
            }
        }
    }
    for system in &mut systems {
        system.clear().await?;
    }
    let mut server = None;
    for system in &mut systems {
        server = server.or(system.server.version().await?);
    }
    let report = report::Report::new(&systems, server, arguments.quick, start.elapsed());
    if let Some(file) = &arguments.save {
        std::fs::write(file, format!("{:#}\n", report.json(true)))?;
    }
    if arguments.json {
        println!("{:#}", report.json(false));
    } else {
        println!("{}", report.table());
    }
    if !report.is_complete() {
        bail!("not complete: {}", report.missing());
    }
    Ok(())
}

async fn start_all(kinds: &[&'static Kind], server: Option<&str>) -> Result<Vec<System>> {
    if let Some(url) = server {
        Server::expect_empty(url).await?;
    }
    let mut systems = Vec::new();
    for kind in kinds {
        match System::start(kind, server).await {
            Ok(system) => {
                eprintln!("{}: ready", kind.key);
                systems.push(system);
            }
            Err(error) => eprintln!("{}: skipped: {error:#}", kind.key),
        }
    }
    Ok(systems)
}
