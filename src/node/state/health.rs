//! What a worker reports about its node, for readiness probes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::error::Error;
use crate::node::PartitionId;

/// The node's health, which the coordinator writes and probes read.
#[derive(Default)]
pub(crate) struct SharedHealth {
    /// The state of each attended partition, by queue.
    states: Mutex<BTreeMap<String, BTreeMap<PartitionId, QueueState>>>,
    /// How many handlers are free.
    free_handlers: AtomicUsize,
    /// Whether the worker has patterns and Redis did not answer the last step of their scan.
    is_scan_unanswered: AtomicBool,
}

/// The state of one queue, or of one of its partitions.
#[derive(Debug, Clone, Default)]
pub(crate) struct QueueState {
    /// When the last answered beat was sent.
    pub(crate) beaten: Option<Instant>,
    pub(crate) is_leader: bool,
    pub(crate) is_parked: bool,
    /// Why the last beat failed.
    pub(crate) error: Option<Error>,
}

impl SharedHealth {
    /// Records how many handlers are free now.
    pub(crate) fn free_handlers_are(&self, free: usize) {
        self.free_handlers.store(free, Ordering::Relaxed);
    }

    pub(crate) fn free_handlers(&self) -> usize {
        self.free_handlers.load(Ordering::Relaxed)
    }

    /// Records whether Redis answered the last step of the scan for the queues of patterns. Without
    /// patterns no answer is missing.
    pub(crate) fn scan_is_answered(&self, is_answered: bool) {
        self.is_scan_unanswered
            .store(!is_answered, Ordering::Relaxed);
    }

    pub(crate) fn is_scan_answered(&self) -> bool {
        !self.is_scan_unanswered.load(Ordering::Relaxed)
    }

    pub(crate) fn added(&self, queue: &str, partition: PartitionId) {
        let mut states = self.lock();
        let partitions = states.entry(queue.to_owned()).or_default();
        partitions.insert(partition, QueueState::default());
    }

    /// Records that the node no longer attends a partition.
    pub(crate) fn left(&self, queue: &str, partition: PartitionId) {
        if let Some(partitions) = self.lock().get_mut(queue) {
            partitions.remove(&partition);
        }
    }

    pub(crate) fn removed(&self, queue: &str) {
        self.lock().remove(queue);
    }

    /// Records that Redis answered a beat that was sent at `sent`.
    pub(crate) fn beaten(
        &self,
        queue: &str,
        partition: PartitionId,
        sent: Instant,
        is_leader: bool,
        is_parked: bool,
    ) {
        self.change(queue, partition, |state| {
            *state = QueueState {
                beaten: Some(sent),
                is_leader,
                is_parked,
                error: None,
            };
        });
    }

    /// Records that a beat failed.
    pub(crate) fn failed(&self, queue: &str, partition: PartitionId, error: &Error) {
        self.change(queue, partition, |state| {
            state.is_leader = false;
            state.error = Some(error.clone());
        });
    }

    /// A copy of the states of all queues.
    pub(crate) fn snapshot(&self) -> BTreeMap<String, QueueState> {
        let states = self.lock();
        let queues = states.iter();
        let merged = queues.map(|(name, partitions)| (name.clone(), merged(partitions.values())));
        merged.collect()
    }

    fn change(&self, queue: &str, partition: PartitionId, change: impl FnOnce(&mut QueueState)) {
        let mut states = self.lock();
        let partitions = states.get_mut(queue);
        if let Some(state) = partitions.and_then(|partitions| partitions.get_mut(&partition)) {
            change(state);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, BTreeMap<PartitionId, QueueState>>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The state of a queue from the states of its partitions. A partition that the node has only just
/// begun to attend counts only if there is no other.
fn merged<'a>(partitions: impl Iterator<Item = &'a QueueState> + Clone) -> QueueState {
    let known = |state: &&QueueState| state.beaten.is_some() || state.error.is_some();
    let known = partitions.filter(known);
    let any = |is: fn(&QueueState) -> bool| known.clone().any(is);
    QueueState {
        // A partition that never answered has an error instead.
        beaten: known.clone().filter_map(|state| state.beaten).min(),
        is_leader: any(|state| state.is_leader),
        is_parked: known.clone().next().is_some() && !any(|state| !state.is_parked),
        error: known.clone().find_map(|state| state.error.clone()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_queue_is_as_healthy_as_its_worst_partition() {
        let health = SharedHealth::default();
        let (first, second) = (PartitionId(1), PartitionId(2));
        health.added("orders", first);
        let state = |health: &SharedHealth| health.snapshot().remove("orders").expect("added");
        assert!(state(&health).beaten.is_none() && !state(&health).is_parked);
        let now = Instant::now();
        let later = now + Duration::from_secs(1);
        health.beaten("orders", first, later, true, true);
        health.added("orders", second);
        assert!(
            state(&health).beaten == Some(later),
            "the second one is new"
        );
        health.beaten("orders", second, now, false, false);
        let merged = state(&health);
        assert!(merged.beaten == Some(now) && merged.is_leader && !merged.is_parked);
        health.failed("orders", first, &Error::invalid("refused".to_owned()));
        let merged = state(&health);
        assert!(merged.error.is_some() && !merged.is_leader);
        health.left("orders", first);
        assert!(state(&health).error.is_none());
    }
}
