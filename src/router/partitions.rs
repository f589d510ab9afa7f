//! The partitions of a queue according to one map, and their deletion.

use std::sync::Arc;

use crate::error::{Applied, Error, ErrorKind};
use crate::partition::{Partition, PlaceInQueue, QueueLink, Siblings, StoredMap};
use crate::protocol::partition_map::{PartitionMap, Tag, index_of};
use crate::protocol::results::administer::Remapped;
use crate::router::Router;
use crate::router::limits::next_epoch;
use crate::router::repartition::changed_meanwhile;
use crate::server::stores::Stores;
use crate::telemetry::metrics::Meters;

/// The partitions of a queue according to one map, or the only partition of a queue without a map.
pub(crate) struct Partitions {
    queue_name: String,
    map: Option<PartitionMap>,
    stores: Stores,
    /// The partitions by index. While the map changes: the old ones, then the new ones, and then
    /// each of them again for probes. While the queue moves, those of the near store come first.
    all: Vec<Arc<Partition>>,
    /// How many partitions there are.
    count: usize,
    /// How many of them are in the near store.
    near: usize,
    /// While the map changes: the places in `all` of the old list's partitions.
    old: Vec<usize>,
    /// While the map changes: the places in `all` of the new list's partitions.
    new: Vec<usize>,
}

/// Which partition an item goes to next, while the map changes: its message is in the partition of
/// the old list, in that of the new list, or on its way there.
#[derive(Clone)]
pub(crate) enum Step<T> {
    /// To that of the old list, as a probe, which creates nothing there. An id that the library has
    /// just made goes there as well: the probe brings the map to that partition, and who is told the
    /// id may have an older map.
    Old,
    /// To that of the new list: the message is not in the old one.
    New,
    /// To that of the new list, as a probe. The old one remembers the id: this is the result unless
    /// the new one has the message.
    Ask(Result<T, Error>),
}

