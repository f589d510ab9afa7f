//! Tells observers how a worker settled a delivery.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Delivery;

/// The functions that wait for the outcome of a delivery.
#[derive(Default)]
pub(super) struct Observers(Mutex<Vec<Observer>>);

type Observer = Box<dyn FnOnce(&'static str) + Send>;

impl Delivery {
    /// Calls `observer` with the outcome when the worker has settled this delivery, or has given it
    /// up. The outcome is that of the span `dueq.handle`, such as `acked`, `retried` or `lost`;
    /// docs/telemetry.md lists all.
    ///
    /// For traces and counts of single settlements; a handler needs the outcome of its own calls
    /// only. The observer runs in the task of the handler, so it must neither block nor panic. It
    /// is dropped without a call if the runtime ends first, or if no worker has the delivery.
    /// A delivery without observers pays for one uncontended lock.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|client| {
    /// use dueq::Delivery;
    /// use std::time::Instant;
    ///
    /// async fn rate(delivery: Delivery) {
    ///     let (id, handled) = (delivery.id().into_owned(), Instant::now());
    ///     delivery.on_settled(move |outcome| println!("{id}: {outcome} after {:?}", handled.elapsed()));
    /// }
    ///
    /// let orders = client.queue("orders")?;
    /// let worker = client.worker().queue(&orders, rate).spawn()?;
    /// # worker.shutdown().await?;
    /// # });
    /// ```
    pub fn on_settled(&self, observer: impl FnOnce(&'static str) + Send + 'static) {
        self.observers().push(Box::new(observer));
    }

    /// Calls the observers, each once.
    pub(crate) fn report(&self, outcome: &'static str) {
        let observers = std::mem::take(&mut *self.observers());
        for observer in observers {
            observer(outcome);
        }
    }

    fn observers(&self) -> MutexGuard<'_, Vec<Observer>> {
        let Observers(waiting) = &self.0.observers;
        waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
