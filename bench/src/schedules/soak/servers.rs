//! A master and two replicas: the master is killed, a replica is promoted, and the killed server
//! comes back as a replica.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use dueq_testkit::cluster;
use dueq_testkit::{Failover, is_master};

use super::judge::Failure;
use crate::limits::QUEUE;
use crate::limits::record::wall_us;
use crate::limits::watch::Watch;

const REPLICAS: usize = 2;
/// Long enough that the Sentinels of a busy machine rarely replace a live master.
const SILENCE_MS: u32 = 1_500;
/// How long the Sentinels may take to promote a replica.
const PROMOTION_LIMIT: Duration = Duration::from_secs(200);
const STEP: Duration = Duration::from_millis(10);

pub(super) struct Servers {
    all: Failover,
    master: usize,
    /// All writes before this time are at all replicas.
    in_step_us: u64,
}

impl Servers {
    pub(super) fn start() -> Result<Self> {
        let all = Failover::start(REPLICAS, &[])?;
        all.act_after(SILENCE_MS)?;
        let master = all.master()?.context("the Sentinels name no master")?;
        let in_step_us = wall_us();
        Ok(Self {
            all,
            master,
            in_step_us,
        })
    }

    pub(super) fn url(&self) -> String {
        self.all.url()
    }

    pub(super) fn port(&self) -> u16 {
        self.all.servers[self.master].port()
    }

    /// Waits until the replicas have what the master has.
    pub(super) fn in_step(&self) -> Result<()> {
        self.all.wait("replicas in step", || self.all.knows_all())
    }

    /// Sees how far the replicas are, and whether Sentinels of a busy machine have replaced a live
    /// master.
    pub(super) async fn look(&mut self, watch: &Watch) -> Result<Option<Failure>> {
        let Some(master) = self.another_master(None) else {
            self.look_at_replicas().await;
            return Ok(None);
        };
        eprintln!("the Sentinels have replaced a live master");
        let (old_port, begin) = (self.port(), Instant::now());
        self.follow(master, watch);
        // A demotion resets connections: after a failed look it looks again.
        while is_master(old_port).unwrap_or(true) {
            ensure!(
                begin.elapsed() < PROMOTION_LIMIT,
                "two servers stay masters"
            );
            tokio::time::sleep(STEP).await;
        }
        Ok(Some(self.failed()))
    }

    /// Writes of the old master that no replica has are later than this.
    async fn look_at_replicas(&mut self) {
        let now_us = wall_us();
        let Ok(written) = seq(self.port()).await else {
            return;
        };
        for (index, server) in self.all.servers.iter().enumerate() {
            let is_behind = async || seq(server.port()).await.is_ok_and(|seq| seq < written);
            // A replica that does not answer is not promoted, or has all.
            if index != self.master && is_behind().await {
                return;
            }
        }
        self.in_step_us = now_us;
    }

    /// Kills the master with kill -9, waits until a replica is promoted, and starts the killed
    /// server as a replica of that one.
    pub(super) async fn fail_over(&mut self, watch: &Watch) -> Result<Failure> {
        let killed = self.master;
        self.all.servers[killed].kill()?;
        let failure = self.failed(); // no later grant is of the old master
        let begin = Instant::now();
        let master = loop {
            if let Some(master) = self.another_master(Some(killed)) {
                break master;
            }
            ensure!(
                begin.elapsed() < PROMOTION_LIMIT,
                "the Sentinels promoted no replica"
            );
            tokio::time::sleep(STEP).await;
        };
        eprintln!("a replica is promoted {:?} after the kill", begin.elapsed());
        self.follow(master, watch);
        let port = self.port().to_string();
        self.all.servers[killed].restart_with(&["--replicaof", "127.0.0.1", &port])?;
        Ok(failure)
    }

    fn failed(&mut self) -> Failure {
        let (from_us, until_us) = (self.in_step_us, wall_us());
        self.in_step_us = until_us;
        Failure { from_us, until_us }
    }

    fn follow(&mut self, master: usize, watch: &Watch) {
        self.master = master;
        watch.follow(self.port());
    }

    /// A live master other than the one that is followed. A server that resets the connection is
    /// being demoted or promoted: the next look sees which.
    fn another_master(&self, dead: Option<usize>) -> Option<usize> {
        let mut all = self.all.servers.iter().enumerate();
        let found = all.find(|(index, server)| {
            *index != self.master
                && Some(*index) != dead
                && is_master(server.port()).unwrap_or(false)
        });
        found.map(|(index, _)| index)
    }
}

async fn seq(port: u16) -> Result<u64> {
    let meta = format!("dueq:{{{QUEUE}}}:meta");
    cluster::command(port, &["HGET", &meta, "seq"]).await
}
