//! Moving a queue to another store: one Redis server, the service of Sentinels, or a cluster. It is a
//! change of the partitions whose new ones are in the other store.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::error::{Applied, Error, ErrorKind};
use crate::model::stats::QueueStats;
use crate::partition::{Partition, StoredMap};
use crate::protocol::partition_map::{MAX_PARTITIONS, PartitionMap, Tag};
use crate::protocol::placement::place;
use crate::protocol::results::administer::Remapped;
use crate::router::job::Job;
use crate::router::limits::{next_epoch, stats};
use crate::router::partitions::changing;
use crate::router::plan::Plan;
use crate::router::progress::MoveCounts;
use crate::router::repartition::{changed_meanwhile, has_schedules};
use crate::router::{Conduct, Partitions, Router};
use crate::server::stores::{is_local, public_url};

/// By how much the clocks of two stores may differ: messages become due by so much earlier or later.
const MOST_SKEW_MS: u64 = 1_000;

impl Router {
    /// Moves the queue to the store at this URL, into `count` partitions.
    ///
    /// # Errors
    /// `InvalidInput` or `Unavailable` if the queue cannot move there; `Full` if there is no room.
    pub(crate) async fn move_to(
        &self,
        url: &str,
        count: Option<usize>,
        conduct: &Conduct,
    ) -> Result<(), Error> {
        if !count.is_none_or(|count| (1..=MAX_PARTITIONS).contains(&count)) {
            return Err(Error::invalid(format!(
                "a queue has 1 to {MAX_PARTITIONS} partitions"
            )));
        }
        self.others.check_user(url)?;
        let (to, own) = (public_url(url)?, self.others.own_url()?);
        if is_local(&to) != is_local(&own) {
            return Err(Error::invalid(format!(
                "{own} and {to}: one of both means each machine itself, and clients of the other store would follow it: \
                 connect by an address that all of them can reach"
            )));
        }
        let stored = self.map_at(&self.servers).await?;
        match &stored.map {
            Some(map) if map.is_moved() && map.url.as_ref() == Some(&to) => {
                self.take(stored.map.clone()).await?;
                Ok(())
            }
            Some(map) if map.is_moved() => Err(Error::invalid(format!(
                "queue {} has moved to {}: run the command there",
                self.queue_name,
                map.url.as_deref().unwrap_or_default()
            ))),
            Some(map) if map.is_settled() => self.begin_move(stored, to, own, count, conduct).await,
            None => self.begin_move(stored, to, own, count, conduct).await,
            Some(map) => {
                let goes_there = map.url.as_ref() == Some(&to) && !map.new.is_empty();
                let is_same = goes_there && count.is_none_or(|count| count == map.new.len());
                if !is_same || !map.new[0].is_far() {
                    return Err(changing(&self.queue_name, map));
                }
                let known = self.take(stored.map.clone()).await?;
                self.check_driver(known.home(), map).await?;
                self.go_on(known, map.clone(), conduct).await
            }
        }
    }

    /// Completes a move that was interrupted.
    async fn go_on(
        &self,
        known: Arc<Partitions>,
        map: PartitionMap,
        conduct: &Conduct,
    ) -> Result<(), Error> {
        match self.settled_there(&known, &map).await? {
            None => self.complete(map, BTreeSet::new(), conduct).await,
            Some(epoch) => self.leave_store(&self.job(known, map)?, epoch).await,
        }
    }

