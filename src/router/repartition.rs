//! Changing the number of partitions of a queue, with its messages.
//!
//! The map at the home says what changes, and each step can be repeated: the process may end after
//! any of them, and the same call goes on. Messages move in `transfer`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::error::{Applied, Error, ErrorKind};
use crate::model::repartition::{RepartitionPhase, RepartitionProgress};
use crate::partition::{Partition, StoredMap};
use crate::protocol::partition_map::{MAX_PARTITIONS, PartitionMap, Tag};
use crate::protocol::placement::place;
use crate::protocol::results::administer::Remapped;
use crate::router::job::Job;
use crate::router::limits::{next_epoch, stats};
use crate::router::partitions::changing;
use crate::router::plan::Plan;
use crate::router::progress::{MoveCounts, Pace};
use crate::router::transfer::Source;
use crate::router::{Partitions, Router};
use crate::server::patience::Patience;
use crate::server::patience::Repeat;

/// How often the progress is reported.
const REPORT_EVERY: Duration = Duration::from_millis(500);

/// How long another process may take to settle the map at the end of a change.
const END_LIMIT: Duration = Duration::from_secs(2);
/// How often the home learns that a process drives the change.
const DRIVEN_EVERY: Duration = Duration::from_secs(3);

/// Hears how far a change is.
pub(crate) type ProgressObserver = Box<dyn Fn(&RepartitionProgress) + Send + Sync>;

/// How a change runs, and who hears of its progress.
#[derive(Default)]
pub(crate) struct Conduct {
    pub(crate) pace: Pace,
    pub(crate) observer: Option<ProgressObserver>,
}

impl Conduct {
    fn report(&self, progress: &MoveCounts, phase: RepartitionPhase) {
        if let Some(observer) = &self.observer {
            observer(&progress.at(phase));
        }
    }
}

