//! Workers by process.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use crate::model::process::ProcessInfo;
use crate::model::stats::NodeInfo;

/// A process and its live workers, in all queues that were asked for them.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerProcess {
    /// What the workers told, with the handlers of all of them, and the earliest start. `None` if
    /// the worker told nothing: then each such worker counts as a process.
    pub info: Option<ProcessInfo>,
    /// The ids of its workers, sorted: see [`NodeInfo::id`].
    pub workers: Vec<String>,
    /// The names of the queues that they attend, sorted.
    pub queues: Vec<String>,
    /// The names of those queues in which one of its workers is drained, sorted: see
    /// [`Queue::drain_nodes`](crate::Queue::drain_nodes).
    pub drained: Vec<String>,
    /// How many partitions of these queues they lead.
    pub leads: usize,
    /// How many milliseconds ago the last beat was; 0 while they have parked all queues.
    pub silent_ms: u64,
}

impl WorkerProcess {
    /// The processes of these workers, each with the name of its queue: workers of one host and
    /// process id share one. Sorted by host, process id and the id of the first worker.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|client| {
    /// use dueq::inspect::WorkerProcess;
    ///
    /// let mut workers = Vec::new();
    /// for name in client.queues().await? {
    ///     let nodes = client.queue(&name)?.nodes().await?;
    ///     workers.extend(nodes.into_iter().map(|node| (name.clone(), node)));
    /// }
    /// println!("{} processes", WorkerProcess::group(workers).len());
    /// # });
    /// ```
    pub fn group(workers: impl IntoIterator<Item = (String, NodeInfo)>) -> Vec<Self> {
        type Key = (String, u32, String);
        let mut all: BTreeMap<Key, BTreeMap<String, NodeInfo>> = BTreeMap::new();
        let mut queues: BTreeMap<Key, BTreeSet<String>> = BTreeMap::new();
        let mut drained: BTreeMap<Key, BTreeSet<String>> = BTreeMap::new();
        for (queue, node) in workers {
            let key = match &node.process {
                Some(told) => (told.host.clone(), told.pid, String::new()),
                None => (String::new(), 0, node.id.clone()),
            };
            if node.is_drained {
                drained
                    .entry(key.clone())
                    .or_default()
                    .insert(queue.clone());
            }
            queues.entry(key.clone()).or_default().insert(queue);
            match all.entry(key).or_default().entry(node.id.clone()) {
                Entry::Vacant(new) => drop(new.insert(node)),
                Entry::Occupied(mut known) => known.get_mut().merge(node),
            }
        }
        let process = |(key, workers): (Key, BTreeMap<String, NodeInfo>)| Self {
            info: workers
                .values()
                .filter_map(|node| node.process.clone())
                .reduce(ProcessInfo::with),
            silent_ms: workers
                .values()
                .map(|node| node.silent_ms)
                .min()
                .unwrap_or(0),
            leads: workers.values().map(|node| node.leads).sum(),
            workers: workers.into_keys().collect(),
            queues: queues
                .remove(&key)
                .unwrap_or_default()
                .into_iter()
                .collect(),
            drained: drained
                .remove(&key)
                .unwrap_or_default()
                .into_iter()
                .collect(),
        };
        all.into_iter().map(process).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_of_one_process_are_one_process_in_all_queues() {
        let node = |id: &str, told: Option<&str>| {
            NodeInfo::silent(id.to_owned(), told.and_then(ProcessInfo::parse), 0)
        };
        let [old, new, other, second] = [
            Some("5000 @1000 7 4 1 h p"),
            Some("9000 @5000 7 4 3 h p"),
            Some("9000 @1 8 1 0 h p"),
            Some("8000 @6000 7 2 2 h p"),
        ];
        let workers = [
            ("q", node("a", old)),
            ("r", node("a", new)),
            ("q", node("b", second)),
            ("q", node("c", other)),
            ("q", node("d", None)),
        ];
        let mut workers = workers.map(|(queue, node)| (queue.to_owned(), node));
        workers[1].1.is_drained = true;
        let found = WorkerProcess::group(workers);
        let ids: Vec<_> = found
            .iter()
            .map(|process| process.workers.join(" "))
            .collect();
        assert_eq!(ids, ["d", "a b", "c"]);
        let info = found[1].info.as_ref().expect("a process");
        assert_eq!(
            (info.concurrency, info.running, info.started_ms),
            (6, 5, 2_000)
        );
        assert_eq!(found[1].queues, ["q", "r"]);
        assert_eq!((found[1].drained.len(), found[2].drained.len()), (1, 0));
        assert_eq!(found[1].drained, ["r"]);
    }
}
