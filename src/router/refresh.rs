//! Reads the map again, and brings partitions to the newest map.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use crate::error::{Error, ErrorKind};
use crate::partition::{Partition, StoredMap};
use crate::protocol::partition_map::{PartitionMap, Tag};
use crate::router::limits::restore_limits;
use crate::router::{LastRead, Partitions, Router};
use crate::telemetry::events;

/// How long the router waits for the home in a cluster before it looks for copies of the map.
pub(crate) const HOME_LIMIT: Duration = Duration::from_millis(500);

/// Which partitions the router asks for the newest map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ask {
    /// The home. Also all others if the home's map is older than the one this client knows; in a
    /// cluster also if the home is unreachable or does not exist.
    Home,
    All,
}

impl Router {
    /// Called when a partition of `seen` refused a call because of its epoch. Reads the newest map,
    /// and brings the partition to it. Returns `seen` if repeating the call may succeed now.
    pub(crate) async fn resolve(
        &self,
        seen: &Arc<Partitions>,
        partition: &Partition,
        error: &Error,
    ) -> Result<Arc<Partitions>, Error> {
        let now = self.refresh(seen).await?;
        if !Arc::ptr_eq(&now, seen) {
            return Ok(now);
        }
        if partition.tag().is_far() {
            return self.resolve_far(now, partition, error).await;
        }
        match now.map() {
            // The home has the map of the call, and the partition an older one or none: the
            // partition is new, or its master came back without its data.
            Some(map) if error.is_behind() && !map.new.is_empty() => {
                let is_lost = partition.stored_map().await?.incarnation.is_none();
                // An operator may have just removed it at the end of a change. If it was lost, only
                // the change makes it again.
                if is_lost && !map.new.contains(&partition.tag()) {
                    return Ok(now);
                }
                partition.forward(map).await?;
                if is_lost {
                    restore_limits(partition, now.home()).await?;
                }
                Ok(now)
            }
            // The partition has a newer map than the home: the home's master came back without its
            // data.
            Some(_) if !error.is_behind() => self.read_again(seen, Ask::All).await,
            _ => Ok(now),
        }
    }

    /// Reads the map again, unless another caller has replaced `seen` meanwhile.
    pub(crate) async fn refresh(&self, seen: &Arc<Partitions>) -> Result<Arc<Partitions>, Error> {
        self.read_again(seen, Ask::Home).await
    }

    /// Reads the map again if the epoch in a reply of the home differs from that of `seen`.
    pub(crate) async fn confirm(
        &self,
        seen: &Arc<Partitions>,
        epoch: Option<u64>,
    ) -> Result<Arc<Partitions>, Error> {
        if seen.epoch() == epoch {
            return Ok(Arc::clone(seen));
        }
        self.refresh(seen).await
    }

    pub(super) async fn read_again(
        &self,
        seen: &Arc<Partitions>,
        ask: Ask,
    ) -> Result<Arc<Partitions>, Error> {
        let asked = Instant::now();
        let mut last_read = self.refreshing.lock().await;
        let known = self.current();
        let meanwhile = last_read.as_ref().filter(|read| read.began > asked);
        if !Arc::ptr_eq(&known, seen) {
            return Ok(known);
        }
        // Callers also share a failed read, because each read may take seconds while the home's
        // master is unreachable.
        match meanwhile {
            Some(LastRead {
                failed: Some(error),
                ..
            }) => return Err(error.clone()),
            Some(_) if ask == Ask::Home => return Ok(known),
            _ => {}
        }
        let began = Instant::now();
        let map = self.newest(&known, ask).await;
        let failed = map.as_ref().err().cloned();
        self.has_read.fetch_or(failed.is_none(), Ordering::Relaxed);
        *last_read = Some(LastRead { began, failed });
        self.take(map?).await
    }

    /// Makes this map of the near store the current one.
    pub(crate) async fn take(&self, map: Option<PartitionMap>) -> Result<Arc<Partitions>, Error> {
        let known = self.current();
        if known.map() == map.as_ref() {
            return Ok(known);
        }
        let new = Box::pin(self.of_map(&known.stores().near, map)).await?;
        Ok(self.set(new))
    }

    /// Makes this map the current one, for tests without a server.
    #[cfg(test)]
    pub(crate) fn take_settled(&self, map: Option<PartitionMap>) -> Arc<Partitions> {
        let (name, stores) = (&self.queue_name, self.current().stores().clone());
        let new = Partitions::of_map(name, stores, &self.meters, &self.link, map);
        self.set(new.expect("valid tags"))
    }

    /// Makes these partitions the current ones.
    pub(super) fn set(&self, new: Partitions) -> Arc<Partitions> {
        let new = Arc::new(new);
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        *current = Arc::clone(&new);
        drop(current);
        new
    }

    /// Finds the newest map. If another partition has a newer one than the home, writes it to the
    /// home.
    async fn newest(&self, known: &Partitions, ask: Ask) -> Result<Option<PartitionMap>, Error> {
        let is_cluster = known.stores().near.is_cluster();
        let reading = known.home().stored_map();
        let home = match is_cluster {
            true => known.home().within(HOME_LIMIT, reading).await,
            false => reading.await,
        };
        match &home {
            Ok(home) if Some(home.epoch) >= known.epoch() => {
                let is_new = home.map.is_some() && known.map().is_none();
                // In a cluster, a queue that does not exist looks like one whose home was emptied.
                let is_settled = home.incarnation.is_some() || !is_cluster;
                if is_new || ask == Ask::Home && is_settled {
                    return Ok(home.map.clone());
                }
            }
            Err(error) if !is_cluster || !error.is_retryable() => return Err(error.clone()),
            _ => {}
        }
        let copies = self.copies(known, home.is_err()).await;
        let newer = copies.newest.filter(|map| {
            // A map older than the known one counts as the newest only if every partition was read.
            let all_read = home.is_ok() && copies.failed.is_none();
            let is_newest = all_read || Some(map.epoch) >= known.epoch();
            is_newest && home.as_ref().map_or(true, |home| map.epoch > home.epoch)
        });
        let Some(map) = newer else {
            let home = match home {
                // No copy was found, so the router waits for the slow home.
                Err(error) if error.kind() == ErrorKind::Timeout => {
                    known.home().stored_map().await?
                }
                home => home?,
            };
            return match copies.failed {
                // A partition that was not read may have the newest map.
                Some(error) if known.epoch() > Some(home.epoch) || home.incarnation.is_none() => {
                    Err(error)
                }
                _ => Ok(home.map),
            };
        };
        let is_news = known.epoch() < Some(map.epoch);
        let restored = match &home {
            Ok(home) => self.restore(known.home(), home, &map, copies.source).await,
            Err(error) => Err(error.clone()),
        };
        match restored {
            Err(error) if is_news => events::map_copied(&self.queue_name, &error),
            Err(error) if home.is_ok() => return Err(error),
            _ => {}
        }
        Ok(Some(map))
    }

    /// Writes this map to the home. If the home was lost, also gives it the limits of the partition
    /// `source`.
    async fn restore(
        &self,
        home: &Partition,
        stored: &StoredMap,
        map: &PartitionMap,
        source: Option<Tag>,
    ) -> Result<(), Error> {
        home.forward(map).await?;
        if stored.incarnation.is_some() {
            return Ok(());
        }
        let near = Arc::clone(&self.current().stores().near);
        let all = self.of_map(&near, Some(map.clone())).await?;
        match source.and_then(|tag| all.of_tag(tag)) {
            Some(source) => restore_limits(home, source).await,
            None => Ok(()),
        }
    }
}
