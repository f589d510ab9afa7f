//! The servers of a cluster. Clients and replicas reach each server through a proxy, whose port the
//! server announces.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use dueq_testkit::Server;
use dueq_testkit::cluster as commands;

use crate::faults::rights;
use crate::kit::proxy::{Mode, Proxy};
use crate::kit::server::Live;

/// The arguments of every server, in addition to [`commands::OPTIONS`].
const ARGUMENTS: [&str; 16] = [
    // A master that has given away its last slot must stay a master.
    "--cluster-allow-replica-migration",
    "no",
    "--cluster-require-full-coverage",
    "no",
    // A replica must be promoted even if its link to the master was cut for some time.
    "--cluster-replica-validity-factor",
    "0",
    // A replica with a silent link must soon open another one.
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

/// The longest time for which a slot may have no master.
const PROMOTION_LIMIT: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(100);

/// One server of the cluster.
pub(super) struct Node {
    live: Live,
    pub(super) proxy: Proxy,
}

impl Deref for Node {
    type Target = Live;

    fn deref(&self) -> &Live {
        &self.live
    }
}

impl Node {
    async fn start(program: &Path, number: usize) -> Result<Arc<Self>> {
        // The proxy forwards nothing until the server has a port.
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
        proxy.lead_to(server.port());
        proxy.set(Mode::Pass);
        Ok(Arc::new(Self {
            live: Live::new(format!("node-{number}"), server),
            proxy,
        }))
    }

    pub(super) async fn is_master(&self) -> Result<bool> {
        Ok(self.info("replication", "role").await? == "master")
    }
}

/// All servers.
pub(super) struct Nodes {
    program: PathBuf,
    all: RwLock<Vec<Arc<Node>>>,
    folder: PathBuf,
}

impl Nodes {
    /// Starts this number of masters, each with a replica.
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

    /// The server that is the master of a slot, in its own view. On a busy machine a replica may be
    /// promoted at any time; until then the slot has no master.
    pub(super) async fn owner(&self, slot: u16) -> Result<Arc<Node>> {
        let begin = Instant::now();
        while begin.elapsed() < PROMOTION_LIMIT {
            for node in self.all() {
                let is_master = node.is_master().await.unwrap_or(false);
                let owner = commands::owner(node.port, slot).await.ok();
                if is_master && owner == Some(node.proxy.port()) {
                    return Ok(node);
                }
            }
            tokio::time::sleep(LOOK).await;
        }
        anyhow::bail!("no master serves slot {slot} for {PROMOTION_LIMIT:?}")
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