impl Partitions {
    pub(super) fn of_map(
        queue_name: &str,
        stores: Stores,
        meters: &Arc<Meters>,
        queue: &QueueLink,
        map: Option<PartitionMap>,
    ) -> Result<Self, Error> {
        let mut tags = map.as_ref().map_or_else(|| vec![Tag::Home], all_tags);
        if stores.far.is_none() {
            tags.retain(|tag| !tag.is_far());
        }
        let epoch = map.as_ref().map(|map| map.epoch);
        let changing = map.as_ref().filter(|map| map.moves());
        let lists = match changing {
            Some(map) => vec![&map.old, &map.new],
            None => vec![&tags],
        };
        let siblings = Siblings::new(queue_name, &tags, &stores, queue)?;
        let partition = |tag: &Tag, index: usize, probes: bool| {
            let in_list = |list: &&Vec<Tag>| (list.iter().position(|one| one == tag), list.len());
            let place = PlaceInQueue {
                tag: *tag,
                epoch,
                index,
                lists: lists.iter().map(in_list).collect(),
                probes,
                siblings: Arc::clone(&siblings),
            };
            Partition::new(queue_name, place, stores.of(*tag), meters).map(Arc::new)
        };
        let kinds: &[bool] = if changing.is_some() {
            &[false, true]
        } else {
            &[false]
        };
        let places = kinds.iter().flat_map(|probes| {
            let tags = tags.iter().enumerate();
            tags.map(|(index, tag)| partition(tag, index, *probes))
        });
        let all = places.collect::<Result<_, _>>()?;
        let of_tag = |tag: &Tag| tags.iter().position(|one| one == tag);
        let of_list = |list: &[Tag]| list.iter().filter_map(of_tag).collect();
        Ok(Self {
            queue_name: queue_name.to_owned(),
            stores,
            all,
            count: tags.len(),
            near: tags.iter().filter(|tag| !tag.is_far()).count(),
            old: changing.map_or_else(Vec::new, |map| of_list(&map.old)),
            new: changing.map_or_else(Vec::new, |map| of_list(&map.new)),
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

    pub(crate) fn stores(&self) -> &Stores {
        &self.stores
    }

    /// The partition with index 0, in the near store.
    pub(crate) fn home(&self) -> &Arc<Partition> {
        &self.all[0]
    }

    /// The home in the other store, while the queue moves.
    pub(crate) fn far_home(&self) -> Option<&Arc<Partition>> {
        self.list().get(self.near)
    }

    /// All partitions, the home first. While the map changes, this includes new ones and those to
    /// be removed.
    pub(crate) fn list(&self) -> &[Arc<Partition>] {
        &self.all[..self.count]
    }

    /// The partitions in the near store, the home first.
    pub(crate) fn near_list(&self) -> &[Arc<Partition>] {
        &self.all[..self.near]
    }

    /// The places of all partitions: those of `list`, and while the map changes again each of them
    /// for probes.
    pub(crate) fn places(&self) -> &[Arc<Partition>] {
        &self.all
    }

    /// The partition with this tag, if the map has it.
    pub(crate) fn of_tag(&self, tag: Tag) -> Option<&Arc<Partition>> {
        self.list().iter().find(|partition| partition.tag() == tag)
    }

    /// The place to which an item with this id goes at this step. Must not be called while the
    /// queue is being deleted.
    pub(crate) fn place<T>(&self, id: &[u8], step: &Step<T>) -> usize {
        if self.new.is_empty() {
            return index_of(id, self.count);
        }
        let old = self.old[index_of(id, self.old.len())];
        let new = self.new[index_of(id, self.new.len())];
        match step {
            _ if old == new => new,
            Step::New => new,
            Step::Old => self.count + old,
            Step::Ask(_) => self.count + new,
        }
    }

    /// The partition to which an item with this id goes at this step: see [`place`](Self::place).
    pub(crate) fn of_id<T>(&self, id: &[u8], step: &Step<T>) -> &Arc<Partition> {
        &self.all[self.place(id, step)]
    }

    /// Among how many partitions new ids are distributed.
    pub(crate) fn takers(&self) -> usize {
        match self.new.len() {
            0 => self.count,
            new => new,
        }
    }

    /// The place of the partition with this index among those that new ids are distributed among.
    pub(crate) fn taker(&self, index: usize) -> usize {
        self.new.get(index).copied().unwrap_or(index)
    }

    /// Refuses calls that name an id while the queue is being deleted.
    pub(crate) fn check_deletion(&self) -> Result<(), Error> {
        match &self.map {
            Some(map) if map.new.is_empty() => Err(changing(&self.queue_name, map)),
            _ => Ok(()),
        }
    }

    /// The error of a call whose message is on its way to another partition for 10 s.
    pub(crate) fn moving(&self) -> Error {
        match &self.map {
            Some(map) => changing(&self.queue_name, map),
            None => changed_meanwhile(&self.queue_name),
        }
    }
}

/// The tags before a change of the map, followed by those that the change adds. If the old ones are in
/// the other store, they come last.
fn all_tags(map: &PartitionMap) -> Vec<Tag> {
    let (first, last) = match map.old.first() {
        Some(tag) if tag.is_far() => (&map.new, &map.old),
        _ => (&map.old, &map.new),
    };
    let others = last.iter().filter(|tag| !first.contains(tag));
    first.iter().chain(others).copied().collect()
}

/// The error of a call that waits for a change of the partitions or a deletion.
pub(super) fn changing(queue_name: &str, map: &PartitionMap) -> Error {
    let message = if map.new.is_empty() {
        format!("queue {queue_name} is being deleted: repeat the call, or complete the deletion")
    } else if let Some(url) = &map.url {
        let (from, to) = match map.new[0].is_far() {
            true => ("this store", url.as_str()),
            false => (url.as_str(), "this store"),
        };
        format!(
            "queue {queue_name} moves from {from} to {to}: unless a process still does it, complete it with \
             `dueq move` at the store from which it was begun, or take it back there with `dueq move {queue_name} --abort`"
        )
    } else {
        format!(
            "the partitions of queue {queue_name} are being changed from {} to {}: unless a process still \
             does it, complete the change with `dueq partitions {queue_name} {}`, or take it back with \
             `dueq partitions {queue_name} --abort`",
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
        if map.is_of_two_stores() {
            return Err(changing(self.queue_name(), &map));
        }
        let all = self.take(Some(map.clone())).await?;
        for partition in all.list() {
            partition.control().check_types(partition.keys()).await?;
        }
        let deleting = if map.new.is_empty() {
            map
        } else {
            let next = next_epoch(known.home(), epoch).await?;
            let deleting = PartitionMap::changing(next, all_tags(&map), Vec::new());
            let closed = known.home().close(epoch, &deleting);
            match closed.await? {
                Remapped::Done => deleting,
                _ => return Err(changed_meanwhile(self.queue_name())),
            }
        };
        let epoch = deleting.epoch;
        let known = self.take(Some(deleting)).await?;
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
