//! The servers of a cluster: each is reached by clients and replicas through a proxy, whose port it
//! announces.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use anyhow::{Context, Result};
use dueq_testkit::Server;
use dueq_testkit::cluster as commands;
use redis::FromRedisValue;
use redis::aio::MultiplexedConnection;
use rustix::process::{Pid, Signal};

use crate::faults::rights;
use crate::kit::proxy::{Mode, Proxy};

/// The arguments of every server, beside [`commands::OPTIONS`].
const ARGUMENTS: [&str; 16] = [
    // A master that has given its last slot away stays a master.
    "--cluster-allow-replica-migration",
    "no",
    "--cluster-require-full-coverage",
    "no",
    // A replica whose link was cut a while ago is promoted all the same.
    "--cluster-replica-validity-factor",
    "0",
    // A replica whose link carries nothing opens another soon.
    "--repl-timeout",
    "5",
    "--repl-ping-replica-period",
    "1",
    "--repl-diskless-sync-delay",
    "0",
    "--repl-backlog-size",
    "64mb",
    "--maxclients",
    "15000",
];

/// One server of the cluster.
pub(super) struct Node {
    /// Names its log: `node-1`.
    pub(super) name: String,
    server: Mutex<Server>,
    pub(super) proxy: Proxy,
    pub(super) port: u16,
}

impl Node {
    async fn start(program: &Path, number: usize) -> Result<Arc<Self>> {
        // It leads nowhere until the server has its port.
        let proxy = Proxy::start(0, Mode::Away).await?;
        let announced = proxy.port().to_string();
        let (program, arguments) = (
            program.to_owned(),
            [&commands::OPTIONS[..], &ARGUMENTS, &rights::ARGUMENTS].concat(),
        );
        let starting = tokio::task::spawn_blocking(move || {
            let announced = ["--cluster-announce-port", &*announced];
            Server::start_on(&program, &[&arguments[..], &announced].concat(), &[])
        });
        let server = starting.await??;
        let port = server.port();
        proxy.lead_to(port);
        proxy.set(Mode::Pass);
        Ok(Arc::new(Self {
            name: format!("node-{number}"),
            server: Mutex::new(server),
            proxy,
            port,
        }))
    }

    fn server(&self) -> MutexGuard<'_, Server> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn pid(&self) -> Result<Pid> {
        let pid = i32::try_from(self.server().pid())?;
        Pid::from_raw(pid).context("no process")
    }

    pub(super) fn signal(&self, signal: Signal) -> Result<()> {
        crate::kit::process::signal(self.pid()?, signal)
    }

    /// Kills it by SIGKILL.
    pub(super) fn kill(&self) -> Result<()> {
        self.server().kill()
    }

    pub(super) async fn restart(self: &Arc<Self>) -> Result<()> {
        let node = Arc::clone(self);
        tokio::task::spawn_blocking(move || node.server().restart()).await?
    }

    pub(super) async fn command<T: FromRedisValue>(&self, words: &[&str]) -> Result<T> {
        commands::command(self.port, words).await
    }

    pub(super) async fn connection(&self) -> Result<MultiplexedConnection> {
        commands::connection(self.port).await
    }

    /// A field of INFO; 0 if it is absent.
    pub(super) async fn info(&self, section: &str, field: &str) -> Result<String> {
        let info: String = self.command(&["INFO", section]).await?;
        let value = info
            .lines()
            .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        Ok(value.unwrap_or("0").trim().to_owned())
    }

    /// How many errors of this code it has returned since its start.
    pub(super) async fn errors(&self, code: &str) -> Result<u64> {
        let value = self
            .info("errorstats", &format!("errorstat_{code}"))
            .await?;
        Ok(value.trim_start_matches("count=").parse()?)
    }

    pub(super) async fn is_master(&self) -> Result<bool> {
        Ok(self.info("replication", "role").await? == "master")
    }

    fn keep_log(&self, folder: &Path) -> Result<()> {
        let log = self.server().folder().join("log");
        std::fs::copy(log, folder.join(&self.name).with_extension("log"))?;
        Ok(())
    }
}

