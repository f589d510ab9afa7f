//! `dueq-proof`: proves dueq under faults and over long times.

// A fault is a future in a future of a run; in a release build they nest deeper than 128.
#![recursion_limit = "256"]

use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use clap::{CommandFactory, Parser, Subcommand};
use dueq_proof::run::Options;
use dueq_proof::runs::{broken, chaos, limits, poison, schedules, soak, uniqueness};
use dueq_proof::{list, roles};
use tokio::signal::unix::{SignalKind, signal};

/// Proves dueq: under faults of server, processes and network, and over long times.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Print the name of each proof, its usual duration and what it shows
    #[arg(long)]
    list: bool,
    #[command(subcommand)]
    proof: Option<Proof>,
}

#[derive(Subcommand)]
enum Proof {
    /// Runs all kinds of processes under faults, and checks every guarantee from their histories;
    /// the last line of stdout is a JSON object, and the exit code is 1 if a guarantee was violated
    /// or the run is not valid
    Chaos(Box<Options>),
    Broken(broken::Arguments),
    Check(chaos::Check),
    Limits(limits::Arguments),
    Uniqueness(uniqueness::Arguments),
    Schedules(schedules::Arguments),
    Poison(poison::Arguments),
    Soak(soak::Arguments),
    /// One process of a run
    #[command(hide = true)]
    Role(Box<roles::Options>),
    #[command(hide = true)]
    NextWorker(uniqueness::WorkerArguments),
    #[command(hide = true)]
    ChainsWorker(uniqueness::WorkerArguments),
    #[command(hide = true)]
    PoisonWorker(poison::WorkerArguments),
    #[command(hide = true)]
    SoakRole(soak::RoleArguments),
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    if arguments.list {
        println!("{}", list::text());
        return Ok(ExitCode::SUCCESS);
    }
    let Some(proof) = arguments.proof else {
        Arguments::command().print_help()?;
        return Ok(ExitCode::from(2));
    };
    let mut runtime = match proof {
        Proof::Role(_) => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    let well = runtime.enable_all().build()?.block_on(async {
        let is_role = matches!(proof, Proof::Role(_));
        let proving = Box::pin(prove(proof));
        if is_role {
            return proving.await; // the process handles SIGTERM itself, to end in good order
        }
        tokio::select! {
            well = proving => well,
            ended = interrupted() => ended,
        }
    })?;
    Ok(if well {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

async fn prove(proof: Proof) -> Result<bool> {
    match proof {
        Proof::Chaos(options) => return chaos::run(&options).await,
        Proof::Broken(arguments) => return broken::run(&arguments).await,
        Proof::Check(arguments) => return chaos::check(&arguments),
        Proof::Limits(arguments) => limits::run(&arguments).await?,
        Proof::Uniqueness(arguments) => uniqueness::run(&arguments).await?,
        Proof::Schedules(arguments) => schedules::run(&arguments).await?,
        Proof::Poison(arguments) => poison::run(&arguments).await?,
        Proof::Soak(arguments) => soak::run(&arguments).await?,
        Proof::Role(options) => {
            answer_about_the_clock()?;
            Box::pin(roles::run(*options)).await?;
        }
        Proof::NextWorker(arguments) => {
            uniqueness::run_worker(&arguments, uniqueness::Role::Next).await?;
        }
        Proof::ChainsWorker(arguments) => {
            uniqueness::run_worker(&arguments, uniqueness::Role::Chains).await?;
        }
        Proof::PoisonWorker(arguments) => poison::run_worker(&arguments).await?,
        Proof::SoakRole(arguments) => soak::run_role(&arguments).await?,
    }
    Ok(true)
}

/// Waits for Ctrl-C or SIGTERM. When the proof is dropped, its servers and processes end.
async fn interrupted() -> Result<bool> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    anyhow::bail!("interrupted")
}

/// At each SIGUSR1 a process prints its wall clock, so that the harness can check a clock fault.
fn answer_about_the_clock() -> Result<()> {
    let mut signals = signal(SignalKind::user_defined1())?;
    tokio::spawn(async move {
        while signals.recv().await.is_some() {
            let now = SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default();
            println!("clock {}", now.as_millis());
        }
    });
    Ok(())
}
