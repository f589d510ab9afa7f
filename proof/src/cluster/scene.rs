//! The parts of a run that faults need, and the partitions that exist at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};

use super::nodes::{Node, Nodes};
use crate::history::Event;
use crate::kit::place::Place;
use crate::queues::PARTITIONED;
use crate::run::Options;
use crate::run::log::Log;

pub(super) struct Scene {
    pub(super) options: Options,
    pub(super) nodes: Nodes,
    /// The queues of the workload, each with its slot; of the one with partitions, the home.
    pub(super) queues: Vec<(String, u16)>,
    pub(super) crew: Vec<Arc<Place>>,
    pub(super) log: Arc<Log>,
    /// All partitions that were found so far beside the home, each with its slot.
    pub(super) found: Mutex<BTreeMap<String, u16>>,
}

impl Scene {
    /// The queues, and the partitions that exist beside the home, each with its slot.
    pub(super) async fn places(&self) -> Result<Vec<(String, u16)>> {
        let mut present = BTreeMap::new();
        for master in self.nodes.masters().await? {
            present.extend(self.partitions_on(&master).await?);
        }
        Ok(self.queues.iter().cloned().chain(present).collect())
    }

    /// The partitions beside the home that have keys on this master.
    async fn partitions_on(&self, master: &Node) -> Result<Vec<(String, u16)>> {
        let mut partitions = Vec::new();
        for key in keys(master).await? {
            if let Some(name) = partition_of(&key) {
                // Another server may be dead at this moment.
                let slot = dueq_testkit::cluster::slot(master.port, &key).await?;
                partitions.push((name, slot));
            }
        }
        self.found().extend(partitions.iter().cloned());
        Ok(partitions)
    }

    fn found(&self) -> MutexGuard<'_, BTreeMap<String, u16>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The queues and partitions that a master serves, also those that have no keys at present.
    pub(super) async fn queues_of(&self, master: &Node) -> Result<Vec<String>> {
        let ranges = dueq_testkit::cluster::owners(master.port).await?;
        let is_here = |slot: u16| {
            let mut own = ranges
                .iter()
                .filter(|range| range.master == master.proxy.port());
            own.any(|range| range.has(slot))
        };
        self.partitions_on(master).await?;
        let found = self.found();
        let all = self.queues.iter().map(|(queue, slot)| (queue, slot));
        let of_master = all.chain(&*found).filter(|(_, slot)| is_here(**slot));
        Ok(of_master.map(|(queue, _)| queue.clone()).collect())
    }

    /// Notes a fault that has ended: it began at `since_us` and touched these queues or partitions.
    pub(super) fn touched(&self, queues: Vec<String>, since_us: u64) {
        self.log.write(&Event::Touched { queues, since_us });
    }

    /// The master of the home, and the map there.
    pub(super) async fn map(&self) -> Result<(Arc<Node>, Option<String>)> {
        let home = self.nodes.slot(PARTITIONED).await?;
        let home = self.nodes.owner(home).await?;
        let meta = format!("dueq:{{{PARTITIONED}}}:meta");
        let map = home.command(&["HGET", &meta, "map"]).await?;
        Ok((home, map))
    }

    /// At the end of a run: the map is settled, and no key is left of a partition that it does not
    /// name.
    pub(super) async fn orphans(&self) -> Result<()> {
        let (_, map) = self.map().await?;
        let map = map.unwrap_or_else(|| "0|-|-".to_owned());
        let tell = |what: String| {
            let queue = PARTITIONED.to_owned();
            self.log.write(&Event::Broken { queue, what });
        };
        let mut lists = map.split('|').skip(1);
        let (old, new) = (lists.next().context("no old list")?, lists.next());
        if new != Some(old) {
            tell(format!("the movers have ended, and the map is {map}"));
        }
        let named: BTreeSet<_> = old.split(' ').collect();
        for master in self.nodes.masters().await? {
            for key in keys(&master).await? {
                let tag = key.split(['/', '}']).nth(1).unwrap_or_default();
                if !named.contains(tag) {
                    tell(format!(
                        "the map {map} does not name the partition of {key}"
                    ));
                }
            }
        }
        Ok(())
    }
}

/// The keys of partitions on a master, without those of the home.
async fn keys(master: &Node) -> Result<Vec<String>> {
    let pattern = format!("dueq:{{{PARTITIONED}/*}}:*");
    master.command(&["KEYS", &pattern]).await
}

/// The partition whose meta this key is.
fn partition_of(key: &str) -> Option<String> {
    let name = key.strip_prefix("dueq:{")?.strip_suffix("}:meta")?;
    Some(name.to_owned())
}
