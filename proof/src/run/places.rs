//! The places of a run on one server: which processes it has, and their arguments.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::Options;
use super::programs;
use super::shim::Control;
use super::stage::REPLICA_SIGN;
use super::store::Store;
use crate::broken::Program;
use crate::history::{Role, now_us};
use crate::kit::place::Place;
use crate::kit::proxy::{Direction, Mode, Proxy};
use crate::queues::http_queues;

pub(super) const PRODUCERS: [&str; 3] = ["p1", "p2", "p3"];
const WORKERS: [&str; 3] = ["w1", "w2", "w3"];
const SCHEDULER: &str = "s1";
const SERVERS: [&str; 2] = ["h1", "h2"];
const CONSUMER: &str = "k1";
/// The messages per second of a producer in another language.
const PROGRAM_RATE: u32 = 50;
/// The delay of each piece between one server of HTTP and Redis, in ms: so a consumer often
/// disconnects between the grant and its answer.
const SLOW_MS: std::ops::Range<u64> = 0..12;

/// Writes the scripts of release 0.1. With them a producer publishes no notice for a parked queue.
fn older(folder: &Path) -> Result<PathBuf> {
    let older = folder.join("older");
    std::fs::create_dir_all(&older)?;
    for (verb, script) in dueq_testkit::scripts::frozen()? {
        std::fs::write(older.join(verb).with_extension("lua"), script)?;
    }
    Ok(older)
}

struct Places<'a> {
    options: &'a Options,
    store: &'a Store,
    folder: &'a Path,
    library: &'a Path,
    epoch_us: u64,
}

pub(super) async fn crew(
    options: &Options,
    store: &Store,
    folder: &Path,
    library: &Path,
) -> Result<Vec<Arc<Place>>> {
    let places = Places {
        options,
        store,
        folder,
        library,
        epoch_us: now_us(),
    };
    // If there are schedules, one of the operators is the scheduler; it is killed like the
    // operators.
    let operators: &[&str] = match options.served().len() > options.planned().len() {
        true => &["o1", SCHEDULER],
        false => &["o1"],
    };
    let mut crew = Vec::new();
    for (role, names) in [
        (Role::Producer, &PRODUCERS[..]),
        (Role::Worker, &WORKERS),
        (Role::Canceller, &["c1"]),
        (Role::Operator, operators),
    ] {
        for name in names {
            crew.push(places.place(role, name).await?);
        }
    }
    for (role, name, arguments) in programs::members(options, PROGRAM_RATE)? {
        let place = places.with(role, &name, Mode::Pass, None, arguments);
        crew.push(place.await?);
    }
    if http_queues(options.queues).next().is_some() {
        crew.extend(places.over_http().await?);
    }
    Ok(crew)
}

impl Places<'_> {
    async fn place(&self, role: Role, name: &str) -> Result<Arc<Place>> {
        let Self {
            options, folder, ..
        } = self;
        let rate = (options.rate() / PRODUCERS.len() as u64).max(1);
        let mut arguments = options.role_arguments(match role {
            Role::Producer => "producer",
            Role::Worker => "worker",
            Role::Operator if name == SCHEDULER => "scheduler",
            Role::Operator => "operator",
            _ => "canceller",
        });
        if role == Role::Worker {
            arguments = self.arguments("worker");
        }
        if role == Role::Worker && options.broken == Some(Program::OrderWithoutTurns) {
            // No claims by hand: they would serve queues that get no handler.
            arguments.extend(["--concurrency", "12", "--by-hand", "0"].map(str::to_owned));
        }
        if role == Role::Producer {
            arguments.extend(["--rate".into(), rate.to_string()]);
            arguments.extend(["--epoch-us".into(), self.epoch_us.to_string()]);
        }
        if name == PRODUCERS[1] {
            arguments.extend([
                "--replicated-while".into(),
                folder.join(REPLICA_SIGN).display().to_string(),
            ]);
        }
        let mut usual = Mode::Pass;
        if role == Role::Worker && options.broken == Some(Program::LostClaimsForgotten) {
            // The proxy of this worker keeps losing answers to its claims.
            usual = Mode::Cut(Direction::Replies, 20_000);
        }
        if name == PRODUCERS[2] {
            arguments.push("--once".into());
            // The proxy of this producer keeps losing replies: the queue must recognise its
            // repeated pushes.
            usual = Mode::Cut(Direction::Replies, 5_000);
        }
        if name == PRODUCERS[0] {
            if options.scripts.is_none() {
                let older = older(folder)?.display().to_string();
                arguments.extend(["--older".into(), older]);
            }
            // The interval between poison messages. Each kills six workers within half a minute.
            let every = rate * (options.duration / 4).clamp(4, 30);
            arguments.extend(["--poison-every".into(), every.to_string()]);
        }
        self.with(role, name, usual, None, arguments).await
    }

    /// Starts servers of HTTP, and a consumer that reaches each of them through a proxy.
    async fn over_http(&self) -> Result<Vec<Arc<Place>>> {
        let key = self.folder.join("signing.shim");
        let seed = self.options.seed.to_le_bytes();
        std::fs::write(&key, STANDARD.encode(seed.repeat(4)))
            .with_context(|| format!("writing {}", key.display()))?;
        let (mut places, mut servers) = (Vec::new(), Vec::new());
        for (name, usual) in SERVERS.into_iter().zip([Mode::Pass, Mode::Delay(SLOW_MS)]) {
            // The proxy passes nothing until the server has a port.
            let front = Proxy::start(0, Mode::Pass).await?;
            servers.push(format!("{name}={}", front.port()));
            let mut arguments = self.arguments("serve");
            let url = format!("http://127.0.0.1:{}", front.port());
            arguments.extend(["--public-url".into(), url]);
            arguments.extend(["--signing-key".into(), key.display().to_string()]);
            places.push(
                self.with(Role::Serve, name, usual, Some(front), arguments)
                    .await?,
            );
        }
        let mut arguments = self.arguments("consumer");
        arguments.extend(["--servers".into(), servers.join(",")]);
        places.push(
            self.with(Role::Consumer, CONSUMER, Mode::Pass, None, arguments)
                .await?,
        );
        Ok(places)
    }

    /// The arguments of a process that may be broken on purpose.
    fn arguments(&self, role: &str) -> Vec<String> {
        let mut arguments = self.options.role_arguments(role);
        let broken = self.options.broken.as_ref();
        if let Some(broken) = broken.and_then(clap::ValueEnum::to_possible_value) {
            arguments.extend(["--broken".into(), broken.get_name().to_owned()]);
        }
        arguments
    }

    async fn with(
        &self,
        role: Role,
        name: &str,
        usual: Mode,
        front: Option<Proxy>,
        arguments: Vec<String>,
    ) -> Result<Arc<Place>> {
        let shim = Control::new(self.library, &self.folder.join(format!("{name}.shim")))?;
        let proxy = Proxy::start(self.store.port, usual).await?;
        let url = proxy.url();
        let folder = self.folder.to_owned();
        Ok(Place::new(
            name,
            role,
            (proxy, front),
            url,
            shim,
            folder,
            arguments,
        ))
    }
}
