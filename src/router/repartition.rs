//! Changing the partitions of a queue that is new or empty.
//!
//! While the map changes, calls that name an id wait. The operator's process may end after any
//! step: repeating the call then continues from the map at the home.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::{Applied, Error, ErrorKind};
use crate::model::limits::QueueLimits;
use crate::model::stats::QueueStats;
use crate::partition::{Partition, StoredMap, Take};
use crate::protocol::partition_map::{MAX_PARTITIONS, PartitionMap, Tag};
use crate::protocol::placement::place;
use crate::protocol::results::administer::Remapped;
use crate::protocol::results::inspect;
use crate::protocol::verbs::Verb;
use crate::router::partitions::changing;
use crate::router::{Partitions, Router};
use crate::server::patience::Repeat;

/// How long a change waits until partitions have forgotten calls, which they remember for 12 s.
const MEMORY_LIMIT: Duration = Duration::from_secs(15);
const MEMORY_LIMIT_MS: u64 = 15_000;

impl Router {
    /// Gives a queue that is new or empty this number of partitions.
    ///
    /// # Errors
    /// `InvalidInput` if `count` is out of range or the queue holds messages.
    pub(crate) async fn partition_into(&self, count: usize) -> Result<(), Error> {
        if !(1..=MAX_PARTITIONS).contains(&count) {
            return Err(Error::invalid(format!(
                "{count} partitions: a queue has 1 to {MAX_PARTITIONS}"
            )));
        }
        // Read before the refresh, which may write the map back.
        let lost = self.lost_map().await?;
        let known = self.refresh(&self.current()).await?;
        let mut stored = known.home().stored_map().await?;
        if let Some(map) = &lost {
            known.home().forward(map).await?;
            stored.map = lost.clone();
        }
        let known = self.take(stored.map.clone())?;
        match &stored.map {
            Some(map) if map.new.is_empty() => Err(changing(&self.queue_name, map)),
            Some(map) if map.new.len() == count && map.is_settled() => {
                self.settle(&known, map, lost.is_some()).await
            }
            // An earlier change to the same number was interrupted, so it is completed.
            Some(map) if map.new.len() == count => self.complete(&known, map.clone()).await,
            Some(map) if !map.is_settled() => {
                let back = self.take_back(&known, map).await?;
                self.change(&back, count).await
            }
            None if count == 1 => Ok(()),
            _ => self.change(&known, count).await,
        }
    }

    /// Changes a settled map, or gives a queue its first map.
    async fn change(&self, known: &Arc<Partitions>, count: usize) -> Result<(), Error> {
        let old: Vec<Tag> = known.list().iter().map(|one| one.tag()).collect();
        let until = Instant::now() + MEMORY_LIMIT;
        // The deduplication memory of the home needs no wait here: the change itself waits for it.
        for partition in known.list() {
            let (stats, now_ms) = stats(partition).await?;
            refuse_messages(&self.queue_name, &stats)?;
            if partition.tag() == Tag::Home {
                // Fails if the rate or `max_leased` is less than the new number of partitions.
                QueueLimits::of_stats(&stats, known.list().len() as u64).of_partition(count)?;
            }
            if partition.tag() != Tag::Home {
                let memory = partition.remembers_until_ms(now_ms).await?;
                wait_for_memory(&self.queue_name, memory.saturating_sub(now_ms), until).await?;
            }
        }
        let new = place(&self.queue_name, count, &self.servers.masters());
        let StoredMap { epoch, .. } = known.home().stored_map().await?;
        let map = PartitionMap::changing(next_epoch(known.home(), epoch).await?, old, new);
        loop {
            let taken = known.home().change(epoch, &map, Take::IfEmpty).await?;
            match taken {
                Remapped::Done => break,
                Remapped::Has(messages) => return Err(has(&self.queue_name, messages)),
                Remapped::Remembers(ms) => wait_for_memory(&self.queue_name, ms, until).await?,
                Remapped::Epoch(_) => return Err(changed_meanwhile(&self.queue_name)),
            }
        }
        let closed = self.take(Some(map.clone()))?;
        self.complete(&closed, map).await
    }

