//! Reads of a whole queue: when its messages are due, its live nodes, its history and its
//! partitions.

use crate::error::Error;
use crate::model::codec::Codec;
use crate::model::history::{HistoryResolution, QueueHistory, points};
use crate::model::reached::PartialRead;
use crate::model::stats::{DueCounts, NodeInfo, PartitionInfo};
use crate::protocol::counts::MAX_DUES;
use crate::protocol::keys::slot_of;
use crate::protocol::limits;
use crate::protocol::replies::Reply;
use crate::protocol::results::{inspect, nodes};
use crate::protocol::verbs::Verb;
use crate::queue::Queue;
use crate::router::{Routing, Step};
use crate::server::patience::Repeat;

impl<C: Codec> Queue<C> {
    /// Counts the scheduled messages that are due before, between and after these times: up to 60,
    /// in Unix milliseconds of the server, each later than the one before. Sums over all
    /// partitions. Ready messages, whose due time has come, do not count: see
    /// [`stats`](Queue::stats). The timer of a schedule counts as a message at its next fire.
    ///
    /// Costs one count in Redis for each time: 60 times took 0.13 ms among a million messages (Redis
    /// 7.0.15, 2026-11-25). It changes nothing, so it can be repeated and dropped. The rights are those of a producer or consumer.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if there are more than 60 times,
    /// or one is not later than the one before. If a partition cannot be reached, the error names it.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use std::time::Duration;
    ///
    /// orders.push("rate it").delay(Duration::from_secs(90)).await?;
    /// let now_ms = orders.dues(&[]).await?.now_ms;
    /// let minutes = [now_ms + 60_000, now_ms + 120_000];
    /// let dues = orders.dues(&minutes).await?;
    /// assert_eq!(dues.counts, [0, 1, 0]);
    /// assert!(dues.last_ms > Some(now_ms + 80_000));
    /// # });
    /// ```
    pub async fn dues(&self, times_ms: &[u64]) -> Result<DueCounts, Error> {
        dues_of(self.read_all(Verb::Dues, &texts(times_ms)?).await?)
    }

    /// Counts as [`dues`](Queue::dues) does, for monitoring: within 2 s it returns the counts of
    /// the partitions that reply, and names the others.
    ///
    /// # Errors
    /// The errors of [`dues`](Queue::dues), if no partition can be read.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// let dues = orders.dues_reached(&[]).await?;
    /// println!("the last message is due at {:?}", dues.value.last_ms);
    /// # assert!(dues.unread.is_empty());
    /// # });
    /// ```
    pub async fn dues_reached(&self, times_ms: &[u64]) -> Result<PartialRead<DueCounts>, Error> {
        let reached = self.reach_all(Verb::Dues, &texts(times_ms)?).await?;
        reached.map(dues_of)
    }

    /// The live nodes of the queue, sorted by their ids: nodes that sent a beat within 3 s, or
    /// announced a silence. A node is the machinery of one worker. The call returns at most 1,000
    /// nodes of each partition: [`QueueStats::nodes`](crate::QueueStats::nodes) says how many there
    /// are.
    ///
    /// It changes nothing, so it can be repeated and dropped. The rights are those of a consumer.
    ///
    /// # Errors
    /// If a partition cannot be reached, the error names it.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// for node in orders.nodes().await? {
    ///     let leads = if node.leads > 0 { ", the leader" } else { "" };
    ///     println!("{} reported {} ms ago{leads}", node.id, node.silent_ms);
    /// }
    /// # });
    /// ```
    pub async fn nodes(&self) -> Result<Vec<NodeInfo>, Error> {
        nodes_of(self.read_all(Verb::Nodes, &[]).await?)
    }

