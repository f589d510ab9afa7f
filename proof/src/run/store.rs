//! The server of a run: starts, kills, freezes and restarts it, and reads from it directly, past
//! the proxies.

use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};
use dueq_testkit::Server;

use super::shim::Control;
use crate::faults::rights;
use crate::kit::server::Live;

/// The arguments of the server; among them no fsync. The harness kills processes, not the machine,
/// and a killed process has already handed its writes to the kernel. With `everysec` Redis may
/// acknowledge a write before handing it over, while a sync runs: kill -9 would lose that write.
/// With `always` Redis exits when the disk is full.
const ARGUMENTS: [&str; 12] = [
    "--appendonly",
    "yes",
    "--appendfsync",
    "no",
    "--maxmemory-policy",
    "noeviction",
    "--maxclients",
    "15000",
    "--aof-load-truncated",
    "yes",
    // A replica that joins need not wait for other replicas.
    "--repl-diskless-sync-delay",
    "0",
];
/// By how much `seq` is raised after the last writes were lost: far more than their number.
const SEQ_STEP: u64 = 1_000_000;

pub struct Store {
    live: Live,
    program: PathBuf,
    pub shim: Control,
    url: String,
    folder: PathBuf,
    offset_ms: AtomicI64,
    /// The append-only file, and the size below which it must not be truncated.
    fence: Mutex<(PathBuf, u64)>,
}

/// The `incarnation` and `seq` of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub incarnation: String,
    pub seq: u64,
}

impl Deref for Store {
    type Target = Live;

    fn deref(&self) -> &Live {
        &self.live
    }
}

impl Store {
    /// Starts a server. `folder` is for the settings file of its shim.
    pub fn start(program: &Path, name: &str, library: &Path, folder: &Path) -> Result<Self> {
        let shim = Control::new(library, &folder.join(format!("{name}.shim")))?;
        let environment: Vec<_> = shim
            .environment()
            .iter()
            .map(|(name, value)| (&**name, &**value))
            .collect();
        let arguments = [&ARGUMENTS[..], &rights::ARGUMENTS].concat();
        let server = Server::start_on(program, &arguments, &environment)?;
        let (url, folder) = (server.url(), server.folder().to_owned());
        let (offset_ms, fence) = (AtomicI64::new(0), Mutex::default());
        Ok(Self {
            live: Live::new(name.to_owned(), server),
            program: program.to_owned(),
            shim,
            url,
            folder,
            offset_ms,
            fence,
        })
    }