    /// Completes the change that the home's map describes: closes the other partitions of the old
    /// map, makes those of the new map, and settles the home.
    async fn complete(&self, known: &Arc<Partitions>, map: PartitionMap) -> Result<(), Error> {
        let until = Instant::now() + MEMORY_LIMIT;
        let (of_home, _) = stats(known.home()).await?;
        if let Err(in_use) = refuse_messages(&self.queue_name, &of_home) {
            // The queue was empty when it took the map. A failover has undone the change, and
            // another client has written the map back.
            self.take_back(known, &map).await?;
            return Err(in_use);
        }
        // Read before the loop, because the loop creates a removed partition again when it closes
        // it.
        let limits = limits_of(known, &map, &of_home).await?;
        let mut shares = limits.of_partition(map.new.len())?;
        known.home().add_layout_to(&mut shares).await?;
        for partition in &known.list()[1..map.old.len()] {
            loop {
                let StoredMap { epoch, .. } = partition.stored_map().await?;
                if epoch == map.epoch {
                    break; // a process that ended has closed it
                }
                if epoch > map.epoch {
                    return Err(changed_meanwhile(&self.queue_name));
                }
                match partition.change(epoch, &map, Take::IfEmpty).await? {
                    Remapped::Done => break,
                    Remapped::Has(messages) => {
                        self.take_back(known, &map).await?;
                        return Err(has(&self.queue_name, messages));
                    }
                    Remapped::Remembers(ms) => {
                        let waited = wait_for_memory(&self.queue_name, ms, until).await;
                        if let Err(in_use) = waited {
                            self.take_back(known, &map).await?;
                            return Err(in_use);
                        }
                    }
                    // Another client has given the partition a newer map.
                    Remapped::Epoch(_) if Instant::now() < until => {}
                    Remapped::Epoch(_) => return Err(changed_meanwhile(&self.queue_name)),
                }
            }
        }
        if map.new.len() == 1 {
            // Set before the map is removed, because a repetition that finds no map has nothing to
            // complete.
            known.home().configure_as(&shares, &of_home).await?;
        }
        for partition in &known.list()[1..] {
            if map.new.contains(&partition.tag()) {
                partition.forward(&map).await?;
                partition.configure_as(&shares, &of_home).await?;
            } else {
                self.remove(partition, map.epoch).await?;
            }
        }
        let epoch = next_epoch(known.home(), map.epoch).await?;
        let settled = PartitionMap::settled(epoch, map.new.clone());
        match known
            .home()
            .change(map.epoch, &settled, Take::WithMessages)
            .await?
        {
            Remapped::Done => {}
            _ => return Err(changed_meanwhile(&self.queue_name)),
        }
        let settled_map = (map.new.len() > 1).then_some(settled);
        let known = self.take(settled_map.clone())?;
        match &settled_map {
            Some(map) => self.settle(&known, map, false).await,
            None => Ok(()),
        }
    }

    /// Brings all partitions to the settled map of the home, and to the same limits. `home_is_new`
    /// says that the home was lost and has default limits.
    async fn settle(
        &self,
        known: &Partitions,
        map: &PartitionMap,
        home_is_new: bool,
    ) -> Result<(), Error> {
        let mut source = None;
        for partition in &known.list()[1..] {
            let stored = partition.stored_map().await?.map;
            if stored.is_some_and(|map| home_is_new || !map.is_settled()) {
                source = Some(partition);
                break;
            }
        }
        // While any partition has the map of the change, the home may have only its part of the old
        // limits. Later, only the home's limits are sure: a partition that was lost has the
        // defaults.
        let (stats, _) = stats(source.unwrap_or(known.home())).await?;
        let mut limits = QueueLimits::of_stats(&stats, 1).of_partition(1)?;
        known.home().add_layout_to(&mut limits).await?;
        known.home().configure_as(&limits, &stats).await?;
        for partition in &known.list()[1..] {
            partition.forward(map).await?;
            partition.configure_as(&limits, &stats).await?;
        }
        Ok(())
    }

    /// Reverts a change because the queue holds messages.
    async fn take_back(
        &self,
        known: &Partitions,
        map: &PartitionMap,
    ) -> Result<Arc<Partitions>, Error> {
        let epoch = next_epoch(known.home(), map.epoch).await?;
        let back = PartitionMap::settled(epoch, map.old.clone());
        match known
            .home()
            .change(map.epoch, &back, Take::WithMessages)
            .await?
        {
            Remapped::Done => {}
            _ => return Err(changed_meanwhile(&self.queue_name)),
        }
        for partition in &known.list()[1..] {
            if map.old.contains(&partition.tag()) {
                partition.forward(&back).await?;
            } else {
                self.remove(partition, map.epoch).await?;
            }
        }
        self.take((map.old.len() > 1).then_some(back))
    }

    /// Removes a partition that has this map. The partition may never have got the map, or another
    /// process may have given it a newer map and messages.
    async fn remove(&self, partition: &Partition, epoch: u64) -> Result<(), Error> {
        match partition.remove(epoch).await? {
            Remapped::Epoch(newer) if newer > epoch => Err(changed_meanwhile(&self.queue_name)),
            Remapped::Has(messages) => Err(has(&self.queue_name, messages)),
            _ => Ok(()),
        }
    }
}

