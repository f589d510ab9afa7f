//! The partitions of a queue by one map.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use crate::error::{Applied, Error, ErrorKind};
use crate::partition::{Partition, PlaceInQueue, Siblings};
use crate::protocol::partition_map::{PartitionMap, Tag, index_of};
use crate::server::servers::Servers;
use crate::telemetry::metrics::Meters;

/// The partitions of a queue by one map, or the only one of a queue without a map.
pub(crate) struct Partitions {
    queue_name: String,
    map: Option<PartitionMap>,
    /// By index. While the map changes: those before the change, then those that are new.
    list: Vec<Arc<Partition>>,
}

impl Partitions {
    pub(super) fn of_map(
        queue_name: &str,
        servers: &Arc<Servers>,
        meters: &Arc<Meters>,
        open: &Arc<AtomicUsize>,
        map: Option<PartitionMap>,
    ) -> Result<Self, Error> {
        let tags = map.as_ref().map_or_else(|| vec![Tag::Home], all_tags);
        let epoch = map.as_ref().map(|map| map.epoch);
        let partitions = tags.len();
        let siblings = Siblings::new(queue_name, &tags, servers)?;
        let partition = |(index, tag): (usize, &Tag)| {
            let place = PlaceInQueue {
                tag: *tag,
                epoch,
                index,
                partitions,
                open: Arc::clone(open),
                siblings: Arc::clone(&siblings),
            };
            Partition::new(queue_name, place, servers, meters).map(Arc::new)
        };
        Ok(Self {
            queue_name: queue_name.to_owned(),
            list: tags
                .iter()
                .enumerate()
                .map(partition)
                .collect::<Result<_, _>>()?,
            map,
        })
    }

    pub(crate) fn map(&self) -> Option<&PartitionMap> {
        self.map.as_ref()
    }

    /// The epoch of the map; `None` without one.
    pub(crate) fn epoch(&self) -> Option<u64> {
        self.map.as_ref().map(|map| map.epoch)
    }

    /// The partition with index 0.
    pub(crate) fn home(&self) -> &Arc<Partition> {
        &self.list[0]
    }

    /// Whether both lists have the same partitions in the same order.
    pub(crate) fn has_tags_of(&self, other: &Self) -> bool {
        let tags = |of: &Self| of.list.iter().map(|one| one.tag()).collect::<Vec<_>>();
        tags(self) == tags(other)
    }

    /// All partitions, the home first. While the map changes also those that are new or to be
    /// removed.
    pub(crate) fn list(&self) -> &[Arc<Partition>] {
        &self.list
    }

    /// The partition with this tag.
    pub(crate) fn of_tag(&self, tag: Tag) -> Option<&Arc<Partition>> {
        self.list.iter().find(|partition| partition.tag() == tag)
    }

    /// The partition that holds this id.
    ///
    /// # Errors
    /// `Unavailable` while the map changes.
    pub(crate) fn of_id(&self, id: &[u8]) -> Result<&Arc<Partition>, Error> {
        let routed = self.routed()?;
        Ok(&routed[index_of(id, routed.len())])
    }

    /// The partitions that ids are routed to.
    ///
    /// # Errors
    /// `Unavailable` while the map changes.
    pub(crate) fn routed(&self) -> Result<&[Arc<Partition>], Error> {
        match &self.map {
            Some(map) if !map.is_settled() => Err(changing(&self.queue_name, map)),
            _ => Ok(&self.list),
        }
    }
}

/// The tags before a change, then those that are new.
pub(super) fn all_tags(map: &PartitionMap) -> Vec<Tag> {
    let new = map.new.iter().filter(|tag| !map.old.contains(tag));
    map.old.iter().chain(new).copied().collect()
}

/// The error of a call that names an id while the partitions of its queue change.
pub(super) fn changing(queue_name: &str, map: &PartitionMap) -> Error {
    let message = if map.new.is_empty() {
        format!("queue {queue_name} is being deleted: repeat the call, or complete the deletion")
    } else {
        format!(
            "the partitions of queue {queue_name} are being changed from {} to {}: repeat the call, \
             or complete the change with `dueq partitions {queue_name} {}`",
            map.old.len(),
            map.new.len(),
            map.new.len()
        )
    };
    Error::new(ErrorKind::Unavailable, Applied::No, message)
}
