//! The task behind a batcher: it gathers what goes in one call.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::batch::commit::Commit;
use crate::batch::{Arrival, BATCH_ITEMS, Gauge, Pending, Prefix, enough, fits, is_settle, size};
use crate::model::durability::Durability;
use crate::protocol::keys::Keys;
use crate::protocol::verbs::Verb;
use crate::server::lane::{Lane, Repeat};
use crate::telemetry::metrics::Meters;

/// The items of one script call.
struct Batch {
    items: Vec<Pending>,
    bytes: usize,
    /// Whether some of them must not be repeated.
    ordered: bool,
}

impl Batch {
    fn of(arrival: Arrival) -> Self {
        let mut batch = Self {
            items: Vec::new(),
            bytes: 0,
            ordered: false,
        };
        batch.take(arrival);
        batch
    }

    fn has_room(&self) -> bool {
        self.items.len() < BATCH_ITEMS
    }

    /// Takes a caller's items in; gives them back if they would be too much. They are not parted: who pushes a hundred would
    /// else wait for two calls.
    fn add(&mut self, arrival: Arrival) -> Option<Arrival> {
        let items = arrival.items();
        if !fits(self.items.len() + items.len(), self.bytes + bytes(items)) {
            return Some(arrival);
        }
        self.take(arrival);
        None
    }

    fn take(&mut self, arrival: Arrival) {
        self.bytes += bytes(arrival.items());
        self.ordered |= arrival
            .items()
            .iter()
            .any(|pending| pending.item.repeat == Repeat::Unsafe);
        match arrival {
            Arrival::One(pending) => self.items.push(pending),
            Arrival::Many(group) if self.items.is_empty() => self.items = group,
            Arrival::Many(group) => self.items.extend(group),
        }
    }
}

fn bytes(group: &[Pending]) -> usize {
    group.iter().map(|pending| size(&pending.item)).sum()
}

/// What the calls of a batcher have in common.
#[derive(Clone)]
pub(crate) struct Work {
    pub(crate) verb: Verb,
    pub(crate) prefix: Prefix,
    /// How long after a call the next one goes, unless enough has gathered.
    pub(crate) pace: Duration,
    pub(crate) keys: Arc<Keys>,
    pub(crate) lane: Arc<Lane>,
    pub(crate) meters: Arc<Meters>,
    pub(crate) durability: Durability,
}

impl Work {
    /// Sends what comes in; ends when the batcher is dropped.
    pub(crate) async fn run(
        self: Arc<Self>,
        mut receiver: mpsc::UnboundedReceiver<Arrival>,
        gauge: Arc<Gauge>,
    ) {
        let (mut next, mut flying, mut ordered) = (None, JoinSet::new(), false);
        let mut free_at = Instant::now();
        loop {
            let first = match next.take() {
                Some(group) => group,
                None => match receiver.recv().await {
                    Some(group) => group,
                    None => break,
                },
            };
            if free_at > Instant::now() {
                tokio::select! {
                    () = tokio::time::sleep_until(free_at.into()) => {}
                    () = gauge.enough.notified() => {}
                }
            }
            if is_settle(self.verb) {
                // Handlers end together, often: those that are about to come along.
                tokio::task::yield_now().await;
            }
            let mut batch = Batch::of(first);
            loop {
                while next.is_none()
                    && batch.has_room()
                    && let Ok(group) = receiver.try_recv()
                {
                    next = batch.add(group);
                }
                while flying.try_join_next().is_some() {}
                // Calls that must not be repeated keep to their order, and so does what comes after them.
                let joins = flying.len() == 1
                    && batch.items.len() >= enough(self.verb)
                    && !ordered
                    && !batch.ordered;
                if flying.is_empty() || joins {
                    break;
                }
                tokio::select! {
                    _ = flying.join_next() => {}
                    () = gauge.enough.notified(), if flying.len() == 1 => {}
                }
            }
            gauge.waiting.fetch_sub(batch.items.len(), Ordering::AcqRel);
            ordered = batch.ordered;
            free_at = Instant::now() + self.pace;
            flying.spawn(Commit::new(Arc::clone(&self), batch.items).finish());
        }
        while flying.join_next().await.is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::{Semaphore, oneshot};

    use super::*;
    use crate::batch::{BATCH_BYTES, Item};

    fn group(items: usize, bytes: usize) -> Arrival {
        let room = Arc::new(Semaphore::new(items));
        let pending = |_| Pending {
            item: Item {
                granted: None,
                args: vec![vec![b'x'; bytes]],
                repeat: Repeat::Harmless,
            },
            since: Instant::now(),
            answer: oneshot::channel().0,
            _room: Arc::clone(&room).try_acquire_owned().expect("room"),
        };
        Arrival::Many((0..items).map(pending).collect())
    }

    #[test]
    fn what_one_caller_brings_is_not_parted() {
        let mut batch = Batch::of(group(100, 10));
        assert!(batch.add(group(100, 10)).is_none());
        assert_eq!(
            batch.add(group(100, 10)).map(|back| back.items().len()),
            Some(100)
        );
        assert!(batch.add(group(56, 10)).is_none());
        assert!(!batch.has_room());
        assert_eq!(
            (batch.items.len(), batch.bytes),
            (BATCH_ITEMS, 10 * BATCH_ITEMS)
        );
    }

    #[test]
    fn a_call_takes_so_many_bytes_and_one_item_whatever_its_size() {
        let mut batch = Batch::of(group(1, 2 * BATCH_BYTES));
        assert!(batch.add(group(1, 1)).is_some());
        batch = Batch::of(group(2, BATCH_BYTES / 4));
        assert!(batch.add(group(3, BATCH_BYTES / 4)).is_some());
        assert!(batch.add(group(2, BATCH_BYTES / 4)).is_none());
    }
}