/// All servers.
pub(super) struct Nodes {
    program: PathBuf,
    all: RwLock<Vec<Arc<Node>>>,
    folder: PathBuf,
}

impl Nodes {
    /// Starts so many masters with a replica each.
    pub(super) async fn start(program: PathBuf, masters: usize, folder: &Path) -> Result<Self> {
        let mut all = Vec::new();
        for number in 1..=2 * masters {
            all.push(Node::start(&program, number).await?);
        }
        let ports: Vec<_> = all.iter().map(|node| node.port).collect();
        let (first, replicas) = ports.split_at(masters);
        commands::form(first).await?;
        let mut known = first.to_vec();
        for replica in replicas {
            commands::join(&known, *replica).await?;
            known.push(*replica);
        }
        for (master, replica) in first.iter().zip(replicas) {
            commands::replicate(&known, *master, *replica).await?;
        }
        Ok(Self {
            program,
            all: RwLock::new(all),
            folder: folder.to_owned(),
        })
    }

    pub(super) fn all(&self) -> Vec<Arc<Node>> {
        self.all
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn ports(&self) -> Vec<u16> {
        self.all().iter().map(|node| node.port).collect()
    }

    /// The addresses of all servers for clients: any of them leads to the others.
    pub(super) fn url(&self) -> String {
        let seeds = self
            .all()
            .into_iter()
            .map(|node| format!("127.0.0.1:{}", node.proxy.port()));
        let user = rights::IN_URL;
        format!(
            "redis+cluster://{user}{}",
            seeds.collect::<Vec<_>>().join(",")
        )
    }

    /// The servers that are masters now.
    pub(super) async fn masters(&self) -> Result<Vec<Arc<Node>>> {
        let mut masters = Vec::new();
        for node in self.all() {
            if node.is_master().await? {
                masters.push(node);
            }
        }
        Ok(masters)
    }

    /// A replica of this master that has all its data, if there is one.
    pub(super) async fn replica_in_step(&self, master: &Node) -> Result<Option<Arc<Node>>> {
        let master_port = master.proxy.port().to_string();
        let written: u64 = master
            .info("replication", "master_repl_offset")
            .await?
            .parse()?;
        for node in self.all() {
            if node.port != master.port
                && !node.is_master().await?
                && node.info("replication", "master_port").await? == master_port
                && node.info("replication", "master_link_status").await? == "up"
                && node
                    .info("replication", "slave_repl_offset")
                    .await?
                    .parse::<u64>()?
                    >= written
            {
                return Ok(Some(node));
            }
        }
        Ok(None)
    }

    /// The slot of a queue.
    pub(super) async fn slot(&self, queue: &str) -> Result<u16> {
        let first = self.all().first().context("no servers")?.port;
        commands::slot(first, &format!("dueq:{{{queue}}}:meta")).await
    }

    /// The master that serves a slot, in its own view.
    pub(super) async fn owner(&self, slot: u16) -> Result<Arc<Node>> {
        for node in self.masters().await? {
            if commands::owner(node.port, slot).await.ok() == Some(node.proxy.port()) {
                return Ok(node);
            }
        }
        anyhow::bail!("no master serves slot {slot}")
    }

    /// Starts another server, which joins the cluster as a master without slots.
    pub(super) async fn add(&self) -> Result<Arc<Node>> {
        let others = self.ports();
        let node = Node::start(&self.program, others.len() + 1).await?;
        commands::join(&others, node.port).await?;
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        all.push(Arc::clone(&node));
        Ok(node)
    }

    /// Removes a server without slots.
    pub(super) async fn remove(&self, node: &Arc<Node>) -> Result<()> {
        let id = commands::id(node.port).await?;
        for other in self.all() {
            if other.port != node.port {
                other.command::<()>(&["CLUSTER", "FORGET", &id]).await?;
            }
        }
        node.keep_log(&self.folder)?;
        node.kill()?;
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        all.retain(|known| known.port != node.port);
        Ok(())
    }

    pub(super) fn keep_logs(&self) -> Result<()> {
        self.all()
            .iter()
            .try_for_each(|node| node.keep_log(&self.folder))
    }
}
