//! A Redis Cluster for a test: some masters, each with an equal part of the slots.

use anyhow::{Context, Result, bail};
use dueq_testkit::Server;
use redis::{FromRedisValue, Value};

use super::{command, connection, until};

const OPTIONS: [&str; 4] = ["--cluster-enabled", "yes", "--cluster-node-timeout", "2000"];
/// How many slots a cluster has.
const SLOTS: usize = 16_384;

/// A cluster. Drop ends it.
pub(crate) struct Cluster {
    /// The masters, and behind them the replicas.
    pub(crate) masters: Vec<Server>,
}

impl Cluster {
    /// Starts as many masters, and waits until each serves its slots and knows the others.
    pub(crate) async fn start(masters: usize) -> Result<Self> {
        let servers = (0..masters).map(|_| Server::start(&OPTIONS));
        let cluster = Self {
            masters: servers.collect::<Result<_>>()?,
        };
        let share = SLOTS.div_ceil(masters);
        let first_port = cluster.masters[0].port().to_string();
        for (index, server) in cluster.masters.iter().enumerate() {
            let (first, end) = (index * share, SLOTS.min((index + 1) * share));
            let (first, last) = (first.to_string(), (end - 1).to_string());
            let words = ["CLUSTER", "ADDSLOTSRANGE", &first, &last];
            cluster.command::<()>(index, &words).await?;
            // Epochs that differ from the start; otherwise the nodes first settle a collision.
            let epoch = (index + 1).to_string();
            let words = ["CLUSTER", "SET-CONFIG-EPOCH", &epoch];
            cluster.command::<()>(index, &words).await?;
            if server.port() != cluster.masters[0].port() {
                let words = ["CLUSTER", "MEET", "127.0.0.1", &first_port];
                cluster.command::<()>(index, &words).await?;
            }
        }
        cluster.settled().await?;
        Ok(cluster)
    }

    /// Waits until every master knows an owner of each slot.
    async fn settled(&self) -> Result<()> {
        for index in 0..self.masters.len() {
            let info = async || self.command::<String>(index, &["CLUSTER", "INFO"]).await;
            let masters = format!("cluster_size:{}\r", self.masters.len());
            until("the cluster", info, |info| {
                info.contains("cluster_state:ok") && info.contains(&masters)
            })
            .await?;
        }
        Ok(())
    }

    /// Starts a replica of a master, as the last server, and waits until it follows.
    pub(crate) async fn add_replica(&mut self, master: usize) -> Result<()> {
        let id = self.id(master).await?;
        let port = self.masters[master].port().to_string();
        self.masters.push(Server::start(&OPTIONS)?);
        let replica = self.masters.len() - 1;
        let meet = ["CLUSTER", "MEET", "127.0.0.1", &port];
        self.command::<()>(replica, &meet).await?;
        let nodes = async || self.command::<String>(replica, &["CLUSTER", "NODES"]).await;
        until("the master in the replica's view", nodes, |nodes| {
            nodes.contains(&id)
        })
        .await?;
        let replicate = ["CLUSTER", "REPLICATE", &id];
        self.command::<()>(replica, &replicate).await?;
        let follows = async || {
            self.command::<String>(replica, &["INFO", "replication"])
                .await
        };
        until("a replica that follows", follows, |info| {
            info.contains("master_link_status:up")
        })
        .await?;
        // Otherwise the others do not know yet whom to promote.
        for index in 0..replica {
            let nodes = async || self.command::<String>(index, &["CLUSTER", "NODES"]).await;
            until("the replica in a master's view", nodes, |nodes| {
                nodes.contains(&format!("slave {id}"))
            })
            .await?;
        }
        Ok(())
    }

    /// The URL of one master, which leads to the others.
    pub(crate) fn url(&self) -> String {
        self.masters[0].url()
    }

    /// Sends one command to a master.
    pub(crate) async fn command<T: FromRedisValue>(
        &self,
        master: usize,
        words: &[&str],
    ) -> Result<T> {
        let mut redis = connection(&self.masters[master].url()).await?;
        command(&mut redis, words).await
    }

    /// The slot of a queue, and the index of the master that serves it.
    pub(crate) async fn place(&self, queue: &str) -> Result<(u16, usize)> {
        let key = format!("dueq:{{{queue}}}:meta");
        let slot: u16 = self.command(0, &["CLUSTER", "KEYSLOT", &key]).await?;
        // Each range: its first and last slot, and its master, whose second part is its port.
        let ranges: Vec<(u16, u16, Vec<Value>)> = self.command(0, &["CLUSTER", "SLOTS"]).await?;
        let range = ranges
            .iter()
            .find(|(first, last, _)| (*first..=*last).contains(&slot))
            .context("a master serves the slot")?;
        let port = match range.2.get(1) {
            Some(Value::Int(port)) => u16::try_from(*port)?,
            other => bail!("no port: {other:?}"),
        };
        let mut masters = self.masters.iter();
        let owner = masters.position(|server| server.port() == port);
        Ok((slot, owner.context("it is a master of this cluster")?))
    }

    async fn id(&self, master: usize) -> Result<String> {
        self.command(master, &["CLUSTER", "MYID"]).await
    }

    /// Begins to move a slot, key by key: both masters know it, and no key has moved.
    pub(crate) async fn begin_move(&self, slot: u16, from: usize, to: usize) -> Result<()> {
        let slot = slot.to_string();
        let (from_id, to_id) = (self.id(from).await?, self.id(to).await?);
        let importing = ["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id];
        self.command::<()>(to, &importing).await?;
        let migrating = ["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id];
        self.command(from, &migrating).await
    }

    /// Moves the keys of a slot, and then gives it to the other master.
    pub(crate) async fn finish_move(&self, slot: u16, from: usize, to: usize) -> Result<()> {
        let slot = slot.to_string();
        let port = self.masters[to].port().to_string();
        loop {
            let get = ["CLUSTER", "GETKEYSINSLOT", &slot, "100"];
            let keys: Vec<String> = self.command(from, &get).await?;
            if keys.is_empty() {
                break;
            }
            let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
            let migrate = ["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
            self.command::<String>(from, &[&migrate[..], &keys].concat())
                .await?;
        }
        let to_id = self.id(to).await?;
        for master in [to, from] {
            let node = ["CLUSTER", "SETSLOT", &slot, "NODE", &to_id];
            self.command::<()>(master, &node).await?;
        }
        Ok(())
    }
}