    /// The live nodes, as [`nodes`](Queue::nodes) returns them, and for each partition up to 20 of
    /// those that fell silent last and had told of their process:
    /// [`NodeInfo::is_alive`] tells them apart. So a lease of a worker that was killed can be
    /// explained. Sorted by their ids.
    ///
    /// It changes nothing, so it can be repeated and dropped. The rights are those of a consumer.
    ///
    /// # Errors
    /// If a partition cannot be reached, the error names it.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// # orders.push("rate it").id("order:42").await?;
    /// let holders = orders.holders().await?;
    /// if let Some(lease) = orders.get("order:42").await?.and_then(|stored| stored.lease) {
    ///     let holder = holders.iter().find(|node| node.has(&lease));
    ///     if let Some(process) = holder.and_then(|node| node.process.as_ref()) {
    ///         println!("process {} on {} has it", process.pid, process.host);
    ///     }
    /// }
    /// # });
    /// ```
    pub async fn holders(&self) -> Result<Vec<NodeInfo>, Error> {
        let replies = self.read_all(Verb::Nodes, &[]).await?;
        let all = replies.into_iter().map(nodes::holders);
        let all: Vec<Vec<_>> = all.collect::<Result<_, _>>()?;
        Ok(NodeInfo::merged(all.into_iter().flatten().collect()))
    }

    /// Lists nodes as [`nodes`](Queue::nodes) does, for monitoring: within 2 s it returns the nodes
    /// of the partitions that reply, and names the other partitions.
    ///
    /// # Errors
    /// If no partition can be read.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// let nodes = orders.nodes_reached().await?;
    /// println!("{} nodes at least", nodes.value.len());
    /// # assert!(nodes.unread.is_empty());
    /// # });
    /// ```
    pub async fn nodes_reached(&self) -> Result<PartialRead<Vec<NodeInfo>>, Error> {
        self.reach_all(Verb::Nodes, &[]).await?.map(nodes_of)
    }
}

fn nodes_of(replies: Vec<Reply>) -> Result<Vec<NodeInfo>, Error> {
    let mut all = Vec::new();
    for reply in replies {
        all.extend(nodes::nodes(reply)?);
    }
    Ok(NodeInfo::merged(all))
}

/// Encodes the times as arguments of a call.
fn texts(times_ms: &[u64]) -> Result<Vec<Vec<u8>>, Error> {
    if times_ms.len() > MAX_DUES {
        return Err(Error::invalid(format!(
            "{} times: one call counts between up to {MAX_DUES}",
            times_ms.len()
        )));
    }
    if let Some(pair) = times_ms.windows(2).find(|pair| pair[0] >= pair[1]) {
        return Err(Error::invalid(format!(
            "the times {} and {}: each must be later than the one before",
            pair[0], pair[1]
        )));
    }
    let texts = times_ms.iter().map(|ms| ms.to_string().into_bytes());
    Ok(texts.collect())
}

fn dues_of(replies: Vec<Reply>) -> Result<DueCounts, Error> {
    let mut sum: Option<DueCounts> = None;
    for reply in replies {
        let part = inspect::dues(reply)?;
        match &mut sum {
            None => sum = Some(part),
            Some(sum) => sum.add(&part),
        }
    }
    Ok(sum.unwrap_or_default())
}

impl<C: Codec> Queue<C> {
    /// What the queue has done in each minute, hour or day, over all its partitions and workers.
    /// Redis keeps it: it survives restarts of workers and producers.
    ///
    /// Workers report their counts every 5 s if something happened. So an event may be counted in
    /// the slot after its own if it was less than 6 s before the end of its slot; in a
    /// [parked](crate::Worker::parking) queue, less than the parking time. While no worker runs,
    /// nothing is recorded: the first slot afterwards has the counts of the whole time. Slots in
    /// which nothing happened are missing. A queue has no history from before its first worker.
    ///
    /// A lost reply may cost one report, so `lateness.count()` may be smaller than `claimed`. It is
    /// never larger than the number of messages that workers took.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use dueq::inspect::HistoryResolution;
    ///
    /// for point in orders.history(HistoryResolution::Hours).await?.points {
    ///     let late_us = point.lateness.quantile_us(0.99).unwrap_or(0);
    ///     println!("{}: {} pushed, {late_us} us late", point.start_ms, point.pushed);
    /// }
    /// # });
    /// ```
    pub async fn history(&self, resolution: HistoryResolution) -> Result<QueueHistory, Error> {
        let word = resolution.word().as_bytes().to_vec();
        merged(resolution, self.read_all(Verb::History, &[word]).await?)
    }