    async fn begin_move(
        &self,
        stored: StoredMap,
        to: String,
        own: String,
        count: Option<usize>,
        conduct: &Conduct,
    ) -> Result<(), Error> {
        let queue = &self.queue_name;
        let far = self.others.at(&to).await?;
        let there = self.map_at(&far).await?;
        if stored.incarnation.is_none() {
            return Err(Error::invalid(format!("there is no queue {queue} to move")));
        }
        if there.incarnation == stored.incarnation {
            return Err(Error::invalid(format!(
                "{to} is the store in which queue {queue} is"
            )));
        }
        let known = self.set(self.of_map(&self.servers, stored.map.clone()).await?);
        let home = known.home();
        let (of_home, now_ms) = stats(home).await?;
        if of_home.schedules > 0 {
            return Err(has_schedules(queue));
        }
        let old: Vec<Tag> = known.list().iter().map(|one| one.tag()).collect();
        let begun = match &there.map {
            // This command was stopped after its first step.
            Some(map) if map.is_of_two_stores() => {
                let begun = map.flipped(&to);
                let kept = Plan::kept(home).await?;
                let is_own = kept.is_some_and(|plan| plan.is_of(map)) && begun.old == old;
                Some(begun).filter(|begun| is_own && begun.epoch > stored.epoch)
            }
            _ => None,
        };
        let map = match &begun {
            Some(begun) => begun.clone(),
            None => {
                let new = match &there.map {
                    None => place(queue, count.unwrap_or(1), &far.masters()),
                    Some(map) if map.is_moved() => place(queue, count.unwrap_or(1), &far.masters()),
                    Some(map) if map.is_settled() => map.new.clone(),
                    Some(map) => return Err(at(&to, changing(queue, map))),
                };
                let epoch = next_epoch(home, stored.epoch.max(there.epoch)).await?;
                PartitionMap {
                    url: Some(to.clone()),
                    ..PartitionMap::changing(
                        epoch,
                        old,
                        new.into_iter().map(Tag::flipped).collect(),
                    )
                }
            }
        };
        if count.is_some_and(|count| count != map.new.len()) {
            return Err(Error::invalid(format!(
                "queue {queue} has {} partitions at {to} already: leave out the number, or change it there first",
                map.new.len()
            )));
        }
        let all = self.of_map(&self.servers, Some(map.clone())).await?;
        let plan = Plan::from_limits(&map, &of_home)?;
        let target = all.far_home().ok_or_else(|| changed_meanwhile(queue))?;
        if begun.is_none() {
            check_clocks(&to, now_ms, stats(target).await?.1)?;
            for partition in &all.list()[all.near_list().len()..] {
                check_empty(&to, partition).await?;
            }
        }
        check_functions(&to, home, &all).await?;
        self.check_servers(&all, &map).await?;
        check_rights(home, stored.epoch, &map).await?;
        plan.keep(home).await?;
        if begun.is_none() {
            let opened = open(target, there.epoch, &map, &own).await;
            if let Err(error) = opened {
                if error.was_applied() == Applied::No {
                    Plan::forget(home, map.epoch).await?;
                }
                return Err(error);
            }
        }
        let is_empty = self.give_map(home, &map, Some(stored.epoch)).await?;
        let empty = is_empty.then_some(Tag::Home).into_iter().collect();
        self.complete(map, empty, conduct).await
    }

    /// Refuses a store that only takes part: the one from which the move was begun has its plan.
    pub(super) async fn check_driver(
        &self,
        home: &Partition,
        map: &PartitionMap,
    ) -> Result<(), Error> {
        if map.url.is_none() || Plan::kept(home).await?.is_some_and(|plan| plan.is_of(map)) {
            return Ok(());
        }
        Err(changing(&self.queue_name, map))
    }

    /// Refuses to take a move back whose messages are all there.
    pub(super) async fn check_not_complete(
        &self,
        known: &Partitions,
        map: &PartitionMap,
    ) -> Result<(), Error> {
        match self.settled_there(known, map).await? {
            None => Ok(()),
            Some(_) => Err(Error::invalid(format!(
                "queue {} has moved to {}: `dueq move` completes its last step; then it can move back",
                self.queue_name,
                map.url.as_deref().unwrap_or_default()
            ))),
        }
    }

    /// The epoch of the map in the other store, if all messages have moved there.
    async fn settled_there(
        &self,
        known: &Partitions,
        map: &PartitionMap,
    ) -> Result<Option<u64>, Error> {
        let goes = map.is_of_two_stores() && map.new[0].is_far();
        let Some(far_home) = known.far_home().filter(|_| goes) else {
            return Ok(None);
        };
        let stored = far_home.stored_map().await?;
        let is_settled = stored.map.is_none_or(|map| map.url.is_none());
        Ok((stored.epoch > map.epoch && is_settled).then_some(stored.epoch))
    }

