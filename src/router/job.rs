//! A change of the number of partitions, as its sources see it.

use std::sync::Arc;

use crate::error::Error;
use crate::model::stats::QueueStats;
use crate::partition::Partition;
use crate::protocol::partition_map::{PartitionMap, Tag, index_of};
use crate::router::Partitions;
use crate::router::progress::{MoveCounts, Pace};
use crate::router::repartition::changed_meanwhile;

/// What all sources of a change share.
pub(super) struct Job {
    /// The map as this client's store has it.
    pub(super) map: PartitionMap,
    /// The URL of this client's store, if messages move to another one or from one.
    pub(super) own_url: Option<String>,
    pub(super) all: Arc<Partitions>,
    pub(super) pace: Pace,
    pub(super) progress: MoveCounts,
}

impl Job {
    /// The map as the store of the partition with this tag has it.
    pub(super) fn map_for(&self, tag: Tag) -> PartitionMap {
        match &self.own_url {
            Some(url) if tag.is_far() => self.map.flipped(url),
            _ => self.map.clone(),
        }
    }

    /// The partitions of the old or the new list.
    pub(super) fn list(&self, tags: &[Tag]) -> Vec<&Arc<Partition>> {
        tags.iter()
            .filter_map(|tag| self.all.of_tag(*tag))
            .collect()
    }

    /// The partition of the new list that this id belongs to, if it is not this one.
    pub(super) fn place_of_stray(&self, id: &[u8], own: Tag) -> Option<Tag> {
        let new = &self.map.new;
        Some(new[index_of(id, new.len())]).filter(|tag| *tag != own)
    }

    /// About how many messages of this partition belong elsewhere, if ids are spread evenly.
    pub(super) fn expected_strays(&self, own: Tag, stats: &QueueStats) -> u64 {
        let messages = stats.scheduled + stats.ready + stats.leased + stats.dead;
        let range = |tags: &[Tag]| {
            let index = tags.iter().position(|tag| *tag == own)?;
            let share = 1.0 / tags.len() as f64;
            Some((index as f64 * share, (index + 1) as f64 * share))
        };
        let staying = match (range(&self.map.old), range(&self.map.new)) {
            (Some((from, to)), Some((new_from, new_to))) => {
                ((to.min(new_to) - from.max(new_from)) / (to - from)).max(0.0)
            }
            _ => 0.0,
        };
        (messages as f64 * (1.0 - staying)) as u64
    }

    /// The error of a call at a partition with another map, or with none. Only a new beginning may
    /// give the partition this map: another process may have ended the change, and removed it.
    pub(super) fn refused(&self, error: Error) -> Error {
        match error.is_remapped() {
            true => changed_meanwhile(self.all.home().queue_name()),
            false => error,
        }
    }
}
