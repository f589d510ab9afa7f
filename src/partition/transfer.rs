//! The calls that move messages from one partition to another, each with a wait for the replicas
//! that follow the master: a failover must not undo one half of a move.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::error::{Applied, Error, ErrorKind};
use crate::model::durability::Durability;
use crate::partition::Partition;
use crate::protocol::partition_map::Tag;
use crate::protocol::replies::Reply;
use crate::protocol::results::administer::{Arrived, Departed};
use crate::protocol::verbs::Verb;
use crate::server::durable::Waited;
use crate::server::patience::{Patience, Repeat};
use crate::server::route::RoutedLane;

/// How long a call waits for the replicas that follow the master.
const REPLICAS_LIMIT: Duration = Duration::from_secs(1);

/// What a partition has done with the batch that it reported.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) enum Fate {
    #[default]
    None,
    /// The batch of this number has arrived.
    Done(u64),
    /// The batch of this number never will.
    Back(u64),
}

/// Moves messages out of a partition, or into it.
pub(crate) struct Carrier {
    partition: Arc<Partition>,
    /// The connection of calls that wait for replicas.
    waiting: RoutedLane,
    /// How many replicas follow the master; `None` until it was asked.
    replicas: Option<u32>,
    /// Whether calls wait for the replicas.
    waits: bool,
}

impl Carrier {
    pub(crate) fn new(partition: &Arc<Partition>) -> Result<Self, Error> {
        // The connection is this carrier's own, so its permit is always free.
        let permit = Arc::new(Semaphore::new(1)).try_acquire_owned();
        let permit = permit.map_err(|error| {
            Error::with_source(ErrorKind::Internal, Applied::No, "no permit", error)
        })?;
        Ok(Self {
            partition: Arc::clone(partition),
            waiting: partition.control().dedicated(permit),
            replicas: None,
            waits: true,
        })
    }

    /// A carrier whose calls do not wait for replicas. A failover may undo them.
    pub(crate) fn without_waits(partition: &Arc<Partition>) -> Result<Self, Error> {
        let waiting = Self::new(partition)?;
        Ok(Self {
            waits: false,
            ..waiting
        })
    }

    pub(crate) fn partition(&self) -> &Arc<Partition> {
        &self.partition
    }

    /// Lets the next call ask how many replicas follow the master.
    pub(crate) fn forget_replicas(&mut self) {
        self.replicas = None;
    }

    /// Takes messages and memory of these names out of the partition, to be stored in the partition
    /// with this tag, but for what is due within `stay`. Returns the batch that is on its way, which may be an earlier one.
    pub(crate) async fn depart(
        &mut self,
        fate: Fate,
        after: u64,
        tag: Tag,
        stay: Duration,
        names: &[Vec<u8>],
    ) -> Result<Option<Departed>, Error> {
        let fate = match fate {
            Fate::None => String::new(),
            Fate::Done(number) => format!("done={number}"),
            Fate::Back(number) => format!("back={number}"),
        };
        let own = self.partition.tag();
        let (after, tag) = (after.to_string(), tag.seen_from(own).to_string());
        let stay_ms = stay.as_millis().to_string();
        let mut args = vec![
            fate.as_bytes(),
            after.as_bytes(),
            tag.as_bytes(),
            stay_ms.as_bytes(),
        ];
        args.extend(names.iter().map(Vec::as_slice));
        let departed = Departed::decode(self.call(Verb::Depart, &args).await?)?;
        Ok(departed.map(|batch| Departed {
            tag: batch.tag.seen_from(own),
            ..batch
        }))
    }

    /// Stores the batch of this number that departed from the partition with this tag.
    pub(crate) async fn arrive(
        &mut self,
        from: Tag,
        number: u64,
        batch: &[u8],
    ) -> Result<Arrived, Error> {
        let from = from.seen_from(self.partition.tag());
        let (from, number) = (from.to_string(), number.to_string());
        let args = [from.as_bytes(), number.as_bytes(), batch];
        Arrived::decode(self.call(Verb::Arrive, &args).await?)
    }

    /// Calls a script with the epoch of the map before `args`, for up to 10 s: both verbs answer a
    /// repetition as the first try.
    async fn call(&mut self, verb: Verb, args: &[&[u8]]) -> Result<Reply, Error> {
        let partition = Arc::clone(&self.partition);
        let fence = partition.fence.as_bytes();
        let args: Vec<&[u8]> = [fence].into_iter().chain(args.iter().copied()).collect();
        let mut patience = Patience::new();
        loop {
            let error = match self.call_once(verb, &args).await {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            partition.meters().call_failed(&error);
            if !patience.allows(&error, Repeat::Harmless) {
                return Err(error);
            }
            self.forget_replicas();
            patience.pause().await;
        }
    }

    async fn call_once(&mut self, verb: Verb, args: &[&[u8]]) -> Result<Reply, Error> {
        let replicas = match self.replicas {
            _ if !self.waits => 0,
            Some(replicas) => replicas,
            None => {
                let lane = self.partition.control().lane().await?;
                let info = lane.info(&["replication"]).await?;
                *self.replicas.insert(info.online_replicas())
            }
        };
        let keys = self.partition.keys();
        if replicas == 0 {
            return self.partition.control().call(verb, keys, args).await;
        }
        let durability = Durability::Replicated {
            replicas,
            timeout: REPLICAS_LIMIT,
        };
        match self
            .waiting
            .call_durably(verb, keys, args, durability)
            .await?
        {
            (reply, Waited::Confirmed) => Ok(reply),
            (_, Waited::Short(shortfall)) => {
                let message = format!("{} of messages is not confirmed: {shortfall}", verb.name());
                Err(Error::new(
                    ErrorKind::Unavailable,
                    Applied::Unknown,
                    message,
                ))
            }
            (_, Waited::Failed(error)) => Err(error),
        }
    }
}
