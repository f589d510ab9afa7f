//! Reading a whole queue: when its messages are due, and which nodes live.

use crate::error::Error;
use crate::model::codec::Codec;
use crate::model::dues::Dues;
use crate::model::node_info::NodeInfo;
use crate::model::reached::Reached;
use crate::protocol::counts::MAX_DUES;
use crate::protocol::replies::Reply;
use crate::protocol::results::overview;
use crate::protocol::verbs::Verb;
use crate::queue::Queue;

impl<C: Codec> Queue<C> {
    /// How many scheduled messages are due before, between and after these times: up to 60, in Unix
    /// milliseconds of the server, each later than the one before. Sums over all partitions. Ready
    /// messages, whose due time has come, do not count: see [`stats`](Queue::stats). The timer of a
    /// schedule counts as a message at its next fire.
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
    pub async fn dues(&self, times_ms: &[u64]) -> Result<Dues, Error> {
        dues_of(self.read_all(Verb::Dues, &texts(times_ms)?).await?)
    }

    /// As [`dues`](Queue::dues), for programs that watch: within 2 s it returns the counts of the
    /// partitions that reply, and names the others.
    ///
    /// # Errors
    /// Those of [`dues`](Queue::dues), if no partition can be read.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// let dues = orders.dues_reached(&[]).await?;
    /// println!("the last message is due at {:?}", dues.value.last_ms);
    /// # assert!(dues.unread.is_empty());
    /// # });
    /// ```
    pub async fn dues_reached(&self, times_ms: &[u64]) -> Result<Reached<Dues>, Error> {
        let reached = self.reach_all(Verb::Dues, &texts(times_ms)?).await?;
        reached.map(dues_of)
    }

    /// The live nodes of the queue, sorted by their ids: those that reported within 3 s, or
    /// announced a silence. A node is the machinery of one worker. At most 1,000 of each partition:
    /// [`Stats::nodes`](crate::Stats::nodes) says how many there are.
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

    /// As [`nodes`](Queue::nodes), for programs that watch: within 2 s it returns the nodes that the
    /// partitions know which reply, and names the others.
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
    pub async fn nodes_reached(&self) -> Result<Reached<Vec<NodeInfo>>, Error> {
        self.reach_all(Verb::Nodes, &[]).await?.map(nodes_of)
    }
}

fn nodes_of(replies: Vec<Reply>) -> Result<Vec<NodeInfo>, Error> {
    let mut all = Vec::new();
    for reply in replies {
        all.extend(overview::nodes(reply)?);
    }
    Ok(NodeInfo::merged(all))
}

/// The times as a call has them.
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

fn dues_of(replies: Vec<Reply>) -> Result<Dues, Error> {
    let mut sum: Option<Dues> = None;
    for reply in replies {
        let part = overview::dues(reply)?;
        match &mut sum {
            None => sum = Some(part),
            Some(sum) => sum.add(&part),
        }
    }
    Ok(sum.unwrap_or_default())
}
