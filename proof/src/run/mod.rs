//! A run: a server, a crew of processes, and faults on a schedule decided by the seed; then all
//! faults end, the crew drains the queues, and the histories are checked.

pub mod heartbeat;
pub mod log;
mod places;
pub(crate) mod programs;
pub mod schedule;
pub mod settle;
pub mod shim;
pub mod stage;
pub mod store;

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use dueq::{Client, QueueLimits};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::faults::Kind;
use crate::queues::{MOST, Planned, planned_queues, served_queues};
use heartbeat::Heartbeat;
use log::Log;
use stage::Stage;
use store::Store;

/// The default number of messages per second of all producers.
const RATE: u64 = 2_000;
/// The default `max_attempts`, which the operator also sets.
pub(crate) const MAX_ATTEMPTS: u32 = 20;
/// With `--messages` the rate is multiplied by this, because outages cost time.
const OUTAGES: f64 = 1.25;

#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Decides the workload and the faults
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Seconds under faults, before the end begins
    #[arg(long, default_value_t = 60)]
    pub duration: u64,
    /// How many queues the workers serve, 1 to 7
    #[arg(long, default_value_t = MOST)]
    pub queues: usize,
    /// Messages per second of all producers together [default: 2000]
    #[arg(long)]
    pub rate: Option<u64>,
    /// Continues beyond the duration until so many messages were pushed; the rate follows from both
    #[arg(long)]
    pub messages: Option<u64>,
    /// A folder of VERB.lua files to use instead of the shipped ones
    #[arg(long)]
    pub scripts: Option<PathBuf>,
    /// The folder for histories and logs; files of an earlier run are removed [default:
    /// target/chaos/SEED]
    #[arg(long)]
    pub keep: Option<PathBuf>,
    /// Only these faults
    #[arg(long, value_delimiter = ',', value_enum)]
    pub faults: Option<Vec<Kind>>,
    /// No faults
    #[arg(long, conflicts_with = "faults")]
    pub no_faults: bool,
    /// On a cluster of three masters and three replicas, with fifty queues
    #[arg(long, conflicts_with_all = ["faults", "messages", "queues"])]
    pub cluster: bool,
    /// The most partitions of the queue `parts` on a cluster
    #[arg(long, default_value_t = 12, requires = "cluster")]
    pub partitions: usize,
    /// Only these faults of a cluster
    #[arg(long, value_delimiter = ',', value_enum, requires = "cluster")]
    pub cluster_faults: Option<Vec<crate::cluster::Kind>>,
    /// Programs in other languages that work and push beside the others: a file with a line for
    /// each, its name and the words that start it before `work QUEUE` and `push QUEUE FILE`
    #[arg(long)]
    pub programs: Option<PathBuf>,
    /// The server program [default: DUEQ_TEST_SERVERS, or what is on PATH]
    #[arg(long, value_parser = program)]
    pub server: Option<PathBuf>,
    /// Also writes the report to this file
    #[arg(long)]
    pub report: Option<PathBuf>,
    #[arg(long, default_value_t = 2_000)]
    pub lease_ms: u64,
    /// Limit in seconds for draining: the server's clock may have gone back, and retries wait on
    /// purpose
    #[arg(long, default_value_t = 180)]
    pub drain_limit: u64,
    /// Prints nothing until the end
    #[arg(long)]
    pub quiet: bool,
    /// The processes that can be are broken in this way
    #[arg(skip)]
    pub broken: Option<crate::broken::Program>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            seed: 1,
            duration: 60,
            queues: MOST,
            rate: None,
            messages: None,
            scripts: None,
            keep: None,
            faults: None,
            no_faults: false,
            cluster: false,
            partitions: 12,
            cluster_faults: None,
            programs: None,
            server: None,
            report: None,
            lease_ms: 2_000,
            drain_limit: 180,
            quiet: false,
            broken: None,
        }
    }
}

/// Parses a program's name or path. The path becomes absolute, because servers run in folders of
/// their own. A link is not resolved, because a server looks at the name by which it was called.
pub fn program(text: &str) -> Result<PathBuf, String> {
    if !text.contains('/') {
        return Ok(text.into());
    }
    std::fs::metadata(text).map_err(|error| error.to_string())?;
    std::path::absolute(text).map_err(|error| error.to_string())
}

impl Options {
    pub fn folder(&self) -> PathBuf {
        self.keep
            .clone()
            .unwrap_or_else(|| Path::new("target/chaos").join(self.seed.to_string()))
    }

    pub fn rate(&self) -> u64 {
        let seconds = self.duration.max(1);
        let wanted = self
            .messages
            .map(|messages| (messages.div_ceil(seconds) as f64 * OUTAGES) as u64);
        self.rate.or(wanted).unwrap_or(RATE)
    }