/// Gives a partition that was created again after a loss the limits and the pause of another
/// partition. If the user has no right to do so, an operator's `dueq partitions` does it later.
pub(super) async fn restore_limits(lost: &Partition, from: &Partition) -> Result<(), Error> {
    let (stats, _) = stats(from).await?;
    let limits = QueueLimits::of_stats(&stats, 1).of_partition(1)?;
    match lost.configure_as(&limits, &stats).await {
        Err(error) if error.kind() == ErrorKind::Denied => Ok(()),
        restored => restored,
    }
}

/// The limits of a queue whose map changes. Until the map is settled, the home has its share of the
/// limits for the old number of partitions. In a change to one partition, the home gets the whole
/// limits before the last other partition goes.
async fn limits_of(
    known: &Partitions,
    map: &PartitionMap,
    of_home: &QueueStats,
) -> Result<QueueLimits, Error> {
    let old = map.old.len() as u64;
    if map.new.len() > 1 {
        return Ok(QueueLimits::of_stats(of_home, old));
    }
    for partition in &known.list()[1..map.old.len()] {
        if partition.stored_map().await?.map.is_some() {
            let (stats, _) = stats(partition).await?;
            return Ok(QueueLimits::of_stats(&stats, old));
        }
    }
    Ok(QueueLimits::of_stats(of_home, 1))
}

/// An epoch that no map of this queue has had, even if the queue was deleted meanwhile.
pub(super) async fn next_epoch(home: &Partition, epoch: u64) -> Result<u64, Error> {
    let (_, now_ms) = stats(home).await?;
    Ok(now_ms.max(epoch + 1))
}

/// Reads the stats of one partition, and its server's time in Unix milliseconds.
async fn stats(partition: &Partition) -> Result<(QueueStats, u64), Error> {
    let mut reply = partition.call(Verb::Stats, &[], Repeat::Harmless).await?;
    let now_ms = u64::try_from(reply.header.now_us / 1_000).unwrap_or(0);
    Ok((inspect::stats(&mut reply)?, now_ms))
}

impl Partition {
    /// Sets these limits, and gives the partition the pause or closing of its queue.
    async fn configure_as(&self, limits: &[Vec<u8>], of_queue: &QueueStats) -> Result<(), Error> {
        let args: Vec<&[u8]> = limits.iter().map(Vec::as_slice).collect();
        self.call(Verb::Configure, &args, Repeat::Harmless).await?;
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

    /// Adds layout 3 to these limits if the partition has it. The home keeps its layout while the
    /// map changes, but a new partition does not have it yet.
    async fn add_layout_to(&self, limits: &mut Vec<Vec<u8>>) -> Result<(), Error> {
        if self.has_layout3().await? {
            limits.extend([b"layout".to_vec(), b"3".to_vec()]);
        }
        Ok(())
    }

    /// Until when the partition remembers a call or an id that ended, in Unix milliseconds of its
    /// server; `now_ms` if it remembers none.
    async fn remembers_until_ms(&self, now_ms: u64) -> Result<u64, Error> {
        // The placeholder has no score in this range, and dueq writes no score beyond it.
        let recent = self.keys().recent();
        let live = (now_ms, now_ms + MEMORY_LIMIT_MS);
        let last = self.control().last_score(recent, live).await?;
        Ok(last.map_or(now_ms, |score| score.ceil() as u64))
    }
}

async fn wait_for_memory(queue_name: &str, ms: u64, until: Instant) -> Result<(), Error> {
    if ms == 0 {
        return Ok(());
    }
    let wait = Duration::from_millis(ms);
    if Instant::now() + wait > until {
        let message = format!(
            "queue {queue_name} was in use during the last {MEMORY_LIMIT:?}: its partitions remember \
             ids that ended, so that late repetitions are recognised; stop its producers, and \
             repeat the call"
        );
        return Err(Error::new(ErrorKind::Unavailable, Applied::No, message));
    }
    tokio::time::sleep(wait).await;
    Ok(())
}

fn refuse_messages(queue_name: &str, stats: &QueueStats) -> Result<(), Error> {
    match stats.scheduled + stats.ready + stats.leased + stats.dead {
        0 => Ok(()),
        messages => Err(has(queue_name, messages)),
    }
}

fn has(queue_name: &str, messages: u64) -> Error {
    Error::invalid(format!(
        "a partition of queue {queue_name} holds {messages} messages (scheduled, ready, leased or \
         dead): only the partitions of a new or empty queue can be changed; `dueq stats \
         {queue_name}` counts them, `dueq purge` removes them"
    ))
}

pub(super) fn changed_meanwhile(queue_name: &str) -> Error {
    let message = format!(
        "another process changed the partitions of queue {queue_name} meanwhile: repeat the call \
         when it has ended"
    );
    Error::new(ErrorKind::Unavailable, Applied::No, message)
}
