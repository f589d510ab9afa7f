//! Handlers of batches.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::delivery::Delivery;
use crate::model::codec::Codec;
use crate::model::settlement::{IntoSettlement, Settlement};
use crate::node::consumers::batch_runner::BatchRunner;
use crate::node::consumers::handling::HandleMany;
use crate::worker::assemble::{Assembled, Layers};
use crate::worker::handler::{IntoHandler, decode};

/// Some messages of a queue, with their values, for one call of a handler.
///
/// See [`in_batches`].
///
/// ```
/// use dueq::Batch;
///
/// async fn index(batch: Batch<Vec<u8>>) -> anyhow::Result<()> {
///     println!("{} messages", batch.len());
///     for (value, delivery) in &batch {
///         println!("{}: {} bytes", delivery.id(), value.len());
///     }
///     Ok(())
/// }
/// # let _ = index;
/// ```
#[must_use]
pub struct Batch<V> {
    items: Vec<(V, Delivery)>,
}

impl<V> Batch<V> {
    /// How many messages the batch has: at least 1.
    ///
    /// ```
    /// # async fn example(batch: dueq::Batch<Vec<u8>>) {
    /// println!("{} messages", batch.len());
    /// # }
    /// ```
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether the batch has no message. A handler never gets an empty batch.
    ///
    /// ```
    /// # async fn example(batch: dueq::Batch<Vec<u8>>) {
    /// assert!(!batch.is_empty());
    /// # }
    /// ```
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The values and their deliveries, roughly in the order of their due times.
    ///
    /// ```
    /// # async fn example(batch: dueq::Batch<Vec<u8>>) {
    /// let bytes: usize = batch.iter().map(|(value, _)| value.len()).sum();
    /// # let _ = bytes;
    /// # }
    /// ```
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&V, &Delivery)> {
        self.items.iter().map(split)
    }

    /// The deliveries whose lease is lost: other workers may have their messages. The other
    /// deliveries are still this worker's.
    ///
    /// ```
    /// # async fn example(batch: dueq::Batch<Vec<u8>>) {
    /// for delivery in batch.lost() {
    ///     println!("{} is lost", delivery.id());
    /// }
    /// # }
    /// ```
    pub fn lost(&self) -> impl Iterator<Item = &Delivery> {
        self.iter()
            .map(|(_, delivery)| delivery)
            .filter(|one| one.is_lost())
    }
}

fn split<V>((value, delivery): &(V, Delivery)) -> (&V, &Delivery) {
    (value, delivery)
}

impl<V> IntoIterator for Batch<V> {
    type Item = (V, Delivery);
    type IntoIter = std::vec::IntoIter<(V, Delivery)>;

    fn into_iter(self) -> Self::IntoIter {
        self.items.into_iter()
    }
}

