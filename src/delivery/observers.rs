//! The functions that wait for the outcome of a delivery.

use std::sync::{Mutex, MutexGuard, PoisonError};

type Observer = Box<dyn FnOnce(&'static str) + Send>;

#[derive(Default)]
pub(super) struct Observers(Mutex<Vec<Observer>>);

impl Observers {
    pub(super) fn add(&self, observer: Observer) {
        self.lock().push(observer);
    }

    /// Calls the observers, each once.
    pub(super) fn report(&self, outcome: &'static str) {
        let observers = std::mem::take(&mut *self.lock());
        for observer in observers {
            observer(outcome);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Observer>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
