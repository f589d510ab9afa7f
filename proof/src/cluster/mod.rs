//! A run on a cluster: masters and replicas, a crew of processes, and faults of slots and masters
//! on a schedule decided by the seed. Then all faults end, the crew drains the queues, and the
//! histories are checked.

mod faults;
mod masters;
mod movers;
mod nodes;
mod outages;
mod scene;
mod slots;

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use dueq::{Client, QueueLimits};
use fastrand::Rng;
use tokio::task::JoinSet;
use tokio::time::Instant;

pub use faults::Kind;

use crate::history::{Role, now_us};
use crate::kit::place::Place;
use crate::kit::proxy::{Mode, Proxy};
use crate::queues::{ON_CLUSTER, served_queues};
use crate::run::heartbeat::Heartbeat;
use crate::run::log::Log;
use crate::run::programs;
use crate::run::schedule::{Course, follow, pause_ms};
use crate::run::settle::{Parts, settle};
use crate::run::shim::{self, Control};
use crate::run::stage::REPLICA_SIGN;
use crate::run::{MAX_ATTEMPTS, Options, Ran, emptied, raise_file_limit};
use faults::Lane;
use nodes::Nodes;
use scene::Scene;

const MASTERS: usize = 3;
/// The default number of messages per second of all producers. It is low, because seven servers and
/// nine processes share the machine.
const RATE: u64 = 200;
/// Operations per second of the canceller.
const CANCELLER_RATE: u64 = 40;
/// The messages per second of a producer in another language.
const PROGRAM_RATE: u32 = 20;
/// The pause between two deaths of processes, in ms: a new process first connects to all servers.
const PROCESS_PAUSE_MS: std::ops::Range<u64> = 2_000..8_000;
const CREW: [(Role, &str, &[&str]); 6] = [
    (Role::Producer, "producer", &["p1", "p2", "p3"]),
    (Role::Worker, "worker", &["w1", "w2", "w3"]),
    (Role::Canceller, "canceller", &["c1"]),
    (Role::Operator, "operator", &["o1"]),
    (Role::Operator, "scheduler", &["s1"]),
    (Role::Mover, "mover", &["m1", "m2"]),
];

/// Runs the crew and the faults until the queues have drained.
pub async fn run(mut options: Options) -> Result<Ran> {
    options.queues = ON_CLUSTER;
    options.rate = options.rate.or(Some(RATE));
    let folder = emptied(&options.folder())?;
    raise_file_limit()?;
    let library = shim::compile(&folder)?;
    let log = Arc::new(Log::new(&folder.join("harness.jsonl"), options.quiet)?);
    let program = match &options.server {
        Some(program) => program.clone(),
        None => dueq_testkit::program()?,
    };
    let version = version(&program);
    let nodes = Nodes::start(program, MASTERS, &folder).await?;
    log.say(&format!(
        "seed {}, {} s, {} messages per second, on {} servers of {version}",
        options.seed,
        options.duration,
        options.rate(),
        nodes.all().len()
    ));
    let mut queues = Vec::new();
    let client = Client::connect(&nodes.url()).await?;
    for planned in served_queues(ON_CLUSTER) {
        let (queue, limits) = (
            client.queue(planned.name)?,
            QueueLimits::new().max_attempts(MAX_ATTEMPTS),
        );
        queue.configure(limits).await?;
        queues.push((planned.name.to_owned(), nodes.slot(planned.name).await?));
    }
    drop(client);
    let crew = crew(&options, &nodes, &folder, &library).await?;
    let scene = Scene {
        options,
        nodes,
        queues,
        crew,
        log,
        found: Mutex::default(),
    };
    let result = play(&scene, version, &folder).await;
    scene.nodes.keep_logs()?;
    result
}

/// The name and version that a server program prints.
fn version(program: &Path) -> String {
    let told = std::process::Command::new(program)
        .arg("--version")
        .output();
    let told = told.map(|told| String::from_utf8_lossy(&told.stdout).into_owned());
    told.unwrap_or_default()
        .split(" sha=")
        .next()
        .unwrap_or_default()
        .to_owned()
}

