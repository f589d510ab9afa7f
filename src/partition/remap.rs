//! The map of a queue's partitions, as each partition stores it.

use crate::error::Error;
use crate::partition::Partition;
use crate::protocol::keys::Keys;
use crate::protocol::partition_map::PartitionMap;
use crate::protocol::results::administer::Remapped;
use crate::protocol::verbs::Verb;
use crate::server::patience::Repeat;
use crate::server::route::RoutedLane;

/// The map that a partition stores, and its epoch.
pub(crate) struct StoredMap {
    /// The epoch of the map. A queue that is back at one partition keeps the epoch of its last map.
    pub(crate) epoch: u64,
    pub(crate) map: Option<PartitionMap>,
    /// The incarnation of the partition, if it exists.
    pub(crate) incarnation: Option<String>,
}

impl StoredMap {
    /// Reads the map that the partition with these keys stores.
    pub(crate) async fn read(
        control: &RoutedLane,
        queue_name: &str,
        keys: &Keys,
    ) -> Result<Self, Error> {
        let names = ["epoch", "map", "incarnation"];
        let [epoch, map, incarnation] = control.fields(keys.meta(), names).await?;
        let map = map.map(|text| PartitionMap::parse(queue_name, &text));
        let map = map.transpose()?;
        let kept = epoch.and_then(|epoch| epoch.parse().ok()).unwrap_or(0);
        Ok(Self {
            epoch: map.as_ref().map_or(kept, |map| map.epoch),
            map,
            incarnation,
        })
    }
}

impl Partition {
    /// Reads the map that the partition stores.
    pub(crate) async fn stored_map(&self) -> Result<StoredMap, Error> {
        StoredMap::read(self.control(), self.queue_name(), self.keys()).await
    }

    /// Whether the partition has layout 3 or a newer one, which a change of the map keeps.
    pub(crate) async fn has_layout3(&self) -> Result<bool, Error> {
        let [layout] = self
            .control()
            .fields(self.keys().meta(), ["layout"])
            .await?;
        Ok(layout.as_deref() >= Some("3"))
    }

    /// Gives the partition this map if its own is older or missing. Creates the partition if it
    /// does not exist.
    pub(crate) async fn forward(&self, map: &PartitionMap) -> Result<(), Error> {
        let map = map.to_string();
        self.remap(&[b"forward", map.as_bytes()]).await.map(drop)
    }

    /// Gives the partition this map in place of the one with epoch `expected`, whatever it holds.
    pub(crate) async fn close(&self, expected: u64, map: &PartitionMap) -> Result<Remapped, Error> {
        let (expected, map) = (expected.to_string(), map.to_string());
        self.remap(&[b"close", expected.as_bytes(), map.as_bytes()])
            .await
    }

    /// Gives the partition this map as [`close`](Self::close) does, if it is empty. Also returns
    /// whether this call did it: a client may have given the partition the map with its messages,
    /// and if it did so within the same millisecond, the answer is wrong.
    pub(crate) async fn change_if_empty(
        &self,
        expected: u64,
        map: &PartitionMap,
    ) -> Result<(Remapped, bool), Error> {
        let (expected, map) = (expected.to_string(), map.to_string());
        let args = [&b"change"[..], expected.as_bytes(), map.as_bytes()];
        let reply = self.call(Verb::Remap, &args, Repeat::Harmless).await?;
        let now_us = reply.header.now_us;
        let remapped = Remapped::decode(reply)?;
        let meta = self.keys().meta();
        let [mapped_ms] = self.control().fields(meta, ["mapped_ms"]).await?;
        let own_ms = now_us.div_euclid(1_000) + i64::from(now_us % 1_000 > 0);
        Ok((
            remapped,
            mapped_ms.is_some_and(|ms| ms == own_ms.to_string()),
        ))
    }

    /// Removes the partition if it is empty and its map has this epoch. Must not be called for the
    /// home.
    pub(crate) async fn remove(&self, epoch: u64) -> Result<Remapped, Error> {
        let epoch = epoch.to_string();
        self.remap(&[b"remove", epoch.as_bytes()]).await
    }

    async fn remap(&self, args: &[&[u8]]) -> Result<Remapped, Error> {
        // A repetition finds the new map in place, and answers as the first try did.
        Remapped::decode(self.call(Verb::Remap, args, Repeat::Harmless).await?)
    }
}