    /// Starts a second, empty server with this program and this clock offset.
    pub async fn start_another(
        &self,
        name: String,
        library: PathBuf,
        folder: PathBuf,
    ) -> Result<Self> {
        let program = self.program.clone();
        let starting =
            tokio::task::spawn_blocking(move || Self::start(&program, &name, &library, &folder));
        let another = starting.await??;
        another.step_clock(self.offset_ms())?;
        Ok(another)
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub async fn version(&self) -> Result<String> {
        let valkey = self.info("server", "valkey_version").await?;
        let redis = self.info("server", "redis_version").await?;
        Ok(if valkey == "0" {
            format!("Redis {redis}")
        } else {
            format!("Valkey {valkey}")
        })
    }

    pub async fn time_ms(&self) -> Result<i64> {
        let (seconds, micros): (i64, i64) = self.command(&["TIME"]).await?;
        Ok(seconds * 1_000 + micros / 1_000)
    }

    /// How far the server's clock is off.
    pub fn offset_ms(&self) -> i64 {
        self.offset_ms.load(Ordering::SeqCst)
    }

    pub fn step_clock(&self, step_ms: i64) -> Result<()> {
        let offset_ms = self.offset_ms.fetch_add(step_ms, Ordering::SeqCst) + step_ms;
        self.shim.set_clock(offset_ms)
    }

    /// `incarnation` and `seq` of a queue, if it exists.
    pub async fn found(&self, queue: &str) -> Result<Option<Found>> {
        let meta = format!("dueq:{{{queue}}}:meta");
        let (incarnation, seq): (Option<String>, Option<u64>) = self
            .command(&["HMGET", &meta, "incarnation", "seq"])
            .await?;
        Ok(incarnation.map(|incarnation| Found {
            incarnation,
            seq: seq.unwrap_or(0),
        }))
    }

    /// A field of a queue's meta hash.
    pub async fn field(&self, queue: &str, name: &str) -> Result<Option<String>> {
        self.command(&["HGET", &format!("dueq:{{{queue}}}:meta"), name])
            .await
    }

    /// A counter of a queue; 0 if it is absent.
    pub async fn counter(&self, queue: &str, name: &str) -> Result<u64> {
        let value: Option<u64> = self
            .command(&["HGET", &format!("dueq:{{{queue}}}:meta"), name])
            .await?;
        Ok(value.unwrap_or(0))
    }

    /// The incarnation of the queue, and its number of pushed messages.
    pub async fn born_and_pushed(&self, queue: &str) -> Result<(Option<String>, u64)> {
        let meta = format!("dueq:{{{queue}}}:meta");
        let (incarnation, pushed): (_, Option<u64>) = self
            .command(&["HMGET", &meta, "incarnation", "pushed"])
            .await?;
        Ok((incarnation, pushed.unwrap_or(0)))
    }

    /// Raises `seq` above that of every earlier answer; returns the new value.
    pub async fn raise_seq(&self, queue: &str) -> Result<u64> {
        self.raise_seq_by(queue, SEQ_STEP).await
    }

    /// Raises `seq` of an existing queue, as if this number of changes had been made.
    pub async fn raise_seq_by(&self, queue: &str, changes: u64) -> Result<u64> {
        let meta = format!("dueq:{{{queue}}}:meta");
        self.command(&["HINCRBY", &meta, "seq", &changes.to_string()])
            .await
    }

    /// Protects all writes so far from truncation.
    pub fn fence(&self) -> Result<()> {
        let file = self.tail()?;
        let size = fs::metadata(&file)?.len();
        *self.fence.lock().unwrap_or_else(PoisonError::into_inner) = (file, size);
        Ok(())
    }

    /// The number of bytes by which the append-only file may be truncated.
    pub fn cuttable(&self) -> Result<u64> {
        let file = self.tail()?;
        let size = fs::metadata(&file)?.len();
        let fence = self.fence.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(if fence.0 == file {
            size.saturating_sub(fence.1)
        } else {
            size
        })
    }

    /// Truncates the append-only file by this number of bytes, while the server is not running.
    pub fn cut(&self, bytes: u64) -> Result<()> {
        let file = fs::File::options().write(true).open(self.tail()?)?;
        Ok(file.set_len(file.metadata()?.len().saturating_sub(bytes))?)
    }

    /// The file to which the server appends: the last one in the manifest.
    fn tail(&self) -> Result<PathBuf> {
        let folder = self.folder.join("appendonlydir");
        let manifest = fs::read_to_string(folder.join("appendonly.aof.manifest"))?;
        // In the manifest of Redis 8, more fields follow the name.
        let last = manifest
            .lines()
            .rfind(|line| line.contains(" type i"))
            .context("no tail")?;
        let name = last
            .strip_prefix("file ")
            .and_then(|rest| rest.split(' ').next())
            .context("a strange manifest")?;
        Ok(folder.join(name))
    }

    /// Makes the server a replica of the one on this port, or with `None` a master again.
    pub async fn follow(&self, port: Option<u16>) -> Result<()> {
        match port {
            Some(port) => {
                self.command(&["REPLICAOF", "127.0.0.1", &port.to_string()])
                    .await
            }
            None => self.command(&["REPLICAOF", "NO", "ONE"]).await,
        }
    }

    /// Whether the replica has received all writes of its master, and its append-only file contains
    /// them.
    pub async fn is_in_step(&self) -> Result<bool> {
        Ok(
            self.info("replication", "master_link_status").await? == "up"
                && self.is_file_whole().await?,
        )
    }

    /// Whether the append-only file is complete and no rewrite is in progress.
    pub async fn is_file_whole(&self) -> Result<bool> {
        let wanted = [
            ("aof_enabled", "1"),
            ("aof_rewrite_scheduled", "0"),
            ("aof_rewrite_in_progress", "0"),
            ("aof_last_bgrewrite_status", "ok"),
        ];
        for (field, value) in wanted {
            if self.info("persistence", field).await? != value {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