async fn play(scene: &Scene, version: String, folder: &Path) -> Result<Ran> {
    let log = &scene.log;
    let _heartbeat = Heartbeat::start(Arc::clone(log));
    let keepers = Mutex::new(JoinSet::new());
    for place in &scene.crew {
        let kept = Arc::clone(place).keep(Arc::clone(log));
        keepers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .spawn(kept);
    }
    for place in &scene.crew {
        place.until("its start", |status| status.ready).await?;
    }
    // All masters have replicas, so one producer waits for them with every push.
    std::fs::write(folder.join(REPLICA_SIGN), "")?;
    let begun = Instant::now();
    disturb(scene, begun).await?;
    let ran = begun.elapsed();
    let parts = Parts {
        options: &scene.options,
        crew: &scene.crew,
        keepers: &keepers,
        log,
    };
    let names = async || {
        let places = scene.places().await?;
        Ok(places.into_iter().map(|(queue, _)| queue).collect())
    };
    let connect = async |queue: &str| {
        let slot = scene.nodes.slot(queue).await?;
        scene.nodes.owner(slot).await?.connection().await
    };
    let drained_in = settle(parts, names, connect).await?;
    scene.orphans().await?;
    let mut pushed = 0;
    for (queue, slot) in &scene.places().await? {
        let meta = format!("dueq:{{{queue}}}:meta");
        let owner = scene.nodes.owner(*slot).await?;
        let of_queue: Option<u64> = owner.command(&["HGET", &meta, "pushed"]).await?;
        pushed += of_queue.unwrap_or(0);
    }
    Ok(Ran {
        pushed,
        ran,
        drained_in,
        ..Ran::of(log, folder.to_owned(), version)
    })
}

/// Injects faults until the run's duration is over.
async fn disturb(scene: &Scene, begun: Instant) -> Result<()> {
    let kinds = faults::possible(scene).await?;
    let (enough, is_enough) = tokio::sync::watch::channel(false);
    let lane = |lane: Lane| {
        let of_lane = kinds.iter().copied().filter(|kind| kind.lane() == lane);
        let seed = scene.options.seed.wrapping_mul(0x9e37_79b9) ^ (lane as u64) << 32;
        let course = Course {
            kinds: of_lane.collect(),
            rng: Rng::with_seed(seed),
            begun,
            duration: scene.options.duration,
            pause_ms: match lane {
                Lane::Cluster => pause_ms(&scene.options),
                Lane::Processes => PROCESS_PAUSE_MS,
            },
            is_enough: is_enough.clone(),
        };
        let inject = async |kind: Kind, rng: &mut Rng| faults::inject(kind, scene, rng).await;
        follow(course, Kind::takes, inject)
    };
    let over = async {
        tokio::time::sleep_until(begun + Duration::from_secs(scene.options.duration)).await;
        enough.send_replace(true);
    };
    tokio::join!(over, lane(Lane::Cluster), lane(Lane::Processes));
    Ok(())
}

async fn crew(
    options: &Options,
    nodes: &Nodes,
    folder: &Path,
    library: &Path,
) -> Result<Vec<Arc<Place>>> {
    let (mut crew, epoch_us) = (Vec::new(), now_us());
    let first = nodes.all().first().context("no servers")?.proxy.port();
    // This proxy is not used: on a cluster a process reaches every server by that server's own proxy.
    let place = async |role: Role, name: &str, arguments: Vec<String>| {
        let proxy = (Proxy::start(first, Mode::Pass).await?, None);
        let shim = Control::new(library, &folder.join(format!("{name}.shim")))?;
        let (url, folder) = (nodes.url(), folder.to_owned());
        anyhow::Ok(Place::new(name, role, proxy, url, shim, folder, arguments))
    };
    for (role, word, names) in CREW {
        for name in names {
            let mut arguments = options.role_arguments(word);
            let mut argue = |flag: &str, value: String| arguments.extend([flag.into(), value]);
            match role {
                Role::Producer => {
                    let rate = (options.rate() / names.len() as u64).max(1);
                    argue("--rate", rate.to_string());
                    argue("--epoch-us", epoch_us.to_string());
                }
                Role::Worker => argue("--by-hand", "1".into()),
                Role::Canceller => argue("--rate", CANCELLER_RATE.to_string()),
                Role::Mover => argue("--partitions", options.partitions.to_string()),
                _ => {}
            }
            match *name {
                "p2" => argue(
                    "--replicated-while",
                    folder.join(REPLICA_SIGN).display().to_string(),
                ),
                "p3" => arguments.push("--once".into()),
                _ => {}
            }
            crew.push(place(role, name, arguments).await?);
        }
    }
    for (role, name, arguments) in programs::members(options, PROGRAM_RATE)? {
        crew.push(place(role, &name, arguments).await?);
    }
    Ok(crew)
}
