//! The functions that wait for the outcome of a delivery.

use std::sync::{Mutex, MutexGuard, PoisonError};

type OnOutcome = Box<dyn FnOnce(&'static str) + Send>;

#[derive(Default)]
pub(super) struct Observers(Mutex<Vec<OnOutcome>>);

impl Observers {
    pub(super) fn add(&self, observer: OnOutcome) {
        self.lock().push(observer);
    }

    /// Calls the observers, each once.
    pub(super) fn report(&self, outcome: &'static str) {
        let observers = std::mem::take(&mut *self.lock());
        for observer in observers {
            observer(outcome);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<OnOutcome>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
