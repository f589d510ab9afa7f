//! A master and its replicas, which Sentinels promote when their master is killed.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use dueq_testkit::{Failover, is_master};

use super::judge::Failure;
use crate::limits::record::wall_us;
use crate::limits::watch::Watch;

/// Long enough that the Sentinels of a busy machine rarely replace a live master.
const SILENCE_MS: u32 = 1_500;
/// How long the Sentinels may take to promote a replica.
const PROMOTION_LIMIT: Duration = Duration::from_secs(120);
const STEP: Duration = Duration::from_millis(10);

pub(super) struct Servers {
    all: Failover,
    master: usize,
    is_dead: Vec<bool>,
    /// The last time at which no other server was a master.
    alone_us: u64,
}

impl Servers {
    /// Starts a master, and a replica for each failover.
    pub(super) fn start(failovers: usize) -> Result<Self> {
        let all = Failover::start(failovers, &[])?;
        all.act_after(SILENCE_MS)?;
        let master = all.master()?.context("the Sentinels name no master")?;
        let is_dead = vec![false; all.servers.len()];
        let alone_us = wall_us();
        Ok(Self {
            all,
            master,
            is_dead,
            alone_us,
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

    /// Finds an unplanned failover: on a busy machine Sentinels may replace a live master.
    /// Then both may grant messages for a while, so it lasts until the old one is no master.
    pub(super) async fn look(&mut self, watch: &Watch) -> Result<Option<Failure>> {
        let now_us = wall_us();
        let Some(master) = self.another_master() else {
            self.alone_us = now_us;
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
        let (from_us, until_us) = (self.alone_us, wall_us());
        self.alone_us = until_us;
        Ok(Some(Failure { from_us, until_us }))
    }

    /// Kills the master with kill -9, and waits until a replica is promoted.
    pub(super) async fn fail_over(&mut self, watch: &Watch) -> Result<Failure> {
        let from_us = self.alone_us;
        self.all.servers[self.master].kill()?;
        // No later start is of the old master.
        let (until_us, begin) = (wall_us(), Instant::now());
        self.is_dead[self.master] = true;
        eprintln!("the master is killed");
        loop {
            if let Some(master) = self.another_master() {
                eprintln!("a replica is promoted after {:?}", begin.elapsed());
                self.follow(master, watch);
                self.alone_us = wall_us();
                return Ok(Failure { from_us, until_us });
            }
            ensure!(
                begin.elapsed() < PROMOTION_LIMIT,
                "the Sentinels promoted no replica"
            );
            tokio::time::sleep(STEP).await;
        }
    }

    fn follow(&mut self, master: usize, watch: &Watch) {
        self.master = master;
        watch.follow(self.port());
    }

    /// A live master other than the one that is followed. A server that resets the connection is
    /// being demoted or promoted: the next look sees which.
    fn another_master(&self) -> Option<usize> {
        let mut all = self.all.servers.iter().enumerate();
        let found = all.find(|(index, server)| {
            *index != self.master
                && !self.is_dead[*index]
                && is_master(server.port()).unwrap_or(false)
        });
        found.map(|(index, _)| index)
    }
}
