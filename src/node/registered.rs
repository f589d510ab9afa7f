//! The partitions in which Redis counts a node as alive.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::partition::Partition;

/// The partitions in which Redis counts the node as alive, by their wake-up lists. If the coordinator
/// panics, the worker tells Redis in its place that the node leaves them.
#[derive(Default)]
pub(crate) struct Registered(Mutex<HashMap<String, Arc<Partition>>>);

impl Registered {
    pub(crate) fn add(&self, partition: &Arc<Partition>) {
        let key = partition.keys().wake.clone();
        self.lock().insert(key, Arc::clone(partition));
    }

    /// Forgets a partition that the node has left.
    pub(crate) fn remove(&self, partition: &Partition) {
        self.lock().remove(&partition.keys().wake);
    }

    pub(crate) fn take(&self) -> Vec<Arc<Partition>> {
        self.lock()
            .drain()
            .map(|(_, partition)| partition)
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Partition>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
