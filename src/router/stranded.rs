//! Ends batches that are on their way between partitions, when nobody moves them or none may be
//! missed.

use std::time::Duration;

use crate::error::Error;
use crate::partition::{Carrier, Fate};
use crate::protocol::partition_map::Tag;
use crate::protocol::results::administer::{Arrived, batch_number};
use crate::router::Router;
use crate::router::transfer::{no_target, other};
use crate::server::patience::patiently;

impl Router {
    /// Ends the batch of this number that is on its way from the partition with this tag, because
    /// nobody moves it any more: its messages come back, unless it has arrived.
    pub(crate) async fn end_batch(&self, from: Tag, number: u64) -> Result<(), Error> {
        let mut known = self.current();
        if known.map().is_none_or(|map| !map.moves()) {
            // The node may know a map of which this router could not reach the other store.
            known = self.refresh(&known).await?;
        }
        let Some(partition) = known.of_tag(from) else {
            return Ok(());
        };
        // If a failover undoes the end of a batch, it is on its way again, and ends again. So only the
        // target's answer must be certain; on one server it is never lost alone.
        let mut source = Carrier::without_waits(partition)?;
        let mut fate = Fate::None;
        loop {
            let departing = source.depart(fate, 0, other(from), Duration::ZERO, &[]);
            let Some(batch) = departing.await?.filter(|batch| batch.number == number) else {
                return Ok(());
            };
            let target = known.of_tag(batch.tag);
            let target = target.ok_or_else(|| no_target(partition, &batch))?;
            let is_near = target.route().shares_server_with(partition.route());
            let mut target = match is_near {
                true => Carrier::without_waits(target)?,
                false => Carrier::new(target)?,
            };
            let arrived = target.arrive(from, number, &[]).await?;
            fate = match arrived {
                Arrived::Applied(_) => Fate::Done(number),
                Arrived::Void(_) => Fate::Back(number),
            };
        }
    }

    /// Ends the batches that are on their way, and returns what has left each partition so far. Two
    /// equal values mean that no message moved between them, and that none was on its way.
    pub(crate) async fn departures(&self) -> Result<Departures, Error> {
        let known = patiently(|| async { self.refresh(&self.current()).await }).await?;
        let mut departures = Departures {
            epoch: known.epoch(),
            departed: Vec::new(),
            is_moving: false,
        };
        let sources = known.map().filter(|map| map.moves());
        for source in sources.map_or(&[][..], |_| known.list()) {
            let names = ["moving", "departed"];
            let read = patiently(|| source.control().fields(source.keys().meta(), names));
            let [moving, departed] = read.await?;
            if let Some(number) = moving.as_deref().and_then(batch_number) {
                self.end_batch(source.tag(), number).await?;
                departures.is_moving = true;
            }
            departures.departed.push(departed);
        }
        Ok(departures)
    }
}

/// What has left the partitions of a queue that change.
pub(crate) struct Departures {
    epoch: Option<u64>,
    /// The number of the last batch of each partition.
    departed: Vec<Option<String>>,
    /// Whether a batch was on its way.
    is_moving: bool,
}

impl Departures {
    /// Whether no message has moved between partitions since these earlier ones.
    pub(crate) fn are_those_of(&self, earlier: &Self) -> bool {
        let were_still = !self.is_moving && !earlier.is_moving;
        were_still && (self.epoch, &self.departed) == (earlier.epoch, &earlier.departed)
    }
}
