//! `dueq-chaos`: runs dueq under faults and checks the histories of its processes.

use std::cell::RefCell;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use clap::Parser;
use dueq_chaos::broken::{Broken, OF_MAPS, OF_SCHEDULES, OF_TOKENS, Program};
use dueq_chaos::check::{self, Verdict};
use dueq_chaos::queues::MOST;
use dueq_chaos::report::Report;
use dueq_chaos::run::{self, Options};
use dueq_chaos::{cluster, drills};
use dueq_chaos::{recovery, roles};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::LocalSet;

/// Runs dueq under faults of server, processes and network, and checks every guarantee from the
/// histories of all processes.
#[derive(Debug, Parser)]
enum Command {
    /// One run; the last line of stdout is a JSON object, and the exit code is 1 if a guarantee was
    /// violated or the run is not valid
    Run(Options),
    /// Checks the histories of an earlier run
    Check { folder: PathBuf },
    /// Runs with each broken script or program and prints what caught it; the exit code is 1 unless all were caught
    Broken {
        /// Only these
        names: Vec<String>,
        /// Also those that are left out by default, to save time
        #[arg(long, conflicts_with = "names")]
        all: bool,
        #[command(flatten)]
        options: BrokenOptions,
    },
    /// One process of a run
    #[command(hide = true)]
    Role(roles::Options),
}

#[derive(Debug, Clone, clap::Args)]
struct BrokenOptions {
    /// The longest run in seconds; some scripts need less
    #[arg(long, default_value_t = 20)]
    duration: u64,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many runs at a time
    #[arg(long, default_value_t = 1)]
    jobs: usize,
    /// How many queues the workers serve, 1 to 7
    #[arg(long, default_value_t = MOST)]
    queues: usize,
    #[arg(long, value_parser = run::program)]
    server: Option<PathBuf>,
}

