//! The limits of the partitions before, during and after a change of their number. The home keeps
//! them, so that a process that completes the change does not divide them twice.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::json;

use crate::error::Error;
use crate::model::limits::QueueLimits;
use crate::model::stats::QueueStats;
use crate::partition::Partition;
use crate::protocol::partition_map::PartitionMap;
use crate::router::limits::{PartitionLimits, shares_of, texts};
use crate::server::patience::patiently;

/// The field of meta.
const FIELD: &str = "change";
/// The field of meta that says when a process last drove the change, in Unix milliseconds.
pub(crate) const DRIVEN: &str = "driven_ms";

/// The limits on what a partition holds. The others limit what it does.
const ROOM: [&str; 3] = ["max_messages", "dead_keep", "max_remembered"];

/// The plan of a change.
#[derive(Clone)]
pub(super) struct Plan {
    epoch: u64,
    /// The epoch of the change that this one takes back; 0 if it takes none back.
    pub(super) takes_back: u64,
    /// The map of the change, if messages move to another store or from one.
    pub(super) map: Option<PartitionMap>,
    pub(super) old: PartitionLimits,
    /// Those of all old and new partitions, while messages move.
    pub(super) both: PartitionLimits,
    pub(super) new: PartitionLimits,
    /// Whether the partitions have `both`.
    pub(super) is_spread: bool,
}

impl Plan {
    /// The plan of the change that this map describes, as the home has it, or a new one from the
    /// limits of the home.
    pub(super) async fn of(
        home: &Partition,
        map: &PartitionMap,
        of_home: &QueueStats,
    ) -> Result<Self, Error> {
        match Self::kept(home).await? {
            Some(plan) if plan.epoch == map.epoch => Ok(plan),
            // The process ended before it took the change back.
            Some(plan) if plan.takes_back == map.epoch => Ok(plan.back(map, 0)),
            _ => Self::from_limits(map, of_home),
        }
    }

    /// The plan that the home keeps.
    pub(super) async fn kept(home: &Partition) -> Result<Option<Self>, Error> {
        let read = patiently(|| home.control().fields(home.keys().meta(), [FIELD]));
        let [text] = read.await?;
        Ok(text.and_then(|text| Self::parse(&text)))
    }

    /// Whether it is the plan of the change that this map describes.
    pub(super) fn is_of(&self, map: &PartitionMap) -> bool {
        [self.epoch, self.takes_back].contains(&map.epoch)
    }

    /// # Errors
    /// `InvalidInput` if a limit is less than the number of partitions that share it.
    pub(super) fn from_limits(map: &PartitionMap, of_home: &QueueStats) -> Result<Self, Error> {
        let (old, new) = (map.old.len(), map.new.len());
        let limits = QueueLimits::of_stats(of_home, old as u64);
        let all: BTreeSet<_> = map.old.iter().chain(&map.new).collect();
        // While messages move, a limit may be exceeded rather than refuse the change.
        let both = limits.of_partition(all.len());
        let mut both = texts(both.or_else(|_| limits.of_partition(old.max(new)))?);
        let roomy = texts(limits.of_partition(old.min(new))?);
        for (pair, roomy) in both.chunks_mut(2).zip(roomy.chunks(2)) {
            // Nothing is refused or trimmed only because it is not spread yet.
            if ROOM.contains(&pair[0].as_str()) {
                pair.clone_from_slice(roomy);
            }
        }
        Ok(Self {
            epoch: map.epoch,
            takes_back: 0,
            map: map.url.as_ref().map(|_| map.clone()),
            old: shares_of(of_home)?,
            both,
            new: texts(limits.of_partition(new)?),
            is_spread: false,
        })
    }

    /// The plan of the change in the other direction.
    pub(super) fn back(self, map: &PartitionMap, takes_back: u64) -> Self {
        Self {
            epoch: map.epoch,
            takes_back,
            map: map.url.as_ref().map(|_| map.clone()),
            old: self.new,
            new: self.old,
            ..self
        }
    }

    /// The limits after the change, given those of the home now: an operator may have set others
    /// while messages moved.
    pub(super) fn rebased(self, map: &PartitionMap, of_home: &QueueStats) -> Result<Self, Error> {
        let present = shares_of(of_home)?;
        if [&self.old, &self.both, &self.new].contains(&&present) {
            return Ok(self);
        }
        let all: BTreeSet<_> = map.old.iter().chain(&map.new).collect();
        let limits = QueueLimits::of_stats(of_home, all.len() as u64);
        Ok(Self {
            new: texts(limits.of_partition(map.new.len())?),
            both: present,
            ..self
        })
    }

    /// Gives these partitions their limits for the time while messages move, if they do not have
    /// them. If nothing moves, because all partitions were empty, gives them those after it.
    pub(super) async fn spread(
        &mut self,
        home: &Partition,
        partitions: &[&Arc<Partition>],
        were_empty: bool,
    ) -> Result<(), Error> {
        if self.is_spread {
            return Ok(());
        }
        let limits = if were_empty { &self.new } else { &self.both };
        // The old partitions come first, so that all together start no more than the rate allows.
        for partition in partitions {
            partition.configure_as(limits, home).await?;
        }
        self.is_spread = !were_empty;
        self.keep(home).await
    }

    pub(super) async fn keep(&self, home: &Partition) -> Result<(), Error> {
        let text = json!({
            "epoch": self.epoch,
            "takes_back": self.takes_back,
            "map": self.map.as_ref().map(PartitionMap::to_string),
            "old": self.old,
            "both": self.both,
            "new": self.new,
            "is_spread": self.is_spread,
        });
        let (meta, text) = (home.keys().meta(), text.to_string());
        patiently(|| home.control().set_field(meta, FIELD, &text)).await
    }

    /// Removes the plan from the home, unless it is that of a later change than the one with this
    /// epoch.
    pub(super) async fn forget(home: &Partition, epoch: u64) -> Result<(), Error> {
        let read = patiently(|| home.control().fields(home.keys().meta(), [FIELD]));
        let [text] = read.await?;
        let kept = text.as_deref().and_then(Self::parse);
        if text.is_none() || kept.is_some_and(|plan| plan.epoch > epoch) {
            return Ok(());
        }
        let meta = home.keys().meta();
        patiently(|| home.control().remove_field(meta, DRIVEN)).await?;
        patiently(|| home.control().remove_field(meta, FIELD)).await
    }

    /// Writes to the home that a process drives the change now. It matters to the doctor only, so a
    /// failure is ignored.
    pub(super) async fn driven(home: &Partition) {
        let write = async {
            let (now_us, ..) = home.control().lane().await?.time().await?;
            let now_ms = (now_us / 1_000).to_string();
            let meta = home.keys().meta();
            home.control().set_field(meta, DRIVEN, &now_ms).await
        };
        let _: Result<(), Error> = write.await;
    }

    fn parse(text: &str) -> Option<Self> {
        let value: serde_json::Value = serde_json::from_str(text).ok()?;
        let number = |name: &str| value.get(name)?.as_u64();
        let shares = |name: &str| {
            let texts = value.get(name)?.as_array()?.iter();
            let texts = texts.map(|text| text.as_str().map(str::to_owned));
            texts.collect::<Option<PartitionLimits>>()
        };
        Some(Self {
            epoch: number("epoch")?,
            takes_back: number("takes_back")?,
            map: value
                .get("map")
                .and_then(serde_json::Value::as_str)
                .and_then(|text| PartitionMap::read(text).ok()),
            old: shares("old")?,
            both: shares("both")?,
            new: shares("new")?,
            is_spread: value.get("is_spread")?.as_bool()?,
        })
    }
}
