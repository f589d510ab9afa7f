//! The end of a change of the number of partitions: the settled map.

use std::sync::Arc;

use crate::error::{Applied, Error, ErrorKind};
use crate::partition::Partition;
use crate::protocol::partition_map::PartitionMap;
use crate::protocol::results::administer::Remapped;
use crate::router::job::Job;
use crate::router::limits::{next_epoch, shares_of, stats};
use crate::router::plan::Plan;
use crate::router::repartition::changed_meanwhile;
use crate::router::{Partitions, Router};

impl Router {
    /// Settles the map when every message is where it belongs.
    pub(super) async fn close(&self, job: &Job, plan: Plan) -> Result<(), Error> {
        let (map, home) = (&job.map, job.all.home());
        let (of_home, _) = stats(home).await?;
        let plan = plan.rebased(map, &of_home)?;
        plan.keep(home).await?;
        let staying = job.list(&map.new);
        // The home comes last: then its limits say that all have theirs.
        for partition in staying.iter().rev() {
            partition.configure_as(&plan.new, home).await?;
        }
        self.remove_leaving(job).await?;
        let new_home = staying[0].tag();
        let epoch = next_epoch(staying[0], map.epoch).await?;
        let tags = map.new.iter().map(|tag| tag.seen_from(new_home)).collect();
        let settled = PartitionMap::settled(epoch, tags);
        match staying[0].close(map.epoch, &settled).await? {
            Remapped::Done => {}
            _ => return Err(changed_meanwhile(&self.queue_name)),
        }
        if !new_home.is_far() {
            self.take((map.new.len() > 1).then(|| settled.clone()))
                .await?;
        }
        for partition in &staying[1..] {
            partition.forward(&settled).await?;
        }
        self.leave_store(job, epoch).await
    }

    /// Ends a change whose new map is in place. If the queue has left a store, the home there says from
    /// now on where it is; `epoch` is that of the new map.
    pub(super) async fn leave_store(&self, job: &Job, epoch: u64) -> Result<(), Error> {
        let (map, home) = (&job.map, job.all.home());
        let left = job.list(&map.old)[0];
        let url = match left.tag().is_far() {
            true => job.own_url.as_ref(),
            false => map.url.as_ref(),
        };
        if let Some(url) = url {
            let moved = PartitionMap::moved(epoch, url);
            let closed = left.close(map.epoch, &moved).await?;
            let is_gone = async || Ok::<_, Error>(left.stored_map().await?.map == Some(moved));
            if !matches!(closed, Remapped::Done) && !is_gone().await? {
                return Err(changed_meanwhile(&self.queue_name));
            }
            let stored = self.map_at(&self.servers).await?.map;
            self.set(self.of_map(&self.servers, stored).await?);
        }
        // Another process that makes the same change may have made one again.
        self.remove_leaving(job).await?;
        Plan::forget(home, map.epoch).await
    }

    /// Removes the partitions that the new list does not have, but for the home of a store.
    pub(super) async fn remove_leaving(&self, job: &Job) -> Result<(), Error> {
        let map = &job.map;
        let leaves = |one: &&Arc<Partition>| !map.new.contains(&one.tag()) && !one.tag().is_home();
        for partition in job.all.list().iter().filter(leaves) {
            self.remove(partition, map.epoch).await?;
        }
        Ok(())
    }

    /// Removes a partition that has this map. The partition may never have got the map, or another
    /// process may have given it a newer map and messages.
    async fn remove(&self, partition: &Partition, epoch: u64) -> Result<(), Error> {
        match partition.remove(epoch).await? {
            Remapped::Epoch(newer) if newer > epoch => Err(changed_meanwhile(&self.queue_name)),
            Remapped::Has(messages) => Err(Error::new(
                ErrorKind::Internal,
                Applied::No,
                format!(
                    "partition {} of queue {} still holds {messages} messages: repeat the call",
                    partition.tag(),
                    self.queue_name
                ),
            )),
            _ => Ok(()),
        }
    }

    /// Brings all partitions to the settled map of the home, and to the same limits. `home_is_new`
    /// says that the home was lost and has default limits.
    pub(super) async fn settle(
        &self,
        known: &Partitions,
        map: &PartitionMap,
        home_is_new: bool,
    ) -> Result<(), Error> {
        let mut source = known.home();
        for partition in &known.list()[1..] {
            if home_is_new && partition.stored_map().await?.map.is_some() {
                source = partition;
                break;
            }
        }
        let (of_source, _) = stats(source).await?;
        let limits = shares_of(&of_source)?;
        for partition in known.list() {
            partition.forward(map).await?;
            partition.configure_as(&limits, source).await?;
            partition.pause_as(&of_source).await?;
        }
        Plan::forget(known.home(), map.epoch).await
    }
}
