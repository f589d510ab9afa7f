//! Which partition of a queue holds a message. Today a queue has one partition.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::error::Error;
use crate::partition::Partition;
use crate::server::servers::Servers;

/// How many of the names asked for last keep their partition without a handle.
const KEPT: usize = 64;
/// The registry drops the entries of dead partitions when it has grown to this, or to twice the
/// live ones.
const MIN_SWEEP: usize = 128;

/// Maps the messages of one queue to its partitions. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Router {
    partition: Arc<Partition>,
}

impl Router {
    pub(crate) fn new(partition: Arc<Partition>) -> Self {
        Self { partition }
    }

    /// The only partition of the queue.
    pub(crate) fn partition(&self) -> &Arc<Partition> {
        &self.partition
    }
}

/// The partitions of a client by queue name. A name has one partition as long as a handle of it
/// lives, or it is among the last 64 that were asked for.
#[derive(Default)]
pub(crate) struct Registry(Mutex<Partitions>);

#[derive(Default)]
struct Partitions {
    by_name: HashMap<String, Weak<Partition>>,
    /// The partitions of the names asked for last, the latest at the end.
    kept: VecDeque<Arc<Partition>>,
    /// At how many entries the dead ones are dropped.
    sweep_at: usize,
}

impl Registry {
    /// The partition of the queue of this name.
    ///
    /// # Errors
    /// `InvalidInput` if the name is not valid.
    pub(crate) fn partition(
        &self,
        name: &str,
        servers: &Arc<Servers>,
    ) -> Result<Arc<Partition>, Error> {
        let mut partitions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = partitions.by_name.get(name).and_then(Weak::upgrade);
        let partition = match known {
            Some(known) => known,
            None => {
                let new = Arc::new(Partition::new(name, servers)?);
                partitions.insert(name, &new);
                new
            }
        };
        partitions.keep(&partition);
        Ok(partition)
    }

    #[cfg(test)]
    fn entries(&self) -> usize {
        self.0.lock().expect("no panic").by_name.len()
    }
}

impl Partitions {
    fn insert(&mut self, name: &str, partition: &Arc<Partition>) {
        if self.by_name.len() >= self.sweep_at {
            self.by_name.retain(|_, known| known.strong_count() > 0);
            self.sweep_at = MIN_SWEEP.max(2 * self.by_name.len());
        }
        let weak = Arc::downgrade(partition);
        self.by_name.insert(name.to_owned(), weak);
    }

    fn keep(&mut self, partition: &Arc<Partition>) {
        let same = |kept: &Arc<Partition>| Arc::ptr_eq(kept, partition);
        if self.kept.back().is_some_and(same) {
            return;
        }
        match self.kept.iter().position(same) {
            Some(index) => drop(self.kept.remove(index)),
            None if self.kept.len() >= KEPT => drop(self.kept.pop_front()),
            None => {}
        }
        self.kept.push_back(Arc::clone(partition));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_name_twice_has_the_same_partition() {
        let (registry, servers) = (Registry::default(), Servers::unconnected());
        let first = registry.partition("a", &servers).expect("a name");
        for n in 0..2 * KEPT {
            registry
                .partition(&n.to_string(), &servers)
                .expect("a name");
        }
        let second = registry.partition("a", &servers).expect("a name");
        assert!(Arc::ptr_eq(&first, &second));
        assert!(registry.partition("a/b", &servers).is_err());
    }

    #[test]
    fn ten_thousand_names_once_each_do_not_stay_in_memory() {
        let (registry, servers) = (Registry::default(), Servers::unconnected());
        let mut weak = Vec::new();
        for n in 0..10_000 {
            let partition = registry
                .partition(&n.to_string(), &servers)
                .expect("a name");
            weak.push(Arc::downgrade(&partition));
        }
        let alive = weak.iter().filter(|known| known.strong_count() > 0).count();
        assert_eq!(alive, KEPT);
        let entries = registry.entries();
        assert!(entries <= MIN_SWEEP + KEPT, "{entries}");
    }
}
