//! Reads the stats of partitions, and gives partitions their limits.

use crate::error::{Error, ErrorKind};
use crate::model::limits::QueueLimits;
use crate::model::stats::QueueStats;
use crate::partition::Partition;
use crate::protocol::results::inspect;
use crate::protocol::verbs::Verb;
use crate::server::patience::Repeat;

/// Gives a partition that was created again after a loss the limits and the pause of another
/// partition. If the user has no right to do so, an operator's `dueq partitions` does it later.
pub(super) async fn restore_limits(lost: &Partition, from: &Partition) -> Result<(), Error> {
    let (stats, _) = stats(from).await?;
    let restored = async {
        lost.configure_as(&shares_of(&stats)?, from).await?;
        lost.pause_as(&stats).await
    };
    match restored.await {
        Err(error) if error.kind() == ErrorKind::Denied => Ok(()),
        // An operator has removed the partition meanwhile.
        Err(error) if error.is_behind() => Ok(()),
        restored => restored,
    }
}

/// An epoch that no map of this queue has had, even if the queue was deleted meanwhile.
pub(super) async fn next_epoch(home: &Partition, epoch: u64) -> Result<u64, Error> {
    let (_, now_ms) = stats(home).await?;
    Ok(now_ms.max(epoch + 1))
}

/// Reads the stats of one partition, and its server's time in Unix milliseconds.
pub(super) async fn stats(partition: &Partition) -> Result<(QueueStats, u64), Error> {
    let mut reply = partition.call(Verb::Stats, &[], Repeat::Harmless).await?;
    let now_ms = u64::try_from(reply.header.now_us / 1_000).unwrap_or(0);
    Ok((inspect::stats(&mut reply)?, now_ms))
}

/// The limits of a partition, as names and values for `configure`.
pub(super) type PartitionLimits = Vec<String>;

/// The limits of the partition with these stats.
pub(super) fn shares_of(stats: &QueueStats) -> Result<PartitionLimits, Error> {
    Ok(texts(QueueLimits::of_stats(stats, 1).of_partition(1)?))
}

pub(super) fn texts(args: Vec<Vec<u8>>) -> PartitionLimits {
    let text = |arg: Vec<u8>| String::from_utf8_lossy(&arg).into_owned();
    args.into_iter().map(text).collect()
}

impl Partition {
    /// Sets these limits, and the layout of the partition `from`: 3 for a layout of 3 or more.
    pub(super) async fn configure_as(
        &self,
        limits: &PartitionLimits,
        from: &Self,
    ) -> Result<(), Error> {
        let mut args: Vec<&[u8]> = limits.iter().map(String::as_bytes).collect();
        if from.has_layout3().await? {
            args.extend([&b"layout"[..], b"3"]);
        }
        let configured = self.call(Verb::Configure, &args, Repeat::Harmless);
        configured.await.map(drop)
    }

    /// Pauses or closes the partition as long as its queue is.
    pub(super) async fn pause_as(&self, of_queue: &QueueStats) -> Result<(), Error> {
        if of_queue.paused {
            self.call(Verb::Pause, &[], Repeat::Harmless).await?;
        }
        if of_queue.closed_ms > 0 {
            let closed_ms = of_queue.closed_ms.to_string();
            let args = [closed_ms.as_bytes()];
            self.call(Verb::Pause, &args, Repeat::Harmless).await?;
        }
        Ok(())
    }
}