    /// Returns the history as [`history`](Queue::history) does, for monitoring: within 2 s it
    /// returns the history of the partitions that reply, and names the other partitions.
    ///
    /// # Errors
    /// The errors of [`history`](Queue::history), if no partition can be read.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use dueq::inspect::HistoryResolution;
    ///
    /// let history = orders.history_reached(HistoryResolution::Hours).await?;
    /// println!("{} hours, without {} partitions", history.value.points.len(), history.unread.len());
    /// # });
    /// ```
    pub async fn history_reached(
        &self,
        resolution: HistoryResolution,
    ) -> Result<PartialRead<QueueHistory>, Error> {
        let word = resolution.word().as_bytes().to_vec();
        let reached = self.reach_all(Verb::History, &[word]).await?;
        reached.map(|replies| merged(resolution, replies))
    }
}

fn merged(resolution: HistoryResolution, mut replies: Vec<Reply>) -> Result<QueueHistory, Error> {
    let now_us = replies.iter().map(|reply| reply.header.now_us).max();
    let now_ms = u64::try_from(now_us.unwrap_or(0) / 1_000).unwrap_or(0);
    let partitions = replies.iter_mut().map(inspect::records);
    let partitions = partitions.collect::<Result<Vec<_>, _>>()?;
    Ok(QueueHistory {
        resolution,
        now_ms,
        points: points(resolution, now_ms, &partitions),
    })
}

impl<C: Codec> Queue<C> {
    /// Lists the partitions of the queue in the order of their indexes, with the stats of each.
    /// Reads the map first. While the number of partitions changes, the list has the old ones and
    /// then the new ones.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// for partition in orders.partitions().await? {
    ///     println!("{} on {}: {}", partition.index, partition.server, partition.stats.scheduled);
    /// }
    /// # });
    /// ```
    pub async fn partitions(&self) -> Result<Vec<PartitionInfo>, Error> {
        let router = self.router();
        router.refresh(&router.current()).await?;
        let partitions = Routing::new(router).partitions().await?;
        let changing = partitions.map().filter(|map| map.moves());
        let mut found = Vec::new();
        for partition in partitions.list() {
            let mut reply = partition.call(Verb::Stats, &[], Repeat::Harmless).await?;
            found.push(PartitionInfo {
                index: partition.index(),
                tag: partition.tag().to_string(),
                slot: slot_of(partition.keys().meta()),
                server: partition.route().link().await?.connector().address(),
                store: changing
                    .filter(|_| partition.tag().is_far())
                    .and_then(|map| map.url.clone()),
                leaves: changing.is_some_and(|map| !map.new.contains(&partition.tag())),
                joins: changing.is_some_and(|map| !map.old.contains(&partition.tag())),
                stats: inspect::stats(&mut reply)?,
            });
        }
        Ok(found)
    }

    /// The names of the ten keys of the partition that this id belongs to, in the order in which
    /// every script takes them. Reads the map first. While the number of partitions changes, it is
    /// the partition to which the message goes.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// assert_eq!(orders.keys_of("order:42").await?, orders.keys());
    /// # });
    /// ```
    pub async fn keys_of(&self, id: impl AsRef<[u8]>) -> Result<Vec<String>, Error> {
        limits::check_id(id.as_ref())?;
        let router = self.router();
        router.refresh(&router.current()).await?;
        let partitions = Routing::new(router).partitions().await?;
        let partition = partitions.of_id(id.as_ref(), &Step::<()>::New);
        Ok(partition.keys().vector.to_vec())
    }
}
