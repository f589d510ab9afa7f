//! Ends batches that are on their way between partitions, when nobody moves them or none may be
//! missed.

use std::time::Duration;

use crate::error::{Applied, Error, ErrorKind};
use crate::partition::{Carrier, Fate, Partition};
use crate::protocol::partition_map::Tag;
use crate::protocol::results::administer::{Arrived, Departed, batch_number};
use crate::router::Router;
use crate::server::patience::patiently;

impl Router {
    /// Ends the batch of this number that is on its way from the partition with this tag, because
    /// nobody moves it any more: its messages come back, unless it has arrived.
    pub(crate) async fn end_batch(&self, from: Tag, number: u64) -> Result<(), Error> {
        let known = self.current();
        let Some(partition) = known.of_tag(from) else {
            return Ok(());
        };
        let mut source = Carrier::new(partition)?;
        let mut fate = Fate::None;
        loop {
            let departing = source.depart(fate, 0, other(from), Duration::ZERO, &[]);
            let Some(batch) = departing.await?.filter(|batch| batch.number == number) else {
                return Ok(());
            };
            let target = known.of_tag(batch.tag);
            let target = target.ok_or_else(|| no_target(partition, &batch))?;
            let arrived = Carrier::new(target)?.arrive(from, number, &[]).await?;
            fate = match arrived {
                Arrived::Applied(_) => Fate::Done(number),
                Arrived::Void(_) => Fate::Back(number),
            };
        }
    }

    /// Ends all batches that are on their way in this moment, for an operator's call on all messages.
    /// Returns whether there were any.
    pub(crate) async fn end_batches(&self) -> Result<bool, Error> {
        let known = self.current();
        let sources = known.map().filter(|map| map.moves());
        let sources = sources.map_or(&[][..], |_| known.list());
        let mut had_any = false;
        for source in sources {
            let moving = patiently(|| source.control().fields(source.keys().meta(), ["moving"]));
            let [moving] = moving.await?;
            let number = moving.as_deref().and_then(batch_number);
            if let Some(number) = number {
                self.end_batch(source.tag(), number).await?;
                had_any = true;
            }
        }
        Ok(had_any)
    }
}

/// Another tag than this one, for a call that sends nothing.
pub(super) fn other(tag: Tag) -> Tag {
    match tag {
        Tag::Home => Tag::Numbered(0),
        Tag::Numbered(_) => Tag::Home,
    }
}

/// The error of a batch to a partition that the map lacks.
pub(super) fn no_target(from: &Partition, batch: &Departed) -> Error {
    let (queue, own, to) = (from.queue_name(), from.tag(), batch.tag);
    let message = format!(
        "partition {own} of queue {queue} has messages on their way to partition {to}, which the map does not have: \
         run `dueq doctor {queue}`"
    );
    Error::new(ErrorKind::Server, Applied::No, message)
}
