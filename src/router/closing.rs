//! The end of a change of the number of partitions: the settled map.

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
        let list = job.all.list();
        let (staying, leaving): (Vec<_>, Vec<_>) =
            list.iter().partition(|one| map.new.contains(&one.tag()));
        // The home comes last: then its limits say that all have theirs.
        for partition in staying.iter().rev() {
            partition.configure_as(&plan.new, home).await?;
        }
        for partition in &leaving {
            self.remove(partition, map.epoch).await?;
        }
        let epoch = next_epoch(home, map.epoch).await?;
        let settled = PartitionMap::settled(epoch, map.new.clone());
        match home.close(map.epoch, &settled).await? {
            Remapped::Done => {}
            _ => return Err(changed_meanwhile(&self.queue_name)),
        }
        self.take((map.new.len() > 1).then(|| settled.clone()))?;
        for partition in &staying[1..] {
            partition.forward(&settled).await?;
        }
        // A client that still had the map of the change may have made one again.
        for partition in &leaving {
            self.remove(partition, map.epoch).await?;
        }
        Plan::forget(home, map.epoch).await
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