impl Router {
    /// Gives the queue this number of partitions.
    ///
    /// # Errors
    /// `InvalidInput` if `count` is out of range, or a limit or a schedule does not allow it;
    /// `Unavailable` if another change runs.
    pub(crate) async fn partition_into(
        &self,
        count: usize,
        conduct: &Conduct,
    ) -> Result<(), Error> {
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
            (stored.map, stored.epoch) = (lost.clone(), map.epoch);
        }
        let known = self.take(stored.map.clone()).await?;
        match stored.map {
            Some(map) if map.new.is_empty() || map.url.is_some() => {
                Err(changing(&self.queue_name, &map))
            }
            Some(map) if map.is_settled() && map.new.len() == count => {
                self.settle(&known, &map, lost.is_some()).await
            }
            Some(map) if map.is_settled() => {
                if lost.is_some() {
                    self.settle(&known, &map, true).await?; // for the limits
                }
                self.begin(&known, stored.epoch, count, conduct).await
            }
            // An earlier change to the same number was interrupted, or runs.
            Some(map) if map.new.len() == count => {
                self.complete(map, BTreeSet::new(), conduct).await
            }
            Some(map) => Err(changing(&self.queue_name, &map)),
            None if count == 1 => Ok(()),
            None => self.begin(&known, stored.epoch, count, conduct).await,
        }
    }

    /// Takes back the change that runs or was interrupted: the messages that have moved move back.
    ///
    /// # Errors
    /// `InvalidInput` if the partitions do not change.
    pub(crate) async fn abort_repartition(&self, conduct: &Conduct) -> Result<(), Error> {
        let known = self.refresh(&self.current()).await?;
        let StoredMap { map, .. } = known.home().stored_map().await?;
        let home = known.home();
        let Some(map) = map.filter(|map| !map.is_settled()) else {
            if self.end_taken_back(home).await? {
                return Ok(());
            }
            return Err(Error::invalid(format!(
                "the partitions of queue {} do not change, and it does not move: there is nothing to take back",
                self.queue_name
            )));
        };
        if map.new.is_empty() {
            return Err(changing(&self.queue_name, &map));
        }
        self.check_driver(home, &map).await?;
        self.check_not_complete(&known, &map).await?;
        let (of_home, _) = stats(home).await?;
        let plan = Plan::of(home, &map, &of_home).await?;
        if plan.takes_back > 0 {
            return self.complete(map, BTreeSet::new(), conduct).await;
        }
        let epoch = next_epoch(home, map.epoch).await?;
        let expected = map.epoch;
        let back = PartitionMap {
            epoch,
            old: map.new,
            new: map.old,
            url: map.url,
        };
        plan.back(&back, expected).keep(home).await?;
        match home.close(expected, &back).await? {
            Remapped::Done => self.complete(back, BTreeSet::new(), conduct).await,
            _ => Err(changed_meanwhile(&self.queue_name)),
        }
    }

    /// Changes a settled map, or gives a queue its first map. `epoch` is that of the home at the
    /// read of the map.
    async fn begin(
        &self,
        known: &Arc<Partitions>,
        epoch: u64,
        count: usize,
        conduct: &Conduct,
    ) -> Result<(), Error> {
        let home = known.home();
        let kept = Plan::kept(home).await?.and_then(|plan| plan.map);
        if let Some(begun) = kept.filter(|map| map.epoch > epoch && map.new[0].is_far()) {
            return Err(changing(&self.queue_name, &begun));
        }
        let old: Vec<Tag> = known.list().iter().map(|one| one.tag()).collect();
        let new = place(&self.queue_name, count, &known.stores().near.masters());
        let map = PartitionMap::changing(next_epoch(home, epoch).await?, old, new);
        let (of_home, _) = stats(home).await?;
        // Fails if the rate or `max_leased` is less than the new number of partitions.
        Plan::from_limits(&map, &of_home)?;
        let all = self.of_map(&known.stores().near, Some(map.clone())).await?;
        self.check_servers(&all, &map).await?;
        let is_empty = self.give_map(home, &map, Some(epoch)).await?;
        let empty = is_empty.then_some(Tag::Home).into_iter().collect();
        self.complete(map, empty, conduct).await
    }

    /// Completes the change that the home's map describes. `empty` has the partitions that held and
    /// remembered nothing when they got the map.
    pub(super) async fn complete(
        &self,
        map: PartitionMap,
        empty: BTreeSet<Tag>,
        conduct: &Conduct,
    ) -> Result<(), Error> {
        let all = self.take(Some(map.clone())).await?;
        let own_url = map.url.as_ref().map(|_| self.others.own_url());
        let job = Arc::new(Job {
            own_url: own_url.transpose()?,
            map,
            all,
            pace: conduct.pace,
            progress: MoveCounts::new(),
        });
        match Box::pin(self.run(&job, empty, conduct)).await {
            Err(error) if error.kind() == ErrorKind::Unavailable => {
                // Another process may have completed the same change.
                let map = self.map_after(&job).await?;
                if map.as_ref().is_some_and(PartitionMap::is_moved) && job.map.new[0].is_far() {
                    self.take(map).await?;
                    return self.remove_leaving(&job).await;
                }
                let tags = map.as_ref().map_or(vec![Tag::Home], |map| map.new.clone());
                if !map.as_ref().is_none_or(PartitionMap::is_settled) || tags != job.map.new {
                    return Err(error);
                }
                self.take(map).await?;
                // This process may have made a partition again that the other one had removed.
                self.remove_leaving(&job).await
            }
            result => result,
        }
    }

    /// The map of the home as soon as it is not this one, or this one after 2 s: another process that
    /// ends the same change removes partitions shortly before it settles the map.
    async fn map_after(&self, job: &Job) -> Result<Option<PartitionMap>, Error> {
        let started = Instant::now();
        loop {
            let StoredMap { map, .. } = job.all.home().stored_map().await?;
            if map.as_ref() != Some(&job.map) || started.elapsed() > END_LIMIT {
                return Ok(map);
            }
            tokio::time::sleep(END_LIMIT / 20).await;
        }
    }

    async fn run(
        &self,
        job: &Arc<Job>,
        mut empty: BTreeSet<Tag>,
        conduct: &Conduct,
    ) -> Result<(), Error> {
        let (map, list, home) = (&job.map, job.all.list(), job.all.home());
        conduct.report(&job.progress, RepartitionPhase::Opening);
        let old = job.list(&map.old);
        let mut joining = job.list(&map.new);
        joining.retain(|partition| !map.old.contains(&partition.tag()));
        for partition in old.iter().filter(|one| !Arc::ptr_eq(one, home)) {
            let tag = partition.tag();
            if self.give_map(partition, &job.map_for(tag), None).await? {
                empty.insert(tag);
            }
        }
        let (of_home, _) = stats(home).await?;
        let mut plan = Plan::of(home, map, &of_home).await?;
        for partition in &joining {
            // When a change is taken back, they are the queue's own partitions.
            if plan.takes_back == 0 {
                refuse_orphan(partition, map.epoch).await?;
            }
            partition.forward(&job.map_for(partition.tag())).await?;
        }
        plan.keep(home).await?;
        for partition in &joining {
            partition.pause_as(&of_home).await?;
        }
        let were_empty = empty.len() == old.len();
        let limited = if were_empty {
            joining
        } else {
            list.iter().collect()
        };
        plan.spread(home, &limited, were_empty).await?;
        for partition in list {
            // This also waits until the replicas have the map.
            if Source::new(job, partition)?.end_earlier().await? {
                // The batch may have come back to a partition that was empty before.
                empty.clear();
            }
        }
        let mut drains = JoinSet::new();
        for partition in old {
            let (of_source, _) = stats(partition).await?;
            let strays = job.expected_strays(partition.tag(), &of_source);
            job.progress.set_left(partition.tag(), strays);
            let was_empty = empty.contains(&partition.tag());
            drains.spawn(Source::new(job, partition)?.drain(was_empty));
        }
        let mut tick = tokio::time::interval(REPORT_EVERY);
        let mut driven = tokio::time::interval(DRIVEN_EVERY);
        loop {
            tokio::select! {
                ended = drains.join_next() => match ended {
                    None => break,
                    Some(Ok(drained)) => drained?,
                    Some(Err(panic)) if panic.is_panic() => {
                        std::panic::resume_unwind(panic.into_panic())
                    }
                    Some(Err(_)) => return Err(changed_meanwhile(&self.queue_name)),
                },
                _ = tick.tick() => conduct.report(&job.progress, RepartitionPhase::Moving),
                _ = driven.tick() => Plan::driven(home).await,
            }
        }
        conduct.report(&job.progress, RepartitionPhase::Closing);
        self.close(job, plan).await?;
        conduct.report(&job.progress, RepartitionPhase::Complete);
        Ok(())
    }

    /// Gives a partition of the old list the map of the change. Returns whether the partition held
    /// and remembered nothing, so that no calls from before have to be forgotten.
    pub(super) async fn give_map(
        &self,
        partition: &Partition,
        map: &PartitionMap,
        expected: Option<u64>,
    ) -> Result<bool, Error> {
        let mut patience = Patience::new();
        loop {
            let stored = partition.stored_map().await?;
            if stored
                .map
                .is_some_and(|stored| stored.describes_change_of(map))
            {
                return Ok(false); // a client or an earlier process gave it the map
            }
            // Two operators may have chosen the same epoch.
            let expected = expected.unwrap_or(stored.epoch);
            if stored.epoch >= map.epoch || stored.epoch != expected {
                return Err(changed_meanwhile(&self.queue_name));
            }
            let changed = match partition.change_if_empty(expected, map).await? {
                (Remapped::Done, is_own) => return Ok(is_own),
                (Remapped::Has(_) | Remapped::Remembers(_), _) => {
                    partition.close(expected, map).await?
                }
                (epoch, _) => epoch,
            };
            match changed {
                Remapped::Done => return Ok(false),
                Remapped::Has(_) => return Err(has_schedules(&self.queue_name)),
                // Another client has given the partition a newer map.
                _ => {}
            }
            let error = changed_meanwhile(&self.queue_name);
            if !patience.allows(&error, Repeat::Harmless) {
                return Err(error);
            }
            patience.pause().await;
        }
    }
}

