//! The partitions of a queue according to one map, and their deletion.

use std::sync::Arc;

use crate::error::{Applied, Error, ErrorKind};
use crate::partition::{Partition, PlaceInQueue, Siblings, StoredMap, Take};
use crate::protocol::partition_map::{PartitionMap, Tag, index_of};
use crate::protocol::results::administer::Remapped;
use crate::router::Router;
use crate::router::repartition::{changed_meanwhile, next_epoch};
use crate::server::servers::Servers;
use crate::telemetry::metrics::Meters;

/// The partitions of a queue according to one map, or the only partition of a queue without a map.
pub(crate) struct Partitions {
    queue_name: String,
    map: Option<PartitionMap>,
    /// The partitions by index. While the map changes: the old ones, then the new ones.
    list: Vec<Arc<Partition>>,
}

impl Partitions {
    pub(super) fn of_map(
        queue_name: &str,
        servers: &Arc<Servers>,
        meters: &Arc<Meters>,
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

    /// The epoch of the map; `None` if there is no map.
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

    /// All partitions, the home first. While the map changes, this includes new ones and those to
    /// be removed.
    pub(crate) fn list(&self) -> &[Arc<Partition>] {
        &self.list
    }

    /// The partition with this tag, if the map has it.
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

    /// The partitions among which ids are distributed.
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

/// The tags before a change of the map, followed by those that the change adds.
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

impl Router {
    /// Closes the home to calls that name an id, and deletes all other partitions. The caller then
    /// deletes the home. With an incarnation, deletes only the queue that has it: returns `false`,
    /// and changes nothing, if the home has another one.
    ///
    /// The home is closed only if it still has the epoch that was read with the incarnation. No
    /// later queue of this name ever has that epoch, and its partitions have newer maps.
    pub(crate) async fn delete_others(&self, incarnation: Option<&str>) -> Result<bool, Error> {
        let known = self.refresh(&self.current()).await?;
        let StoredMap {
            epoch,
            map,
            incarnation: found,
        } = known.home().stored_map().await?;
        if incarnation.is_some_and(|expected| found.as_deref() != Some(expected)) {
            return Ok(false);
        }
        let Some(map) = map else { return Ok(true) };
        let all = self.take(Some(map.clone()))?;
        for partition in all.list() {
            partition.control().check_types(partition.keys()).await?;
        }
        let deleting = if map.new.is_empty() {
            map
        } else {
            let next = next_epoch(known.home(), epoch).await?;
            let deleting = PartitionMap::changing(next, all_tags(&map), Vec::new());
            let closed = known.home().change(epoch, &deleting, Take::WithMessages);
            match closed.await? {
                Remapped::Done => deleting,
                _ => return Err(changed_meanwhile(self.queue_name())),
            }
        };
        let epoch = deleting.epoch;
        let known = self.take(Some(deleting))?;
        for partition in &known.list()[1..] {
            let deleted = match incarnation {
                None => {
                    let deleted = partition.control().delete_keys(partition.keys());
                    deleted.await.map(drop)
                }
                Some(_) => {
                    let deleted = partition.control().delete_of_epoch(partition.keys(), epoch);
                    deleted.await
                }
            };
            deleted.map_err(|error| error.after("the queue was closed"))?;
        }
        Ok(true)
    }
}