fn main() -> Result<ExitCode> {
    let command = Command::parse();
    let mut runtime = match command {
        Command::Role(_) => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    let well = runtime.enable_all().build()?.block_on(async {
        match command {
            Command::Run(options) => tokio::select! {
                well = Box::pin(run(options)) => well,
                ended = interrupted() => ended,
            },
            Command::Check { folder } => {
                let mut verdict = check::check(&folder)?;
                if folder.join("harness.jsonl").exists() {
                    verdict.recovered_late(&recovery::of(&folder)?.late);
                }
                writeln!(std::io::stdout(), "{}", serde_json::to_string(&verdict)?)?;
                Ok(verdict.is_green())
            }
            Command::Broken {
                names,
                all,
                options,
            } => tokio::select! {
                well = Box::pin(broken(&names, all, &options)) => well,
                ended = interrupted() => ended,
            },
            Command::Role(options) => {
                answer_about_the_clock()?;
                Box::pin(roles::run(options)).await.map(|()| true)
            }
        }
    })?;
    Ok(if well {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// By Ctrl-C or SIGTERM. Dropping the run ends its server and processes.
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

async fn judge(folder: &Path) -> Result<Verdict> {
    let folder = folder.to_owned();
    tokio::task::spawn_blocking(move || check::check(&folder)).await?
}

async fn run(options: Options) -> Result<bool> {
    let ran = if options.cluster {
        cluster::run(options.clone()).await?
    } else {
        run::run(options.clone()).await?
    };
    if !options.quiet {
        eprintln!("checking the histories in {}", ran.folder.display());
    }
    let mut verdict = judge(&ran.folder).await?;
    let recoveries = recovery::of(&ran.folder)?;
    verdict.recovered_late(&recoveries.late);
    let report = Report {
        options: &options,
        ran: &ran,
        verdict: &verdict,
        recoveries: &recoveries,
    };
    let (page, json) = (report.page(), report.json());
    eprintln!("{page}");
    for path in options.report.iter().chain([&ran.folder.join("report.md")]) {
        std::fs::write(path, &page).with_context(|| format!("writing {}", path.display()))?;
    }
    if !report.is_green() {
        eprintln!("the histories and logs are in {}", ran.folder.display());
    }
    println!("{json}");
    Ok(report.is_green())
}

async fn broken(names: &[String], all: bool, options: &BrokenOptions) -> Result<bool> {
    for name in names {
        anyhow::ensure!(
            Broken::all().any(|broken| broken.name() == name),
            "there is no variant {name}"
        );
    }
    let sound = drills::run(
        options.server.clone(),
        None,
        Path::new("target/chaos/drill"),
    )
    .await?;
    anyhow::ensure!(
        sound.is_green(),
        "the drill of maps does not go well with the shipped scripts: {:?} {:?}",
        sound.invalid_because,
        sound.examples
    );
    let chosen: Vec<_> = Broken::all()
        .filter(|broken| match names {
            [] => all || !broken.is_by_hand(),
            names => names.iter().any(|name| name == broken.name()),
        })
        .collect();
    let (count, left) = (chosen.len(), Rc::new(RefCell::new(chosen.into_iter())));
    // Each job takes one variant after the other from the same list.
    let jobs = LocalSet::new();
    let running: Vec<_> = (0..options.jobs.max(1))
        .map(|_| {
            let (left, options) = (Rc::clone(&left), options.clone());
            let next = move || left.borrow_mut().next();
            jobs.spawn_local(async move {
                let mut caught = 0;
                while let Some(broken) = next() {
                    caught += usize::from(is_caught(&broken, &options).await?);
                }
                anyhow::Ok(caught)
            })
        })
        .collect();
    jobs.await;
    let mut caught = 0;
    for job in running {
        caught += job.await??;
    }
    println!("{caught} of {count} broken variants were caught");
    Ok(caught == count)
}

/// Messages per second beside schedules whose scripts are broken: the ticks have their own.
const QUIET_RATE: u64 = 100;
/// The same beside programs over HTTP that are broken: a fourth goes to the queues that they use.
const MODEST_RATE: u64 = 500;

/// Runs with a broken script or program and prints what caught it, if anything did.
async fn is_caught(broken: &Broken, options: &BrokenOptions) -> Result<bool> {
    let folder = Path::new("target/chaos/broken").join(broken.name());
    let scripts = match broken {
        Broken::Script(variant) => {
            variant.write(&folder.join("lua"))?;
            Some(folder.join("lua").canonicalize()?)
        }
        Broken::Program(_) => None,
    };
    if OF_MAPS.iter().any(|known| known.name == broken.name()) {
        let verdict = drills::run(options.server.clone(), scripts.as_deref(), &folder).await?;
        return Ok(tell(broken, &verdict));
    }
    let mut of_schedules = OF_SCHEDULES.iter();
    let of_tokens = OF_TOKENS.map(|known| known.name);
    let rate = match broken {
        // Handlers must be short.
        Broken::Program(program) if program.program == Program::OrderWithoutTurns => None,
        Broken::Program(_) => Some(MODEST_RATE),
        Broken::Script(script) if of_tokens.contains(&script.name) => Some(MODEST_RATE),
        Broken::Script(script) => of_schedules
            .any(|known| known.name == script.name)
            .then_some(QUIET_RATE),
    };
    let options = Options {
        seed: options.seed,
        duration: options.duration.min(broken.seconds()),
        rate,
        messages: None,
        queues: options.queues,
        scripts,
        keep: Some(folder),
        faults: None,
        no_faults: true,
        cluster: false,
        cluster_faults: None,
        partitions: 1,
        server: options.server.clone(),
        report: None,
        lease_ms: 2_000,
        // A broken queue may never drain.
        drain_limit: 3,
        quiet: true,
        broken: broken.program(),
    };
    let ran = run::run(options).await?;
    Ok(tell(broken, &judge(&ran.folder).await?))
}

/// Prints what caught it, if anything did.
fn tell(broken: &Broken, verdict: &Verdict) -> bool {
    let violations = verdict.violations.iter().filter(|(_, count)| **count > 0);
    let violations: Vec<_> = violations
        .map(|(kind, count)| format!("{count} {kind:?}"))
        .collect();
    let (name, what, found) = (broken.name(), broken.what(), violations.join(", "));
    if violations.is_empty() {
        println!("{name}: NOT CAUGHT ({what})");
    } else {
        println!("{name}: caught ({what}): {found}");
    }
    !violations.is_empty()
}
