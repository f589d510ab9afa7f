//! Finds the orphans of a queue: partitions in Redis that its map does not have. A process that was
//! stopped during a change may make one again after others have ended or taken back the change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::task::JoinSet;

use crate::error::Error;
use crate::partition::{Partition, StoredMap};
use crate::protocol::keys::Keys;
use crate::protocol::partition_map::{PartitionMap, Tag};
use crate::router::{Partitions, Router};
use crate::server::route::RoutedLane;

/// The tags below this are looked at. A map of 12 partitions has all its tags below it in 19 of 20
/// queues, and larger tags are found by the map of a partition with a smaller one.
const FIRST_TAGS: u32 = 256;

/// How many partitions are read at the same time.
const AT_A_TIME: usize = 64;

impl Router {
    /// The orphans with a tag below 256, or with a tag in the map of another orphan; each with the
    /// map that it stores. None while the partitions change.
    pub(crate) async fn orphans(
        &self,
        known: &Partitions,
    ) -> Result<Vec<(Arc<Partition>, StoredMap)>, Error> {
        let home = known.home();
        let before = home.stored_map().await?;
        if before.map.as_ref() != known.map() || known.map().is_some_and(|map| !map.is_settled()) {
            return Ok(Vec::new());
        }
        let mut asked: BTreeSet<Tag> = known.list().iter().map(|one| one.tag()).collect();
        let mut next: BTreeSet<Tag> = (0..FIRST_TAGS).map(Tag::Numbered).collect();
        let mut found = BTreeMap::new();
        while !next.is_empty() {
            let tags: Vec<Tag> = next.difference(&asked).copied().collect();
            next.clear();
            for tags in tags.chunks(AT_A_TIME) {
                for (tag, stored) in self.stored_maps(known, tags).await? {
                    if let Some(map) = &stored.map {
                        let tags = map.old.iter().chain(&map.new);
                        next.extend(tags.filter(|tag| !tag.is_far()));
                    }
                    if stored.incarnation.is_some() {
                        found.insert(tag, stored);
                    }
                }
            }
            asked.extend(tags);
        }
        // A change that began meanwhile has made new partitions, and given the home its map before.
        if found.is_empty() || home.stored_map().await?.epoch != before.epoch {
            return Ok(Vec::new());
        }
        let orphan =
            |(tag, stored): (_, StoredMap)| Ok((self.orphan(known, tag, stored.epoch)?, stored));
        found.into_iter().map(orphan).collect()
    }

    async fn stored_maps(
        &self,
        known: &Partitions,
        tags: &[Tag],
    ) -> Result<Vec<(Tag, StoredMap)>, Error> {
        let mut reads = JoinSet::new();
        for tag in tags {
            let keys = Keys::of_partition(&self.queue_name, *tag)?;
            let control = RoutedLane::control(&known.stores().near.route(&keys));
            let (tag, name) = (*tag, self.queue_name.clone());
            reads.spawn(async move { (tag, StoredMap::read(&control, &name, &keys).await) });
        }
        // The tasks neither panic nor are cancelled.
        let reads = reads.join_all().await.into_iter();
        reads.map(|(tag, stored)| Ok((tag, stored?))).collect()
    }

    fn orphan(&self, known: &Partitions, tag: Tag, epoch: u64) -> Result<Arc<Partition>, Error> {
        let map = PartitionMap::settled(epoch, vec![Tag::Home, tag]);
        let (name, stores) = (&self.queue_name, known.stores().clone());
        let all = Partitions::of_map(name, stores, &self.meters, &self.link, Some(map))?;
        Ok(Arc::clone(&all.list()[1]))
    }
}
