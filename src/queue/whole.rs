//! Calls to all partitions of a queue, the home first.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::error::{Error, ErrorKind};
use crate::model::codec::Codec;
use crate::model::reached::{PartialRead, UnreadPart};
use crate::partition::Partition;
use crate::protocol::replies::Reply;
use crate::protocol::verbs::Verb;
use crate::queue::Queue;
use crate::router::Partitions;
use crate::server::patience::REACH_LIMIT;
use crate::server::patience::Repeat;
use crate::server::rounds::at_once;

/// How long a partial read waits for the map.
const MAP_LIMIT: Duration = Duration::from_millis(1_500);
/// The least time that a partial read has to confirm a new map.
const CONFIRM_LIMIT: Duration = Duration::from_millis(500);

/// How often a call in steps begins anew because messages move between partitions.
const MAX_ROUNDS: usize = 100;

impl<C: Codec> Queue<C> {
    /// Reads every partition, or fails. A call is repeated while a master is unreachable.
    pub(super) async fn read_all(&self, verb: Verb, args: &[Vec<u8>]) -> Result<Vec<Reply>, Error> {
        let known = Box::pin(self.router.learned()).await;
        let read = self.read_each(known, verb, args, None).await?;
        read.whole()
    }

    /// Reads the partitions that reply within 2 s. Their replies are in the order of the indexes.
    pub(super) async fn reach_all(
        &self,
        verb: Verb,
        args: &[Vec<u8>],
    ) -> Result<PartialRead<Vec<Reply>>, Error> {
        let end = Instant::now() + REACH_LIMIT;
        let known = timeout(MAP_LIMIT, Box::pin(self.router.learned())).await;
        let known = known.unwrap_or_else(|_| self.router.current());
        self.read_each(known, verb, args, Some(end)).await
    }

    /// Calls all partitions at once. Repeats this if the home's reply shows that the map has
    /// changed. Fails if no partition replies.
    async fn read_each(
        &self,
        mut partitions: Arc<Partitions>,
        verb: Verb,
        args: &[Vec<u8>],
        end: Option<Instant>,
    ) -> Result<PartialRead<Vec<Reply>>, Error> {
        let left = |end: Instant| end.saturating_duration_since(Instant::now());
        loop {
            let calls = partitions.list().iter().map(|partition| {
                let (partition, args) = (Arc::clone(partition), args.to_vec());
                async move {
                    let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
                    let call = partition.call(verb, &args, Repeat::Harmless);
                    match end {
                        Some(end) => partition.reach(left(end), call).await,
                        None => call.await,
                    }
                }
            });
            let results = at_once(calls).await;
            if let Ok(home) = &results[0]
                && home.header.epoch != partitions.epoch()
            {
                let confirm = self.router.confirm(&partitions, home.header.epoch);
                let newest = match end {
                    // A silent partition may have used up all the time. The home has just replied,
                    // so it gets some more.
                    Some(end) => {
                        let limit = left(end).max(CONFIRM_LIMIT);
                        match partitions.home().within(limit, confirm).await {
                            Err(_) => return reached(&partitions, results),
                            newest => newest,
                        }
                    }
                    None => confirm.await,
                };
                let newest = newest.map_err(Error::of_read)?;
                if !Arc::ptr_eq(&newest, &partitions) {
                    partitions = newest;
                    continue;
                }
            }
            return reached(&partitions, results);
        }
    }

    /// Calls a script at every partition. The home is called first, because its reply shows whether
    /// this client knows the present map. `args` is called with the number of partitions.
    pub(super) async fn call_all(
        &self,
        verb: Verb,
        args: impl Fn(usize) -> Vec<Vec<u8>>,
        repeat: Repeat,
    ) -> Result<Vec<Reply>, Error> {
        let (_, replies) = self.call_each(verb, args, repeat).await?;
        Ok(replies)
    }

    /// Calls a script at every partition as [`call_all`](Self::call_all) does. Returns the
    /// partitions with their replies, in one order.
    pub(super) async fn call_each(
        &self,
        verb: Verb,
        args: impl Fn(usize) -> Vec<Vec<u8>>,
        repeat: Repeat,
    ) -> Result<(Arc<Partitions>, Vec<Reply>), Error> {
        let (partitions, home) = self.call_home(verb, &args, repeat).await?;
        let args = args(partitions.list().len());
        let others = partitions.list()[1..].iter().map(|partition| {
            let (partition, args) = (Arc::clone(partition), args.clone());
            async move {
                let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
                partition.call(verb, &args, repeat).await
            }
        });
        let mut replies = vec![Ok(home)];
        replies.extend(at_once(others).await);
        let replies = all_done(self.name(), &partitions, replies)?;
        Ok((partitions, replies))
    }