impl<'a, V> IntoIterator for &'a Batch<V> {
    type Item = (&'a V, &'a Delivery);
    type IntoIter = std::iter::Map<
        std::slice::Iter<'a, (V, Delivery)>,
        fn(&'a (V, Delivery)) -> (&'a V, &'a Delivery),
    >;

    fn into_iter(self) -> Self::IntoIter {
        self.items.iter().map(split)
    }
}

impl<V> fmt::Debug for Batch<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

/// What a handler of batches may return: nothing or a [`Settlement`] for all deliveries, a
/// `Vec<Settlement>` with one for each in their order, or a `Result` of any of these, whose error
/// retries all deliveries. A delivery without a settlement is retried.
pub trait IntoSettlements {
    /// The settlements of a batch of `count` deliveries.
    fn into_settlements(self, count: usize) -> Vec<Settlement>;
}

impl IntoSettlements for () {
    fn into_settlements(self, count: usize) -> Vec<Settlement> {
        vec![Settlement::Ack; count]
    }
}

impl IntoSettlements for Settlement {
    fn into_settlements(self, count: usize) -> Vec<Settlement> {
        vec![self; count]
    }
}

impl IntoSettlements for Vec<Settlement> {
    fn into_settlements(self, _: usize) -> Vec<Settlement> {
        self
    }
}

impl<T: IntoSettlements, E: fmt::Display> IntoSettlements for Result<T, E> {
    fn into_settlements(self, count: usize) -> Vec<Settlement> {
        match self {
            Ok(settlements) => settlements.into_settlements(count),
            Err(error) => vec![Err::<(), E>(error).into_settlement(); count],
        }
    }
}

/// A handler of batches, made by [`in_batches`].
#[derive(Debug, Clone)]
pub struct InBatches<H> {
    max: usize,
    linger: Duration,
    handler: H,
}

/// A handler that takes 1 to `max` messages at a time, for a queue of a
/// [`Worker`](crate::Worker).
///
/// A batch is closed when it is full, when `linger` (at most a third of the lease) has passed since
/// its first message was granted, or when the worker stops. The worker's concurrency counts
/// batches. Each message is settled on its own; see [`IntoSettlements`]. If the handler panics or
/// exceeds the time limit, each message is retried. A message whose earlier lease expired is
/// handled alone, so that a message that crashes its worker harms no other. Layers take single
/// deliveries: a worker refuses a batch handler that is added after a layer.
///
/// ```
/// # dueq_testkit::doctest!(|client| {
/// use dueq::{Batch, Settlement, in_batches};
/// use std::time::Duration;
///
/// async fn index(batch: Batch<Vec<u8>>) -> Vec<Settlement> {
///     let settle = |value: &Vec<u8>| match value.is_empty() {
///         true => Settlement::bury("nothing to index"),
///         false => Settlement::Ack,
///     };
///     batch.iter().map(|(value, _)| settle(value)).collect()
/// }
///
/// let pages = client.queue("pages")?;
/// let index = in_batches(100, Duration::from_millis(200), index);
/// let worker = client.worker().queue(&pages, index).spawn()?;
/// # worker.shutdown().await?;
/// # });
/// ```
pub fn in_batches<H>(max: usize, linger: Duration, handler: H) -> InBatches<H> {
    InBatches {
        max,
        linger,
        handler,
    }
}

/// Marks a handler of batches.
#[doc(hidden)]
#[derive(Debug)]
pub struct OfBatch;

impl<V, H, F> IntoHandler<V, OfBatch> for InBatches<H>
where
    V: Send + 'static,
    H: Fn(Batch<V>) -> F + Send + Sync + 'static,
    F: Future + Send + 'static,
    F::Output: IntoSettlements,
{
    fn assemble<C: Codec<Value = V>>(self, codec: &C, layers: &Layers) -> Assembled {
        if !layers.is_empty() {
            return Assembled::refused(
                "its handler takes batches, and a layer takes single deliveries: add the queue \
                 before the layer",
            );
        }
        if self.max == 0 {
            return Assembled::refused("a batch of at most 0 messages: give at least 1");
        }
        let handler = Typed {
            codec: codec.clone(),
            handler: self.handler,
        };
        Assembled::batch(
            Arc::new(BatchRunner::new(handler, self.max, self.linger)),
            self.linger,
        )
    }
}

/// Decodes the payloads for a handler of batches.
struct Typed<C, H> {
    codec: C,
    handler: H,
}

impl<C, H, F> HandleMany for Typed<C, H>
where
    C: Codec,
    H: Fn(Batch<C::Value>) -> F + Send + Sync + 'static,
    F: Future + Send + 'static,
    F::Output: IntoSettlements,
{
    type Value = C::Value;

    fn decode(&self, delivery: &Delivery) -> Result<C::Value, Settlement> {
        decode(&self.codec, delivery)
    }

    fn handle(
        &self,
        items: Vec<(C::Value, Delivery)>,
    ) -> impl Future<Output = Vec<Settlement>> + Send {
        let count = items.len();
        let future = (self.handler)(Batch { items });
        async move { future.await.into_settlements(count) }
    }
}