    pub fn planned(&self) -> &'static [Planned] {
        planned_queues(self.queues)
    }

    /// The planned queues, and the queue of the schedules if there is one.
    pub fn served(&self) -> &'static [Planned] {
        served_queues(self.queues)
    }

    /// The arguments for every process of the workload.
    pub fn role_arguments(&self, role: &str) -> Vec<String> {
        let mut arguments: Vec<String> = vec![role.into()];
        arguments.extend([
            "--queues".into(),
            self.queues.to_string(),
            "--seed".into(),
            self.seed.to_string(),
            "--lease-ms".into(),
            self.lease_ms.to_string(),
        ]);
        if let Some(scripts) = &self.scripts {
            arguments.extend(["--scripts".into(), scripts.display().to_string()]);
        }
        arguments
    }
}

/// What a run observed itself, in addition to the histories that its processes wrote.
#[derive(Debug, Clone)]
pub struct Ran {
    pub folder: PathBuf,
    pub server: String,
    pub traced: std::collections::BTreeMap<String, u64>,
    /// Faults that found no object, by kind.
    pub not_applied: std::collections::BTreeMap<String, u64>,
    /// Why the run proves nothing, and failures during the run.
    pub wrong: Vec<String>,
    /// Requested faults that this machine does not allow.
    pub left_out: Vec<String>,
    pub pushed: u64,
    pub ran: Duration,
    pub drained_in: Duration,
}

impl Ran {
    /// The result of a run, from its log.
    pub(crate) fn of(log: &Log, folder: PathBuf, server: String) -> Self {
        let (traced, not_applied) = (log.traced(), log.not_applied());
        if not_applied.values().sum::<u64>() > traced.values().sum() {
            log.wrong(format!(
                "more faults found no object than were applied: {not_applied:?}"
            ));
        }
        Self {
            folder,
            server,
            traced,
            not_applied,
            wrong: log.all_wrong(),
            left_out: Vec::new(),
            pushed: 0,
            ran: Duration::ZERO,
            drained_in: Duration::ZERO,
        }
    }
}

/// Runs the crew and the faults until the queues have drained.
pub async fn run(options: Options) -> Result<Ran> {
    let folder = emptied(&options.folder())?;
    let file_limit = raise_file_limit()?;
    let library = shim::compile(&folder)?;
    let log = Arc::new(Log::new(&folder.join("harness.jsonl"), options.quiet)?);
    let program = match &options.server {
        Some(program) => program.clone(),
        None => dueq_testkit::program()?,
    };
    let store = Store::start(&program, "server", &library, &folder)?;
    let server = store.version().await?;
    log.say(&format!(
        "seed {}, {} s, {} messages per second, on {server}",
        options.seed,
        options.duration,
        options.rate()
    ));
    create(&options, &store).await?;
    let crew = places::crew(&options, &store, &folder, &library).await?;
    let stage = Arc::new(Stage::new(
        options, store, crew, log, file_limit, folder, library,
    ));
    let result = stage_run(&stage, server).await;
    stage.store().keep_log(&stage.folder)?;
    result
}

async fn stage_run(stage: &Arc<Stage>, server: String) -> Result<Ran> {
    let log = &stage.log;
    let _heartbeat = Heartbeat::start(Arc::clone(log));
    let (kinds, left_out) = schedule::possible(stage).await?;
    for place in &stage.crew {
        stage
            .keepers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .spawn(Arc::clone(place).keep(Arc::clone(log)));
    }
    for place in &stage.crew {
        place.until("its start", |status| status.ready).await?;
    }
    stage.found().await?;
    stage.store().fence()?;
    let begun = tokio::time::Instant::now();
    let pushed = schedule::disturb(stage, kinds).await;
    let ran = begun.elapsed();
    let parts = settle::Parts {
        options: &stage.options,
        crew: &stage.crew,
        keepers: &stage.keepers,
        log,
    };
    let queues = stage.queues().iter().map(|queue| queue.name.to_owned());
    let queues = async || Ok(queues.collect());
    let connect = async |_: &str| stage.store().connection().await;
    let drained_in = settle::settle(parts, queues, connect).await?;
    if let Some(end) = stage.store().ended()? {
        log.wrong(format!("the server ended unexpectedly: {end}"));
    }
    let folder = stage.folder.clone();
    Ok(Ran {
        left_out,
        pushed,
        ran,
        drained_in,
        ..Ran::of(log, folder, server)
    })
}

/// Creates the queues: workers find one of them by its keys, so it must exist.
async fn create(options: &Options, store: &Store) -> Result<()> {
    let client = Client::connect(store.url()).await?;
    for queue in options.served() {
        client
            .queue(queue.name)?
            .configure(QueueLimits::new().max_attempts(MAX_ATTEMPTS))
            .await?;
    }
    Ok(())
}

/// Creates a folder, or removes the files of an earlier run from it.
pub(crate) fn emptied(folder: &Path) -> Result<PathBuf> {
    std::fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let ours = [
            "jsonl", "log", "shim", "so", "c", "lua", "json", "md", "replica",
        ];
        if path
            .extension()
            .and_then(|extension| extension.to_str())
            .is_some_and(|found| ours.contains(&found))
        {
            std::fs::remove_file(path)?;
        }
    }
    Ok(folder.canonicalize()?)
}

/// Raises the limit of open files for this process and its children to the user's maximum.
pub(crate) fn raise_file_limit() -> Result<u64> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        },
    )?;
    Ok(limit.maximum.unwrap_or(u64::MAX))
}