/// Refuses a partition that has messages of a map with another epoch. A process that was stopped may
/// have made it again after a change had ended.
async fn refuse_orphan(partition: &Partition, epoch: u64) -> Result<(), Error> {
    let stored = partition.stored_map().await?;
    if stored.incarnation.is_none() || stored.epoch == epoch {
        return Ok(());
    }
    let (stats, _) = stats(partition).await?;
    let messages = stats.scheduled + stats.ready + stats.leased + stats.dead;
    if messages == 0 {
        return Ok(());
    }
    let (queue, tag, key) = (
        partition.queue_name(),
        partition.tag(),
        partition.keys().messages(),
    );
    Err(Error::invalid(format!(
        "partition {tag} of queue {queue} has {messages} messages, and is in no map of the queue: look at them with \
         `redis-cli HGETALL '{key}'`, and delete its keys"
    )))
}

pub(super) fn has_schedules(queue_name: &str) -> Error {
    Error::invalid(format!(
        "queue {queue_name} has schedules, which need a queue of one partition: `dueq schedule \
         --queue {queue_name}` lists them"
    ))
}

pub(super) fn changed_meanwhile(queue_name: &str) -> Error {
    let message = format!(
        "another process changed the partitions of queue {queue_name} meanwhile: repeat the call \
         when it has ended"
    );
    Error::new(ErrorKind::Unavailable, Applied::No, message)
}