    /// Ends in the other store what was taken back, if a process was stopped shortly before, or before
    /// the move began here. Returns whether there was something.
    pub(super) async fn end_taken_back(&self, home: &Arc<Partition>) -> Result<bool, Error> {
        let stored = home.stored_map().await?;
        let kept = Plan::kept(home).await?.and_then(|plan| plan.map);
        let Some(map) = kept.filter(|map| map.url.is_some()) else {
            return Ok(false);
        };
        // As it would be after all messages have come back.
        let (old, new) = match map.new[0].is_far() {
            true => (map.new, map.old),
            false => (map.old, map.new),
        };
        let map = PartitionMap { old, new, ..map };
        let epoch = next_epoch(home, map.epoch.max(stored.epoch)).await?;
        let all = Arc::new(self.of_map(&self.servers, Some(map.clone())).await?);
        let has_map = match all.far_home() {
            Some(far_home) => far_home.stored_map().await?.epoch == map.epoch,
            None => false,
        };
        let job = self.job(all, map)?;
        if has_map {
            self.leave_store(&job, epoch).await?;
        } else {
            Plan::forget(home, job.map.epoch).await?;
        }
        Ok(has_map)
    }

    fn job(&self, all: Arc<Partitions>, map: PartitionMap) -> Result<Job, Error> {
        Ok(Job {
            own_url: Some(self.others.own_url()?),
            map,
            all,
            pace: Default::default(),
            progress: MoveCounts::new(),
        })
    }
}

/// Gives the home in the other store its map, if the queue is empty or absent there.
async fn open(
    target: &Partition,
    expected: u64,
    map: &PartitionMap,
    own: &str,
) -> Result<(), Error> {
    let (queue, to) = (target.queue_name(), map.url.as_deref().unwrap_or_default());
    match target.change_if_empty(expected, &map.flipped(own)).await?.0 {
        Remapped::Done => Ok(()),
        Remapped::Has(messages) => Err(not_empty(queue, to, messages)),
        Remapped::Remembers(ms) => {
            let message = format!(
                "queue {queue} at {to} is empty and remembers calls for another {ms} ms: repeat the command then; nothing \
                 has changed"
            );
            Err(Error::new(ErrorKind::Unavailable, Applied::No, message))
        }
        Remapped::Epoch(_) => Err(at(to, changed_meanwhile(queue))),
    }
}

/// Refuses a partition of the new list that has messages.
async fn check_empty(url: &str, partition: &Partition) -> Result<(), Error> {
    let (stats, _) = stats(partition).await?;
    match held(&stats) {
        0 => Ok(()),
        messages => Err(not_empty(partition.queue_name(), url, messages)),
    }
}

fn held(stats: &QueueStats) -> u64 {
    stats.scheduled + stats.ready + stats.leased + stats.dead + stats.moving
}

fn not_empty(queue: &str, url: &str, messages: u64) -> Error {
    Error::invalid(format!(
        "queue {queue} at {url} has {messages} messages, and must be empty or absent there; nothing has changed"
    ))
}

fn check_clocks(url: &str, here_ms: u64, there_ms: u64) -> Result<(), Error> {
    let skew_ms = here_ms.abs_diff(there_ms);
    if skew_ms <= MOST_SKEW_MS {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "the clock at {url} differs by about {skew_ms} ms, and messages would be due by so much earlier or later: set the \
         clocks; nothing has changed"
    )))
}

/// Refuses a store without the Functions library, if clients in other languages have it here.
async fn check_functions(url: &str, home: &Partition, all: &Partitions) -> Result<(), Error> {
    let here = home.route().link().await?.control.functions_version().await;
    if !matches!(here, Ok(Some(_))) {
        return Ok(()); // it is not there, or the user may not ask
    }
    for partition in &all.list()[all.near_list().len()..] {
        let link = partition.route().link().await?;
        if link.control.functions_version().await?.is_none() {
            return Err(Error::invalid(format!(
                "{} at {url} has no Functions library, and this store has one for clients in other languages: \
                 `dueq functions load` there; nothing has changed",
                link.connector().address()
            )));
        }
    }
    Ok(())
}

/// Asks for a change that the home refuses, because it has another epoch: users without the rights get
/// another answer.
async fn check_rights(home: &Partition, epoch: u64, map: &PartitionMap) -> Result<(), Error> {
    let refused = PartitionMap {
        epoch: epoch.max(map.epoch) + 2,
        ..map.clone()
    };
    home.close(epoch + 1, &refused).await.map(drop)
}

/// The error of the other store.
fn at(url: &str, error: Error) -> Error {
    Error::new(
        error.kind(),
        error.was_applied(),
        format!("at {url}: {error}"),
    )
}
