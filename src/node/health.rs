//! What a worker reports about its node, for readiness probes.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::error::Error;

/// The state of every attended queue, written by the coordinator.
#[derive(Default)]
pub(crate) struct SharedHealth(Mutex<BTreeMap<String, QueueState>>);

/// The state of one queue.
#[derive(Debug, Clone, Default)]
pub(crate) struct QueueState {
    /// When the last beat was sent that Redis answered.
    pub(crate) beaten: Option<Instant>,
    pub(crate) is_leader: bool,
    pub(crate) is_parked: bool,
    /// Why the last beat failed.
    pub(crate) error: Option<Error>,
}

impl SharedHealth {
    pub(crate) fn added(&self, queue: &str) {
        self.lock().entry(queue.to_owned()).or_default();
    }

    pub(crate) fn removed(&self, queue: &str) {
        self.lock().remove(queue);
    }

    /// Redis answered a beat that was sent at `sent`.
    pub(crate) fn beaten(&self, queue: &str, sent: Instant, is_leader: bool, is_parked: bool) {
        if let Some(state) = self.lock().get_mut(queue) {
            *state = QueueState {
                beaten: Some(sent),
                is_leader,
                is_parked,
                error: None,
            };
        }
    }

    /// A beat failed.
    pub(crate) fn failed(&self, queue: &str, error: &Error) {
        if let Some(state) = self.lock().get_mut(queue) {
            state.is_leader = false;
            state.error = Some(error.clone());
        }
    }

    /// A copy of the states, by queue.
    pub(crate) fn snapshot(&self) -> BTreeMap<String, QueueState> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, QueueState>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
