//! The measured systems.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use dueq_bench_driver::{Reply, Request};

use super::driver::Driver;
use super::measured::Measured;
use super::server::Server;
use super::workload::{Plan, Workload};

/// The time limit of a request: far more than the slowest one needs.
const LIMIT: Duration = Duration::from_secs(900);

/// How long a system is warmed up, because some compile at run time.
const WARM_UP: Duration = Duration::from_secs(3);

/// A kind of system that can be measured.
pub(crate) struct Kind {
    /// Its name in JSON, which is also the name of its folder below bench/peers.
    pub(crate) key: &'static str,
    /// Whether a comparison must include it.
    pub(crate) required: bool,
    /// The number of messages due at once with which its worker still works.
    pub(crate) most_due: u64,
    place: Place,
}

enum Place {
    /// The driver is part of this program.
    Here,
    /// The driver is part of this program, and uses beanstalkd instead of Redis.
    HereOnBeanstalkd,
    /// The driver is a program below bench/peers.
    Peer,
    /// The same for a library of clients/.
    Client,
}

pub(crate) const KINDS: &[Kind] = &[
    Kind {
        key: "dueq",
        required: true,
        most_due: u64::MAX,
        place: Place::Here,
    },
    Kind {
        key: "floor",
        required: true,
        most_due: u64::MAX,
        place: Place::Here,
    },
    Kind {
        key: "rsmq_async",
        required: true,
        most_due: u64::MAX,
        place: Place::Peer,
    },
    Kind {
        key: "apalis_redis",
        required: true,
        most_due: 5_000,
        place: Place::Peer,
    },
    Kind {
        key: "bullmq",
        required: true,
        most_due: u64::MAX,
        place: Place::Peer,
    },
    Kind {
        key: "bee_queue",
        required: false,
        most_due: u64::MAX,
        place: Place::Peer,
    },
    Kind {
        key: "asynq",
        required: false,
        most_due: u64::MAX,
        place: Place::Peer,
    },
    Kind {
        key: "redisson",
        required: true,
        most_due: u64::MAX,
        place: Place::Peer,
    },
    Kind {
        key: "beanstalkd",
        required: false,
        most_due: u64::MAX,
        place: Place::HereOnBeanstalkd,
    },
    Kind {
        key: "arq",
        required: false,
        most_due: u64::MAX,
        place: Place::Peer,
    },
    Kind {
        key: "taskiq",
        required: false,
        most_due: u64::MAX,
        place: Place::Peer,
    },
    Kind {
        key: "dramatiq",
        required: false,
        most_due: u64::MAX,
        place: Place::Peer,
    },
    Kind {
        key: "dueq_python",
        required: false,
        most_due: u64::MAX,
        place: Place::Client,
    },
    Kind {
        key: "dueq_typescript",
        required: false,
        most_due: u64::MAX,
        place: Place::Client,
    },
    Kind {
        key: "dueq_go",
        required: false,
        most_due: u64::MAX,
        place: Place::Client,
    },
    Kind {
        key: "dueq_java",
        required: false,
        most_due: u64::MAX,
        place: Place::Client,
    },
];

impl Kind {
    /// Whether the system is a peer: neither dueq, in whatever language, nor the floor.
    pub(crate) fn is_peer(&self) -> bool {
        !matches!(self.place, Place::Here | Place::Client)
    }

    /// The command that starts the system's driver, for the server at that address.
    pub(crate) fn command(&self, address: &str) -> Result<Command> {
        let mut command = match self.place {
            Place::Here | Place::HereOnBeanstalkd => {
                let mut command = Command::new(std::env::current_exe()?);
                command.args(["drive", self.key]);
                command
            }
            Place::Peer | Place::Client => {
                let mut command = Command::new(root().join("bench/peers/run"));
                command.arg(self.key);
                command
            }
        };
        command.arg(address);
        Ok(command)
    }
}

/// The systems with these names; without names, all.
pub(crate) fn chosen(only: &[String]) -> Result<Vec<&'static Kind>> {
    if let Some(unknown) = only
        .iter()
        .find(|name| KINDS.iter().all(|kind| kind.key != **name))
    {
        let known: Vec<_> = KINDS.iter().map(|kind| kind.key).collect();
        bail!(
            "no system is called {unknown}; there are {}",
            known.join(", ")
        );
    }
    Ok(KINDS
        .iter()
        .filter(|kind| only.is_empty() || only.iter().any(|name| name == kind.key))
        .collect())
}

