//! The store of a queue: follows a queue that has moved to another one, and reaches the other one
//! while it moves.

use std::sync::{Arc, PoisonError};

use crate::error::{Applied, Error, ErrorKind};
use crate::partition::{Partition, StoredMap};
use crate::protocol::partition_map::PartitionMap;
use crate::router::limits::restore_limits;
use crate::router::{Partitions, Router};
use crate::server::route::RoutedLane;
use crate::server::servers::Servers;
use crate::server::stores::Stores;

/// How many stores a client follows a queue through. More of them refer to each other.
const MAX_STORES: usize = 4;

impl Router {
    /// The partitions by this map of a store. Connects to the other store that the map names. If the
    /// queue has moved there, these are the partitions by the map there.
    ///
    /// # Errors
    /// `Unavailable` if the other store cannot be used.
    pub(super) async fn of_map(
        &self,
        near: &Arc<Servers>,
        map: Option<PartitionMap>,
    ) -> Result<Partitions, Error> {
        let (mut near, mut map) = (Arc::clone(near), map);
        for _ in 0..MAX_STORES {
            let url = map.as_ref().and_then(|map| map.url.as_deref());
            let far = match url {
                Some(url) => Some(self.others.at(url).await?),
                None => None,
            };
            let moved = map.as_ref().filter(|map| map.is_moved());
            let (Some(to), Some(moved)) = (&far, moved) else {
                let (name, stores) = (&self.queue_name, Stores { near, far });
                return Partitions::of_map(name, stores, &self.meters, &self.link, map);
            };
            if Arc::ptr_eq(&near, &self.servers) {
                let mut known = self.moved.write().unwrap_or_else(PoisonError::into_inner);
                *known = Some(moved.clone());
            }
            near = Arc::clone(to);
            map = self.map_at(&near).await?.map;
        }
        let message = format!(
            "queue {} has moved from store to store, and the last of {MAX_STORES} says that it has moved on",
            self.queue_name
        );
        Err(Error::new(ErrorKind::Server, Applied::No, message))
    }

    /// The map that the home in this store has.
    pub(super) async fn map_at(&self, servers: &Arc<Servers>) -> Result<StoredMap, Error> {
        let control = RoutedLane::control(&servers.route(&self.home_keys));
        StoredMap::read(&control, &self.queue_name, &self.home_keys).await
    }

    /// Called when a partition in the other store refused a call because of its epoch. The home there
    /// may have a newer map than the near one, or the partition an older one than its home.
    pub(super) async fn resolve_far(
        &self,
        now: Arc<Partitions>,
        partition: &Partition,
        error: &Error,
    ) -> Result<Arc<Partitions>, Error> {
        let (Some(map), Some(far_home)) = (now.map(), now.far_home()) else {
            return Ok(now); // the queue does not move any more
        };
        let (Some(url), Some(far)) = (&map.url, &now.stores().far) else {
            return Ok(now);
        };
        let stored = far_home.stored_map().await?;
        if stored.epoch > map.epoch {
            // The move is being taken back, or is complete, and the near home does not know yet.
            return match stored.map {
                Some(there) if there.is_moved() => Ok(now),
                Some(there) if there.url.is_some() => self.take(Some(there.flipped(url))).await,
                there => Ok(self.set(self.of_map(far, there).await?)),
            };
        }
        let there = stored.map.filter(PartitionMap::is_of_two_stores);
        let (Some(mut there), true) = (there, error.is_behind()) else {
            return Ok(now); // the move has not begun there
        };
        if there.epoch < map.epoch {
            // The move is being taken back, and the home there does not know yet.
            there = map.flipped(there.url.as_deref().unwrap_or_default());
            far_home.forward(&there).await?;
        }
        let is_lost = partition.stored_map().await?.incarnation.is_none();
        if is_lost && !there.new.contains(&partition.tag().flipped()) {
            return Ok(now);
        }
        partition.forward(&there).await?;
        if is_lost {
            restore_limits(partition, far_home).await?;
        }
        Ok(now)
    }

    /// The home in the client's own store, if it only says that the queue has moved to another one.
    pub(crate) async fn left_home(&self) -> Result<Option<Arc<Partition>>, Error> {
        let stored = match self.map_at(&self.servers).await {
            // A map that cannot be read does not say so.
            Err(error) if error.kind() == ErrorKind::Server => return Ok(None),
            stored => stored?,
        };
        let has_left = stored.map.is_some_and(|map| map.is_moved());
        Ok(has_left.then(|| Arc::clone(&self.own_home)))
    }

    /// Reads the map again as [`confirm`](Router::confirm) does, for nodes, which serve the partitions
    /// in the client's own store only: `epoch` is of a reply of the home there.
    pub(crate) async fn confirm_own(
        &self,
        seen: &Arc<Partitions>,
        epoch: Option<u64>,
    ) -> Result<Arc<Partitions>, Error> {
        let read = match self.moved_map() {
            None => self.confirm(seen, epoch).await,
            Some(_) => self.stay().await,
        };
        match read {
            Err(error) if error.kind() == ErrorKind::Unavailable => {
                let near = self.near_partitions().await?;
                near.map(Arc::new).ok_or(error)
            }
            read => read,
        }
    }

    /// The partitions in the client's own store only, while the queue moves: a node serves them also if
    /// it cannot reach the other store.
    async fn near_partitions(&self) -> Result<Option<Partitions>, Error> {
        let map = self.map_at(&self.servers).await?.map;
        let Some(map) = map.filter(PartitionMap::is_of_two_stores) else {
            return Ok(None);
        };
        let (name, near) = (&self.queue_name, Arc::clone(&self.servers));
        let stores = Stores { near, far: None };
        Partitions::of_map(name, stores, &self.meters, &self.link, Some(map)).map(Some)
    }

    /// Goes by the map in the client's own store, in place of that of the store to which the queue has
    /// moved.
    pub(crate) async fn stay(&self) -> Result<Arc<Partitions>, Error> {
        let stored = self.map_at(&self.servers).await?;
        Ok(self.set(self.of_map(&self.servers, stored.map).await?))
    }
}
