//! The task behind a batcher: it gathers items into calls.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::batch::batcher::WaitingItems;
use crate::batch::call::{CallSpec, fits};
use crate::batch::in_flight::InFlightBatch;
use crate::batch::item::{Arrival, Pending};
use crate::batch::supervise::supervise;
use crate::batch::verb::BatchVerb;
use crate::server::patience::Repeat;

/// The items of one script call.
struct CallBatch<T> {
    items: Vec<Pending<T>>,
    bytes: usize,
    /// Whether the batch has items that must not be repeated. Calls with such items are sent in
    /// order.
    ordered: bool,
}

impl<T> CallBatch<T> {
    fn of(arrival: Arrival<T>) -> Self {
        let mut batch = Self {
            items: Vec::new(),
            bytes: 0,
            ordered: false,
        };
        batch.take(arrival);
        batch
    }

    fn has_room(&self, most: usize) -> bool {
        self.items.len() < most
    }

    /// Adds the items of one caller, or returns them if they do not all fit. They are never split:
    /// a caller of a hundred pushes would otherwise wait for two calls.
    fn add(&mut self, arrival: Arrival<T>, most: usize) -> Option<Arrival<T>> {
        let items = self.items.len() + arrival.items().len();
        if !fits(items, self.bytes + arrival.bytes(), most) {
            return Some(arrival);
        }
        self.take(arrival);
        None
    }

    fn take(&mut self, arrival: Arrival<T>) {
        self.bytes += arrival.bytes();
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

/// Gathers the items that arrive into calls and sends these, until the batcher is dropped.
pub(crate) async fn run<V: BatchVerb>(
    spec: Arc<CallSpec>,
    mut receiver: mpsc::UnboundedReceiver<Arrival<V::Output>>,
    waiting: Arc<WaitingItems>,
) {
    let most = if V::ALONE { 1 } else { V::MOST };
    let mut next = None;
    let mut in_flight = CallsInFlight::default();
    // Whether the last call has items that must not be repeated.
    let mut ordered = false;
    let mut linger_until = Instant::now();
    loop {
        let first = match next.take() {
            Some(group) => group,
            None => match receiver.recv().await {
                Some(group) => group,
                None => break,
            },
        };
        if linger_until > Instant::now() {
            tokio::select! {
                () = tokio::time::sleep_until(linger_until.into()) => {}
                () = waiting.enough.notified() => {}
            }
        }
        if V::YIELDS {
            tokio::task::yield_now().await;
        }
        let mut batch = CallBatch::of(first);
        loop {
            while next.is_none()
                && batch.has_room(most)
                && let Ok(group) = receiver.try_recv()
            {
                next = batch.add(group, most);
            }
            while in_flight.0.try_join_next().is_some() {}
            // A call with items that must not be repeated starts after the previous call has ended,
            // and the next call starts after its end. So the order of such items is kept.
            let joins = in_flight.0.len() == 1
                && batch.items.len() >= V::ENOUGH
                && !ordered
                && !batch.ordered;
            if in_flight.0.is_empty() || joins || V::ALONE {
                break;
            }
            tokio::select! {
                _ = in_flight.0.join_next() => {}
                () = waiting.enough.notified(), if in_flight.0.len() == 1 => {}
            }
        }
        let turn = match spec.rounds() {
            Some(rounds) => Some(rounds.turn(batch.items.len() >= V::ENOUGH).await),
            None => None,
        };
        while turn.is_some()
            && next.is_none()
            && batch.has_room(most)
            && let Ok(group) = receiver.try_recv()
        {
            next = batch.add(group, most);
        }
        waiting.count.fetch_sub(batch.items.len(), Ordering::AcqRel);
        ordered = batch.ordered;
        linger_until = Instant::now() + spec.linger;
        let call = InFlightBatch::<V>::new(Arc::clone(&spec), batch.items);
        let spec = Arc::clone(&spec);
        in_flight
            .0
            .spawn(supervise(spec, Box::pin(call.finish(turn))));
    }
    while in_flight.0.join_next().await.is_some() {}
}

/// The calls that have no reply yet. They continue even if the gathering task panics.
#[derive(Default)]
struct CallsInFlight(JoinSet<()>);

impl Drop for CallsInFlight {
    fn drop(&mut self) {
        self.0.detach_all();
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::Semaphore;

    use super::*;
    use crate::batch::call::BATCH_BYTES;
    use crate::batch::item::{Answer, Item};

    fn group(items: usize, bytes: usize) -> Arrival<()> {
        let room = Arc::new(Semaphore::new(items));
        let pending = |_| Pending {
            item: Item {
                granted: None,
                args: vec![vec![b'x'; bytes]],
                repeat: Repeat::Harmless,
            },
            since: Instant::now(),
            answer: Answer::channel().0,
            _room: Arc::clone(&room).try_acquire_owned().expect("room"),
        };
        Arrival::Many((0..items).map(pending).collect())
    }

    #[test]
    fn a_callers_items_are_never_split() {
        let mut batch = CallBatch::of(group(100, 10));
        assert!(batch.add(group(100, 10), 256).is_none());
        assert_eq!(
            batch
                .add(group(100, 10), 256)
                .map(|back| back.items().len()),
            Some(100)
        );
        assert!(batch.add(group(56, 10), 256).is_none());
        assert!(!batch.has_room(256));
        assert_eq!((batch.items.len(), batch.bytes), (256, 2_560));
    }

    #[test]
    fn a_call_has_a_byte_limit_unless_it_has_one_item() {
        let mut batch = CallBatch::of(group(1, 2 * BATCH_BYTES));
        assert!(batch.add(group(1, 1), 256).is_some());
        batch = CallBatch::of(group(2, BATCH_BYTES / 4));
        assert!(batch.add(group(3, BATCH_BYTES / 4), 256).is_some());
        assert!(batch.add(group(2, BATCH_BYTES / 4), 256).is_none());
    }
}
