//! The live nodes of a queue.

/// A live node of a queue: see [`Queue::nodes`](crate::Queue::nodes).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct NodeInfo {
    /// Its id, unique to the worker: each worker of a process has one.
    pub id: String,
    /// How many milliseconds ago it last reported that it lives, by the server's clock: 3,000 at
    /// most. Of several partitions the newest report counts. 0 while it is parked.
    pub silent_ms: u64,
    /// In how many milliseconds it reports again, if it has announced that it will be silent; 0 if
    /// it is not parked. Of several partitions the first report counts.
    pub parked_ms: u64,
    /// How many partitions it leads: 0 or 1 of a queue of one partition.
    pub leads: usize,
    /// How many partitions it attends: 1 of a queue of one partition. 0 of a node that only watches
    /// the home of a queue of several partitions.
    pub attends: usize,
}

impl NodeInfo {
    /// The nodes of all partitions, sorted by their ids.
    pub(crate) fn merged(mut nodes: Vec<Self>) -> Vec<Self> {
        nodes.sort_by(|one, other| one.id.cmp(&other.id));
        nodes.dedup_by(|next, kept| {
            let is_same = next.id == kept.id;
            if is_same {
                // A node that only watches reports nothing of its parking.
                kept.parked_ms = match (kept.attends, next.attends) {
                    (0, _) => next.parked_ms,
                    (_, 0) => kept.parked_ms,
                    _ => kept.parked_ms.min(next.parked_ms),
                };
                kept.silent_ms = kept.silent_ms.min(next.silent_ms);
                kept.leads += next.leads;
                kept.attends += next.attends;
            }
            is_same
        });
        nodes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(id: &str, silent_ms: u64, parked_ms: u64, leads: usize, attends: usize) -> NodeInfo {
        NodeInfo {
            id: id.to_owned(),
            silent_ms,
            parked_ms,
            leads,
            attends,
        }
    }

    #[test]
    fn a_node_of_several_partitions_is_one() {
        let all = vec![
            node("b", 5, 0, 1, 1),
            node("a", 0, 900, 0, 1),
            node("b", 7, 0, 1, 1),
            node("b", 3, 0, 0, 0),
            node("a", 400, 0, 0, 0),
            node("a", 0, 800, 1, 1),
        ];
        let merged = [node("a", 0, 800, 1, 2), node("b", 3, 0, 2, 2)];
        assert_eq!(NodeInfo::merged(all), merged);
    }
}
