//! A run or a drill with each broken script and program: the checker must catch them all.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::Result;
use tokio::task::LocalSet;

use super::chaos::judge;
use crate::broken::{Broken, OF_MAPS, OF_MOVES, OF_SCHEDULES, OF_TOKENS, Program};
use crate::check::Verdict;
use crate::cluster;
use crate::drills;
use crate::queues::MOST;
use crate::run::{self, Options};

/// Runs with each broken script or program and prints what caught it; the exit code is 1 unless all
/// were caught.
#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// Only these
    names: Vec<String>,
    /// Also those that are left out by default, to save time
    #[arg(long, conflicts_with = "names")]
    all: bool,
    /// Only so many of them: those of --turn
    #[arg(long, value_name = "NUMBER", conflicts_with = "names")]
    some: Option<usize>,
    /// Which ones: each turn begins behind those of the turn before
    #[arg(long, value_name = "NUMBER", default_value_t = 0, requires = "some")]
    turn: usize,
    /// Print the names of all variants and what is broken in each
    #[arg(long)]
    list: bool,
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

/// Runs every variant. Returns whether the checker caught all of them.
pub async fn run(options: &Arguments) -> Result<bool> {
    let names = &options.names;
    if options.list {
        for broken in Broken::all() {
            println!("{}: {}", broken.name(), broken.what());
        }
        return Ok(true);
    }
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
        .filter(|broken| match &names[..] {
            [] => options.all || !broken.is_by_hand(),
            names => names.iter().any(|name| name == broken.name()),
        })
        .collect();
    let some = options.some.unwrap_or(chosen.len()).min(chosen.len());
    let first = options.turn * some % chosen.len().max(1);
    let chosen: Vec<_> = chosen.into_iter().cycle().skip(first).take(some).collect();
    let (count, left) = (chosen.len(), Rc::new(RefCell::new(chosen.into_iter())));
    // Each job takes the next variant from one shared list.
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

/// Messages per second of a run with broken scripts of schedules: the ticks come on top.
const QUIET_RATE: u64 = 100;
/// Messages per second of a run with broken programs over HTTP: a quarter goes to the queues that
/// they use.
const MODEST_RATE: u64 = 500;

/// Runs with a broken script or program, and prints the violation that caught it, if there is one.
async fn is_caught(broken: &Broken, options: &Arguments) -> Result<bool> {
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
    let moves = OF_MOVES.iter().any(|known| known.name == broken.name());
    let mut of_schedules = OF_SCHEDULES.iter();
    let of_tokens = OF_TOKENS.map(|known| known.name);
    let rate = match broken {
        // This fault shows only with short handlers.
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
        queues: options.queues,
        scripts,
        keep: Some(folder),
        no_faults: true,
        cluster: moves,
        server: options.server.clone(),
        // A queue with a broken script may never drain.
        drain_limit: 3,
        quiet: true,
        broken: broken.program(),
        ..Options::default()
    };
    let ran = match moves {
        true => Box::pin(cluster::run(options)).await?,
        false => Box::pin(run::run(options)).await?,
    };
    Ok(tell(broken, &judge(&ran.folder).await?))
}

/// Prints the violation that caught the variant, if there is one.
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
