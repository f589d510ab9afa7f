//! What a queue has done in each minute, hour or day.

use crate::error::Error;
use crate::model::codec::Codec;
use crate::model::history::{History, Resolution, points};
use crate::model::reached::Reached;
use crate::protocol::replies::Reply;
use crate::protocol::results::history;
use crate::protocol::verbs::Verb;
use crate::queue::Queue;

impl<C: Codec> Queue<C> {
    /// What the queue has done in each minute, hour or day, over all its partitions and whoever did
    /// it. Redis keeps it: it survives restarts of workers and producers.
    ///
    /// Workers report it, every 5 s if something happened. So what happens may show in the next
    /// slot if it was less than 6 s before the end of its own; of a
    /// [parked](crate::Worker::parking) queue, less than the parking time. While no worker runs,
    /// nothing is recorded: the first slot after that has the counts of the whole pause. Slots in
    /// which nothing happened are missing. A queue has no history from before its first worker.
    ///
    /// A reply that is lost may cost one report, so `lateness.count()` may be smaller than `claimed`.
    /// It is never larger than the number of messages that workers took.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use dueq::Resolution;
    ///
    /// for point in orders.history(Resolution::Hours).await?.points {
    ///     let late_us = point.lateness.quantile_us(0.99).unwrap_or(0);
    ///     println!("{}: {} pushed, {late_us} us late", point.start_ms, point.pushed);
    /// }
    /// # });
    /// ```
    pub async fn history(&self, resolution: Resolution) -> Result<History, Error> {
        let word = resolution.word().as_bytes().to_vec();
        merged(resolution, self.read_all(Verb::History, &[word]).await?)
    }

    /// As [`history`](Queue::history), for programs that watch: within 2 s it returns what the
    /// partitions have done that reply, and names the others.
    ///
    /// # Errors
    /// Those of [`history`](Queue::history), if no partition can be read.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use dueq::Resolution;
    ///
    /// let history = orders.history_reached(Resolution::Hours).await?;
    /// println!("{} hours, without {} partitions", history.value.points.len(), history.unread.len());
    /// # });
    /// ```
    pub async fn history_reached(&self, resolution: Resolution) -> Result<Reached<History>, Error> {
        let word = resolution.word().as_bytes().to_vec();
        let reached = self.reach_all(Verb::History, &[word]).await?;
        reached.map(|replies| merged(resolution, replies))
    }
}

fn merged(resolution: Resolution, mut replies: Vec<Reply>) -> Result<History, Error> {
    let now_us = replies.iter().map(|reply| reply.header.now_us).max();
    let now_ms = u64::try_from(now_us.unwrap_or(0) / 1_000).unwrap_or(0);
    let partitions = replies.iter_mut().map(history::records);
    let partitions = partitions.collect::<Result<Vec<_>, _>>()?;
    Ok(History {
        resolution,
        now_ms,
        points: points(resolution, now_ms, &partitions),
    })
}
