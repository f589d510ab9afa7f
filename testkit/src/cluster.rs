//! Redis Clusters of servers on this machine: forms one, follows its changes, moves its slots.
//!
//! Servers are named by their ports. A server may announce another port, such as that of a proxy:
//! the cluster's own answers contain announced ports.

mod servers;

use std::fmt::Debug;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, FromRedisValue, Value};

pub use servers::Cluster;

/// The arguments of every server of a cluster.
pub const OPTIONS: [&str; 4] = ["--cluster-enabled", "yes", "--cluster-node-timeout", "2000"];
/// How many slots a cluster has.
const SLOTS: usize = 16_384;
/// The time limit of an answer or a change, far longer than either takes.
const LIMIT: Duration = Duration::from_secs(30);

/// Opens a connection to the server on this port.
pub async fn connection(port: u16) -> Result<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(LIMIT))
        .set_response_timeout(Some(LIMIT));
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}/"))?;
    Ok(client
        .get_multiplexed_async_connection_with_config(&config)
        .await?)
}

/// Sends one command on a new connection.
pub async fn command<T: FromRedisValue>(port: u16, words: &[&str]) -> Result<T> {
    let (name, rest) = words.split_first().context("no command")?;
    redis::cmd(name)
        .arg(rest)
        .query_async(&mut connection(port).await?)
        .await
        .with_context(|| words.join(" "))
}

