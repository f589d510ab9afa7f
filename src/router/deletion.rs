//! Deleting the partitions of a queue, but for the home.

use crate::error::Error;
use crate::partition::{StoredMap, Take};
use crate::protocol::partition_map::PartitionMap;
use crate::protocol::results::remap::Remapped;
use crate::router::Router;
use crate::router::partitions::all_tags;
use crate::router::repartition::{changed_meanwhile, next_epoch};

impl Router {
    /// Closes the home to calls that name an id, and deletes all other partitions. The home comes
    /// last, and is the caller's to delete. With an incarnation only of that queue: `false` if the
    /// home has another one, and nothing was changed.
    ///
    /// The home is closed only if it still has the epoch that was read beside the incarnation. No
    /// later queue of this name has that epoch again. Partitions of a later queue have newer maps.
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
