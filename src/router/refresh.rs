//! Reading the map again, and bringing partitions to the newest one.

use std::sync::{Arc, PoisonError};
use std::time::Instant;

use crate::error::Error;
use crate::partition::Partition;
use crate::protocol::partition_map::PartitionMap;
use crate::router::{LastRead, Partitions, Router};

/// Which partitions are asked for the newest map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ask {
    /// The home. If it has an older map than this client knows, all others too.
    Home,
    All,
}

impl Router {
    /// A partition of `seen` refused a call because of its epoch: learns the newest map, and brings
    /// the partition to it. Returns `seen` if the same call may succeed now.
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
        match now.map() {
            // The home has the map of the call, and the partition an older one or none: it is new,
            // or its master came back without it.
            Some(map) if error.is_behind() && map.is_settled() => {
                partition.forward(map).await?;
                Ok(now)
            }
            // A partition has a newer map than the home: the home's master came back without it.
            Some(_) if !error.is_behind() => self.read_again(seen, Ask::All).await,
            _ => Ok(now),
        }
    }

    /// Reads the map again, unless another caller has replaced `seen` meanwhile.
    pub(crate) async fn refresh(&self, seen: &Arc<Partitions>) -> Result<Arc<Partitions>, Error> {
        self.read_again(seen, Ask::Home).await
    }

    /// Reads the map again if the epoch in a reply of the home is not that of `seen`.
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

    async fn read_again(&self, seen: &Arc<Partitions>, ask: Ask) -> Result<Arc<Partitions>, Error> {
        let asked = Instant::now();
        let mut last_read = self.refreshing.lock().await;
        let known = self.current();
        let meanwhile = last_read.as_ref().filter(|read| read.began > asked);
        if !Arc::ptr_eq(&known, seen) {
            return Ok(known);
        }
        // A failed read is shared too: each may take seconds while the home's master is away.
        match meanwhile {
            Some(LastRead {
                failed: Some(error),
                ..
            }) => return Err(error.clone()),
            Some(_) if ask == Ask::Home => return Ok(known),
            _ => {}
        }
        let began = Instant::now();
        let map = newest(&known, ask).await;
        let failed = map.as_ref().err().cloned();
        *last_read = Some(LastRead { began, failed });
        self.take(map?)
    }

    /// Takes this map as the current one.
    pub(crate) fn take(&self, map: Option<PartitionMap>) -> Result<Arc<Partitions>, Error> {
        let known = self.current();
        if known.map() == map.as_ref() {
            return Ok(known);
        }
        let (name, servers) = (&self.queue_name, &self.servers);
        let new = Partitions::of_map(name, servers, &self.meters, &self.open, map)?;
        let new = Arc::new(new);
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        *current = Arc::clone(&new);
        drop(current);
        Ok(new)
    }
}

/// The newest map. If another partition has a newer one than the home, it is written back to the
/// home.
async fn newest(known: &Partitions, ask: Ask) -> Result<Option<PartitionMap>, Error> {
    let home = known.home().stored_map().await?;
    if ask == Ask::Home && Some(home.epoch) >= known.epoch() {
        return Ok(home.map);
    }
    let mut newest = home;
    for partition in &known.list()[1..] {
        let stored = partition.stored_map().await?;
        if stored.map.is_some() && stored.epoch > newest.epoch {
            newest = stored;
        }
    }
    if let Some(map) = &newest.map {
        known.home().forward(map).await?;
    }
    Ok(newest.map)
}