    /// Runs a call in steps at every partition, the home first. For each partition, `steps` returns
    /// how many messages it dealt with and the epoch of the partition's map. Returns how many
    /// messages there were in all. If messages moved between partitions meanwhile, further rounds
    /// follow.
    ///
    /// # Errors
    /// Also `Unavailable` if messages still move after 100 rounds.
    pub(super) async fn step_all<F>(
        &self,
        did: &str,
        steps: impl Fn(Arc<Partition>) -> F,
    ) -> Result<u64, Error>
    where
        F: Future<Output = Result<(u64, Option<u64>), Error>> + Send + 'static,
    {
        let (mut before, mut total) = (self.router.departures().await?, 0);
        let after = |total: u64, error: Error| match total {
            0 => error,
            _ => error.after(&format!("{total} messages were {did}")),
        };
        for _ in 0..MAX_ROUNDS {
            let done = self.step_each(did, &steps).await;
            total += done.map_err(|error| after(total, error))?;
            let now = self.router.departures().await;
            let now = now.map_err(|error| after(total, error))?;
            if now.are_those_of(&before) {
                return Ok(total);
            }
            before = now;
        }
        Err(after(total, self.router.current().moving()))
    }

    async fn step_each<F>(
        &self,
        did: &str,
        steps: &impl Fn(Arc<Partition>) -> F,
    ) -> Result<u64, Error>
    where
        F: Future<Output = Result<(u64, Option<u64>), Error>> + Send + 'static,
    {
        let known = Box::pin(self.router.learned()).await;
        let (done, epoch) = steps(Arc::clone(known.home())).await?;
        let partitions = self.router.confirm(&known, epoch).await;
        let partitions = partitions.map_err(|error| match done {
            0 => error.of_read(),
            _ => error.after(&format!("{done} messages were {did}")),
        })?;
        let others = partitions.list()[1..].iter();
        let mut results = vec![Ok(done)];
        for result in at_once(others.map(|partition| steps(Arc::clone(partition)))).await {
            results.push(result.map(|(done, _)| done));
        }
        let total: u64 = results.iter().flatten().sum();
        let all = all_done(self.name(), &partitions, results);
        all.map_err(|error| {
            if total > 0 {
                error.after(&format!("{total} messages were {did}"))
            } else {
                error
            }
        })?;
        Ok(total)
    }

    /// Calls a script at the home until the reply has the epoch of the map that this client knows.
    pub(super) async fn call_home(
        &self,
        verb: Verb,
        args: &impl Fn(usize) -> Vec<Vec<u8>>,
        repeat: Repeat,
    ) -> Result<(Arc<Partitions>, Reply), Error> {
        // The call may create the home, so the map must be known first.
        let mut partitions = Box::pin(self.router.learned()).await;
        loop {
            let args = args(partitions.list().len());
            let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
            let reply = partitions.home().call(verb, &args, repeat).await?;
            let newest = self.router.confirm(&partitions, reply.header.epoch).await;
            let mut newest =
                newest.map_err(|error| error.after("the first partition has done it"))?;
            if reply.header.incarnation.is_empty() {
                newest = Box::pin(self.router.learned()).await;
            }
            if Arc::ptr_eq(&newest, &partitions) {
                return Ok((partitions, reply));
            }
            partitions = newest;
        }
    }
}

/// The replies of the partitions that replied, and the names of the others.
fn reached(
    partitions: &Partitions,
    results: Vec<Result<Reply, Error>>,
) -> Result<PartialRead<Vec<Reply>>, Error> {
    let (mut value, mut unread) = (Vec::new(), Vec::new());
    for (result, partition) in results.into_iter().zip(partitions.list()) {
        match result.map_err(Error::of_read) {
            Ok(reply) => value.push(reply),
            // Any partition would refuse such a call.
            Err(error) if error.kind() == ErrorKind::InvalidInput => return Err(error),
            Err(error) => unread.push(UnreadPart {
                name: format!("partition {} ({})", partition.index(), partition.tag()),
                error,
            }),
        }
    }
    match unread.first() {
        Some(first) if value.is_empty() => Err(first.error.clone()),
        _ => Ok(PartialRead {
            value,
            unread,
            parts: partitions.list().len(),
        }),
    }
}

/// The replies of all partitions, or an error that says which partitions have applied the call.
pub(super) fn all_done<T>(
    queue_name: &str,
    partitions: &Partitions,
    results: Vec<Result<T, Error>>,
) -> Result<Vec<T>, Error> {
    let failed: Vec<_> = results
        .iter()
        .zip(partitions.list())
        .filter_map(|(result, partition)| Some((partition, result.as_ref().err()?)))
        .collect();
    let Some((_, error)) = failed.first() else {
        return results.into_iter().collect();
    };
    if failed.len() == results.len() {
        return Err((*error).clone());
    }
    let names: Vec<_> = failed
        .iter()
        .map(|(partition, _)| format!("{} ({})", partition.index(), partition.tag()))
        .collect();
    Err((*error).clone().partly(&format!(
        "{} of the {} partitions of queue {queue_name} have done it; not: {}",
        results.len() - failed.len(),
        results.len(),
        names.join(", ")
    )))
}