/// The root folder of the repository.
pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A running system, and its measurements.
pub(crate) struct System {
    pub(crate) kind: &'static Kind,
    pub(crate) server: Server,
    pub(crate) measured: Measured,
    driver: Driver,
    queues: u64,
}

impl System {
    pub(crate) async fn start(kind: &'static Kind, url: Option<&str>) -> Result<Self> {
        let server = match (&kind.place, url) {
            (Place::HereOnBeanstalkd, _) => Server::beanstalkd()?,
            (_, Some(url)) => Server::watched(url).await?,
            (_, None) => Server::private().await?,
        };
        let driver = Driver::start(kind.command(&server.address())?)?;
        let mut system = Self {
            kind,
            server,
            measured: Measured::default(),
            driver,
            queues: 0,
        };
        system.warm_up().await?;
        Ok(system)
    }

    /// Uses every workload once: that shows that the system works, loads what is loaded once, and
    /// gives an estimate of its speed.
    async fn warm_up(&mut self) -> Result<()> {
        let start = Instant::now();
        while start.elapsed() < WARM_UP {
            self.open().await?;
            let due = dueq_bench_driver::Dues::default();
            let push = self
                .ask(&Request::Push {
                    n: 1_000,
                    concurrency: 64,
                    due,
                })
                .await?;
            let bulk = self
                .ask(&Request::Bulk {
                    n: 2_000,
                    batch: 0,
                    due,
                })
                .await?;
            let work = self.ask(&Request::Work { concurrency: 0 }).await?;
            let drain = self.drain(3_000, LIMIT, false).await?;
            self.measured.push_c64_per_s.guess(1_000.0 / push.seconds());
            self.measured
                .push_bulk_per_s
                .guess(2_000.0 / bulk.seconds());
            self.measured
                .life_per_s
                .guess(2_000.0 / (bulk.seconds() + (drain.to_us - work.from_us) as f64 / 1e6));
            self.close().await?;
        }
        self.clear().await
    }

    /// Empties the system's server.
    pub(crate) async fn clear(&mut self) -> Result<()> {
        self.server.clear().await
    }

    /// Opens a new queue.
    pub(crate) async fn open(&mut self) -> Result<()> {
        self.queues += 1;
        self.ask(&Request::Open {
            queue: format!("bench{}", self.queues),
        })
        .await
        .map(drop)
    }

    pub(crate) async fn close(&mut self) -> Result<()> {
        self.ask(&Request::Close).await.map(drop)
    }

    pub(crate) async fn ask(&mut self, request: &Request) -> Result<Reply> {
        self.driver.ask(request, LIMIT).await
    }

    /// Waits until this number of messages is acknowledged; fails at the time limit.
    pub(crate) async fn drain(&mut self, n: u64, limit: Duration, late: bool) -> Result<Reply> {
        let limit_ms = u64::try_from(limit.as_millis())?;
        let reply = self.ask(&Request::Drain { n, limit_ms, late }).await?;
        if reply.n < n {
            bail!(
                "{} of {n} messages were delivered within {limit:?}",
                reply.n
            );
        }
        Ok(reply)
    }

    /// Runs one stage of a workload. A failure is recorded, and the stage is not repeated; a failed
    /// driver is restarted.
    pub(crate) async fn attempt(&mut self, workload: Workload, stage: usize, plan: &mut Plan) {
        let title = format!("{workload}: ");
        if self
            .measured
            .failures
            .iter()
            .any(|failure| failure.starts_with(&title))
        {
            return;
        }
        let Err(error) = workload.run(stage, self, plan).await else {
            return;
        };
        eprintln!("        {}: {title}{error:#}", self.kind.key);
        self.measured.failures.push(format!("{title}{error:#}"));
        let again = self
            .kind
            .command(&self.server.address())
            .and_then(Driver::start);
        match again {
            Ok(driver) => self.driver = driver,
            Err(error) => self
                .measured
                .failures
                .push(format!("cannot be started again: {error:#}")),
        }
    }

    /// Resets the driver's peak memory.
    pub(crate) fn forget_peak(&self) -> Result<()> {
        self.driver.forget_peak()
    }

    /// The driver's peak memory since the reset, in bytes.
    pub(crate) fn peak_bytes(&self) -> Result<u64> {
        self.driver.peak_bytes()
    }
}
