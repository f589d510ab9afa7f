//! Closes the other partitions of a queue after a throttle of one delivery.

use std::sync::{Arc, PoisonError};

use tokio::task::JoinSet;

use crate::error::{Applied, Error, ErrorKind};
use crate::partition::{Partition, PlaceInQueue, QueueLink, WholeQueue};
use crate::protocol::keys::Keys;
use crate::protocol::partition_map::Tag;
use crate::protocol::verbs::Verb;
use crate::server::patience::Repeat;
use crate::server::route::RoutedLane;
use crate::server::stores::Stores;
use crate::telemetry::metrics::Meters;

/// The partitions of one map and their queue, for calls that close all but one. All partitions of the map share it.
///
/// The calls are made in rounds. The first caller closes the partitions; all callers that come
/// meanwhile share the next round, which uses the longest of their times. So 64 handlers that
/// throttle together cause at most two rounds.
pub(crate) struct Siblings {
    queue_name: String,
    queue: QueueLink,
    list: Vec<Sibling>,
    next: std::sync::Mutex<Round>,
    last: tokio::sync::Mutex<LastRound>,
}

/// A partition without its batchers.
#[derive(Clone)]
struct Sibling {
    tag: Tag,
    keys: Arc<Keys>,
    control: Arc<RoutedLane>,
}

/// The round that new callers join.
struct Round {
    number: u64,
    wait_ms: u64,
}

/// The round that ended last.
struct LastRound {
    number: u64,
    wait_ms: u64,
    failed: Option<Error>,
}

impl Siblings {
    /// Makes the list of partitions with these tags, by index.
    ///
    /// # Errors
    /// `InvalidInput` if the name is not valid.
    pub(crate) fn new(
        queue_name: &str,
        tags: &[Tag],
        stores: &Stores,
        queue: &QueueLink,
    ) -> Result<Arc<Self>, Error> {
        let sibling = |tag: &Tag| {
            let keys = Arc::new(Keys::of_partition(queue_name, *tag)?);
            let control = Arc::new(RoutedLane::control(&stores.of(*tag).route(&keys)));
            Ok(Sibling {
                tag: *tag,
                keys,
                control,
            })
        };
        let only = tags.len() == 1;
        Ok(Arc::new(Self {
            queue_name: queue_name.to_owned(),
            queue: Arc::clone(queue),
            list: match only {
                true => Vec::new(),
                false => tags.iter().map(sibling).collect::<Result<_, Error>>()?,
            },
            next: std::sync::Mutex::new(Round {
                number: 1,
                wait_ms: 0,
            }),
            last: tokio::sync::Mutex::new(LastRound {
                number: 0,
                wait_ms: 0,
                failed: None,
            }),
        }))
    }

    /// Closes all partitions but the one with the tag `own` for `wait_ms` from now, by calls that
    /// begin after this one. Each call is repeated for up to 10 s.
    async fn close_others(
        &self,
        own: Tag,
        wait_ms: u64,
        meters: &Arc<Meters>,
    ) -> Result<(), Error> {
        let number = {
            let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
            next.wait_ms = next.wait_ms.max(wait_ms);
            next.number
        };
        let mut last = self.last.lock().await;
        // Both are compared: if the future that ran this round was dropped, the next round was run
        // without its time.
        if last.number >= number && last.wait_ms >= wait_ms {
            return last.failed.clone().map_or(Ok(()), Err);
        }
        let round = {
            let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
            let begun = Round {
                number: next.number,
                wait_ms: next.wait_ms.max(wait_ms),
            };
            *next = Round {
                number: begun.number + 1,
                wait_ms: 0,
            };
            begun
        };
        // If other callers share the round, the caller's own partition is closed as well: the
        // others may belong to other partitions.
        let failed = self.close(own, round.wait_ms, meters).await.err();
        *last = LastRound {
            number: round.number,
            wait_ms: round.wait_ms,
            failed: failed.clone(),
        };
        failed.map_or(Ok(()), Err)
    }

    async fn close(&self, own: Tag, wait_ms: u64, meters: &Arc<Meters>) -> Result<(), Error> {
        let mut calls = JoinSet::new();
        for (index, sibling) in self.list.iter().enumerate() {
            let (sibling, meters) = (sibling.clone(), Arc::clone(meters));
            calls.spawn(async move { (index, sibling.close(wait_ms, &meters).await) });
        }
        let mut failed = Vec::new();
        while let Some(ended) = calls.join_next().await {
            match ended {
                // The settlement itself closes the caller's own partition.
                Ok((index, Err(error))) if self.list[index].tag != own => {
                    failed.push((index, error));
                }
                Ok(_) => {}
                Err(panic) if panic.is_panic() => {
                    std::panic::resume_unwind(panic.into_panic());
                }
                Err(_) => {
                    let message = "the runtime shut down while partitions were closed";
                    return Err(Error::new(ErrorKind::Internal, Applied::Yes, message));
                }
            }
        }
        failed.sort_by_key(|(index, _)| *index);
        let Some((_, error)) = failed.first() else {
            return Ok(());
        };
        let names: Vec<_> = failed
            .iter()
            .map(|(index, _)| format!("{index} ({})", self.list[*index].tag))
            .collect();
        Err(error.clone().beside(&format!(
            "the delivery is settled, and {} of the {} partitions of queue {} are closed; not: {}",
            self.list.len() - failed.len(),
            self.list.len(),
            self.queue_name,
            names.join(", ")
        )))
    }
}

impl Sibling {
    async fn close(&self, wait_ms: u64, meters: &Meters) -> Result<(), Error> {
        let wait_ms = wait_ms.to_string();
        let args = [&b""[..], b"close", wait_ms.as_bytes()];
        let failed = |error: &Error| meters.call_failed(error);
        let (verb, repeat) = (Verb::Throttle, Repeat::Harmless);
        let call = self
            .control
            .call_patiently(verb, &self.keys, &args, repeat, failed);
        call.await.map(drop)
    }
}

impl Partition {
    /// The whole queue.
    ///
    /// # Errors
    /// `Internal` if the partition was made without one.
    pub(crate) fn queue(&self) -> Result<&dyn WholeQueue, Error> {
        let queue = self.place.siblings.queue.get().map(|queue| &**queue);
        queue.ok_or_else(|| {
            let message = "the partition belongs to no queue";
            Error::new(ErrorKind::Internal, Applied::No, message)
        })
    }

    /// Closes the other partitions of the queue for this long: those in the map that this process
    /// knows.
    ///
    /// # Errors
    /// The error names the partitions that could not be closed within 10 s.
    pub(crate) async fn close_others(&self, wait_ms: u64) -> Result<(), Error> {
        let PlaceInQueue { siblings, tag, .. } = &self.place;
        if siblings.list.is_empty() {
            return Ok(());
        }
        Box::pin(siblings.close_others(*tag, wait_ms, &self.meters)).await
    }
}