/// Repeats a query until its answer is as expected.
async fn until<T: Debug>(
    what: &str,
    mut look: impl AsyncFnMut() -> Result<T>,
    good: impl Fn(&T) -> bool,
) -> Result<T> {
    let start = Instant::now();
    loop {
        let seen = look().await?;
        if good(&seen) {
            return Ok(seen);
        }
        if start.elapsed() > LIMIT {
            bail!("{what}: not within {LIMIT:?}, but {seen:?}");
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Makes a cluster of these servers: each becomes a master with an equal part of the slots. Returns
/// when all know it.
pub async fn form(ports: &[u16]) -> Result<()> {
    let share = SLOTS.div_ceil(ports.len());
    let first_port = ports.first().context("no servers")?.to_string();
    for (index, port) in ports.iter().enumerate() {
        let (first, end) = (index * share, SLOTS.min((index + 1) * share));
        let (first, last) = (first.to_string(), (end - 1).to_string());
        command::<()>(*port, &["CLUSTER", "ADDSLOTSRANGE", &first, &last]).await?;
        // Give each an epoch of its own at once; otherwise the servers first resolve a collision.
        let epoch = (index + 1).to_string();
        command::<()>(*port, &["CLUSTER", "SET-CONFIG-EPOCH", &epoch]).await?;
        if index > 0 {
            meet(*port, &first_port).await?;
        }
    }
    let mut looks = 0;
    for port in ports {
        let info = async || {
            looks += 1;
            // A server that is slow to connect back forgets the handshake, and it never begins again.
            if looks % MEET_AGAIN == 0 {
                for other in &ports[1..] {
                    meet(*other, &first_port).await?;
                }
            }
            command::<String>(*port, &["CLUSTER", "INFO"]).await
        };
        let masters = format!("cluster_size:{}\r", ports.len());
        until("the cluster", info, |info| {
            info.contains("cluster_state:ok") && info.contains(&masters)
        })
        .await?;
    }
    Ok(())
}

/// After how many looks at the state of a new cluster, every 5 ms, its servers meet again.
const MEET_AGAIN: u32 = 400;

async fn meet(port: u16, first_port: &str) -> Result<()> {
    command(port, &["CLUSTER", "MEET", "127.0.0.1", first_port]).await
}

/// Adds a server without slots; returns when it and all others know each other.
pub async fn join(others: &[u16], new: u16) -> Result<()> {
    let first_port = others.first().context("no servers")?.to_string();
    meet(new, &first_port).await?;
    let new_id = id(new).await?;
    for other in others {
        let other_id = id(*other).await?;
        for (port, wanted) in [(*other, &new_id), (new, &other_id)] {
            let nodes = async || command::<String>(port, &["CLUSTER", "NODES"]).await;
            let known = |nodes: &String| {
                let mut lines = nodes.lines().filter(|line| line.starts_with(&**wanted));
                lines.any(|line| !line.contains("handshake"))
            };
            until("a node that others know", nodes, known).await?;
        }
    }
    // Until the new server knows the owners of the slots, it refuses all keys.
    let info = async || command::<String>(new, &["CLUSTER", "INFO"]).await;
    until("a node that serves", info, |info| {
        info.contains("cluster_state:ok")
    })
    .await?;
    Ok(())
}

/// Makes a server, which already knows the others, the replica of one of them. Returns when it
/// follows its master and the others know that they may promote it.
pub async fn replicate(others: &[u16], master: u16, replica: u16) -> Result<()> {
    let id = id(master).await?;
    command::<()>(replica, &["CLUSTER", "REPLICATE", &id]).await?;
    follows(replica).await?;
    for other in others {
        let nodes = async || command::<String>(*other, &["CLUSTER", "NODES"]).await;
        until("the replica in another's view", nodes, |nodes| {
            nodes.contains(&format!("slave {id}"))
        })
        .await?;
    }
    Ok(())
}

/// Waits until a replica is connected to its master and has loaded its data.
pub async fn follows(replica: u16) -> Result<()> {
    let info = async || command::<String>(replica, &["INFO", "replication"]).await;
    until("a replica that follows", info, |info| {
        info.contains("master_link_status:up")
    })
    .await?;
    Ok(())
}

/// The id of a server within its cluster.
pub async fn id(port: u16) -> Result<String> {
    command(port, &["CLUSTER", "MYID"]).await
}

/// The configuration epoch of a node, in this server's view.
async fn epoch(port: u16, id: &str) -> Result<u64> {
    let nodes: String = command(port, &["CLUSTER", "NODES"]).await?;
    let line = nodes.lines().find(|line| line.starts_with(id));
    let epoch = line.and_then(|line| line.split(' ').nth(6));
    Ok(epoch.context("an epoch")?.parse()?)
}

/// The slot of a key.
pub async fn slot(port: u16, key: &str) -> Result<u16> {
    command(port, &["CLUSTER", "KEYSLOT", key]).await
}

/// A range of slots and the port that its master announces.
#[derive(Debug, Clone, Copy)]
pub struct Range {
    first: u16,
    last: u16,
    /// The announced port.
    pub master: u16,
}

impl Range {
    /// Whether the slot is in the range.
    pub fn has(&self, slot: u16) -> bool {
        (self.first..=self.last).contains(&slot)
    }
}

/// The owners of the slots, in this server's view.
pub async fn owners(port: u16) -> Result<Vec<Range>> {
    // Each range is: first slot, last slot, master (whose second part is its port), replicas.
    let ranges: Vec<Vec<Value>> = command(port, &["CLUSTER", "SLOTS"]).await?;
    let range = |parts: &Vec<Value>| match &parts[..] {
        [
            Value::Int(first),
            Value::Int(last),
            Value::Array(master),
            ..,
        ] => match master.get(1) {
            Some(Value::Int(port)) => Ok(Range {
                first: u16::try_from(*first)?,
                last: u16::try_from(*last)?,
                master: u16::try_from(*port)?,
            }),
            other => bail!("no port: {other:?}"),
        },
        other => bail!("no range of slots: {other:?}"),
    };
    ranges.iter().map(range).collect()
}

/// The port that the master of a slot announces, in this server's view.
pub async fn owner(port: u16, slot: u16) -> Result<u16> {
    let ranges = owners(port).await?;
    let range = ranges.iter().find(|range| range.has(slot));
    Ok(range.context("a master serves the slot")?.master)
}

/// `CLUSTER SETSLOT`. Valkey refuses it while a replica of the master is away, and a move that stays
/// half done is no fault that a user would have: so it is repeated.
async fn set_slot(master: u16, words: &[&str]) -> Result<()> {
    let words = [&["CLUSTER", "SETSLOT"], words].concat();
    let set = async || match command::<()>(master, &words).await {
        Err(error) if format!("{error:#}").contains("NOREPLICAS") => Ok(Some(error)),
        result => result.map(|()| None),
    };
    until("CLUSTER SETSLOT", set, Option::is_none).await?;
    Ok(())
}

/// A slot that moves from one master to another, key by key.
#[derive(Debug, Clone, Copy)]
pub struct SlotMove {
    /// The slot.
    pub slot: u16,
    /// The port of the master that has the slot.
    pub from: u16,
    /// The port of the master that gets the slot.
    pub to: u16,
}

impl SlotMove {
    /// Begins the move: both masters know of it, and no key has moved.
    pub async fn begin(&self) -> Result<()> {
        let Self { slot, from, to } = *self;
        let slot = slot.to_string();
        let (from_id, to_id) = (id(from).await?, id(to).await?);
        set_slot(to, &[&slot, "IMPORTING", &from_id]).await?;
        set_slot(from, &[&slot, "MIGRATING", &to_id]).await
    }

    /// Moves at most `most` keys; returns how many moved.
    pub async fn keys(&self, most: usize) -> Result<usize> {
        let (slot, most) = (self.slot.to_string(), most.to_string());
        let get = ["CLUSTER", "GETKEYSINSLOT", &slot, &most];
        let keys: Vec<String> = command(self.from, &get).await?;
        if !keys.is_empty() {
            let port = self.to.to_string();
            let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
            let migrate = ["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
            command::<String>(self.from, &[&migrate[..], &keys].concat()).await?;
        }
        Ok(keys.len())
    }

    /// Moves the remaining keys, and then gives the slot to the other master. Returns when the old
    /// owner knows the epoch of the new one: a move back could take the same epoch before, and then
    /// each of the two names the other as the owner for ever.
    pub async fn finish(&self) -> Result<()> {
        while self.keys(100).await? > 0 {}
        let (slot, to_id) = (self.slot.to_string(), id(self.to).await?);
        for master in [self.to, self.from] {
            set_slot(master, &[&slot, "NODE", &to_id]).await?;
        }
        let own = epoch(self.to, &to_id).await?;
        let known = async || epoch(self.from, &to_id).await;
        until("the new owner's epoch", known, |known| *known == own).await?;
        Ok(())
    }

    /// Cancels a move of which no key has moved. After that it would not be safe: the master would
    /// serve the slot without the moved keys.
    pub async fn give_up(&self) -> Result<()> {
        let slot = self.slot.to_string();
        for master in [self.from, self.to] {
            set_slot(master, &[&slot, "STABLE"]).await?;
        }
        Ok(())
    }

    /// The move of this slot in the other direction.
    pub fn reversed(&self) -> Self {
        let (from, to) = (self.to, self.from);
        Self { from, to, ..*self }
    }
}
