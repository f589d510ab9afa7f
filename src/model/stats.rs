//! What a queue holds and has done: its counts, due times, partitions and nodes.

use crate::model::lease_token::end_of_node;
use crate::model::process::ProcessInfo;
use crate::model::rate::Rate;
use crate::model::stored::LeaseInfo;

/// What a queue holds, and has done since it was created. All zero for a queue that does not exist.
///
/// One script call reads all counts of a partition, so they belong to one moment. The counts of a
/// queue with several partitions are sums over its partitions. Each message counts in exactly one
/// of `scheduled`, `ready`, `leased` and `dead`. If `scheduled + ready + leased == 0`, no work is
/// left: each message has been acked, cancelled or purged, or is dead.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueStats {
    /// Messages that wait for their due time, also between two attempts, and due messages that are
    /// not on the ready list: see [`MessageState::Scheduled`](crate::MessageState::Scheduled).
    pub scheduled: u64,
    /// How many of the `scheduled` messages are due.
    pub due: u64,
    /// Due messages that wait for a free handler; at most 1,000.
    pub ready: u64,
    /// Messages with a handler.
    pub leased: u64,
    /// Dead messages.
    pub dead: u64,
    /// Messages on their way from one partition to another, while the number of partitions changes.
    /// They count in none of the states.
    pub moving: u64,
    /// How many partitions the queue gets by a change that is not complete; 0 if none is.
    pub changing_to: u64,
    /// Entries of the deduplication memory: ids that ended, and calls, remembered so that late
    /// repetitions are recognised.
    pub recent: u64,
    /// Live workers of the queue, over all its partitions.
    pub nodes: u64,
    /// How many of the `nodes` an operator has [drained](crate::Queue::drain_nodes): they take nothing new.
    pub drained_nodes: u64,
    /// Age of the oldest due, unclaimed message in milliseconds; 0 if there is none.
    pub overdue_ms: u64,
    /// Whether the queue is paused; with several partitions, whether any of them is.
    pub paused: bool,
    /// How many partitions are paused. Fewer than [`partitions`](QueueStats::partitions): a pause
    /// or its end has not reached all of them.
    pub paused_partitions: u64,
    /// How many partitions these numbers cover.
    pub partitions: u64,
    /// For how many more milliseconds a worker that parked the queue may be silent; 0 if none is.
    /// Its silence lasts 60 s at most. A longer time means that the server's clock was set back.
    pub parked_ms: u64,
    /// For how many more milliseconds the queue is closed, by
    /// [`pause_for`](crate::Queue::pause_for), a [throttle](crate::Delivery::throttle) or its rate;
    /// 0 if it is open. With several partitions, the time until the last of them opens.
    pub closed_ms: u64,
    /// Whether as many messages are leased as `max_leased` allows; with several partitions, whether
    /// any of them is full.
    pub full: bool,
    /// Messages pushed. This and the following fields count what survived in Redis: a failover or a
    /// crash that undid calls undid their counts. After a start with a truncated append-only file
    /// they may count a call twice: Redis may later execute a call that it had lost and the client
    /// had repeated.
    pub pushed: u64,
    /// Deliveries made.
    pub claimed: u64,
    /// Deliveries acked.
    pub acked: u64,
    /// Deliveries settled with `again`.
    pub repeated: u64,
    /// Deliveries settled with `retry` that were scheduled again.
    pub retried: u64,
    /// Deliveries released.
    pub released: u64,
    /// Leases that expired.
    pub crashed: u64,
    /// Messages that died.
    pub died: u64,
    /// Messages cancelled.
    pub cancelled: u64,
    /// Dead messages that were requeued.
    pub requeued: u64,
    /// Messages purged.
    pub purged: u64,
    /// Dead messages trimmed by age or number.
    pub trimmed: u64,
    /// Messages that expired: they died, or were dropped.
    pub expired: u64,
    /// Deliveries settled with `throttle`.
    pub throttled: u64,
    /// Deliveries settled with `snooze` that were scheduled again.
    pub snoozed: u64,
    /// Recurring schedules.
    pub schedules: u64,
    /// Crons whose list of fires is short and needs a refill:
    /// [`refill_schedules`](crate::Queue::refill_schedules).
    pub low_lists: u64,
    /// Crons whose list of fires is empty: they do not fire. They also count in `low_lists`.
    pub dry_lists: u64,
    /// The limit of attempts of messages that were pushed without a limit.
    pub max_attempts: u64,
    /// How many crashes a message survives: at the next one it is dead.
    pub max_crashes: u64,
    /// How many messages the queue may hold; 0 for no limit.
    pub max_messages: u64,
    /// The largest payload that the queue takes, in bytes.
    pub max_payload_bytes: u64,
    /// How long dead messages are kept, in milliseconds.
    pub keep_dead_ms: u64,
    /// How many dead messages are kept at most; the newest are kept.
    pub keep_dead: u64,
    /// How many ids of pushes with a window the queue remembers at most.
    pub max_remembered: u64,
    /// For how many milliseconds the lives of messages are kept after their end; `None` if the queue
    /// keeps no lives.
    pub keep_life_ms: Option<u64>,
    /// How many messages may start in some time; `None` for no limit. The partitions' rates are
    /// added up; `None` if one of them has none.
    pub rate: Option<Rate>,
    /// How many messages may be leased at the same time; 0 for no limit.
    pub max_leased: u64,
    /// For how long a throttle closes the queue at most, in milliseconds.
    pub max_throttle_ms: u64,
}

impl QueueStats {
    /// Whether some partitions are paused and others deliver.
    pub fn is_paused_in_part(&self) -> bool {
        self.paused && self.paused_partitions < self.partitions
    }

    /// Adds the stats of another partition of the queue. The number of workers is the largest that
    /// a partition reports: the home counts the workers of all partitions.
    pub(crate) fn add(&mut self, other: &Self) {
        for (sum, part) in [
            (&mut self.paused_partitions, other.paused_partitions),
            (&mut self.partitions, other.partitions),
            (&mut self.scheduled, other.scheduled),
            (&mut self.due, other.due),
            (&mut self.ready, other.ready),
            (&mut self.leased, other.leased),
            (&mut self.dead, other.dead),
            (&mut self.moving, other.moving),
            (&mut self.recent, other.recent),
            (&mut self.pushed, other.pushed),
            (&mut self.claimed, other.claimed),
            (&mut self.acked, other.acked),
            (&mut self.repeated, other.repeated),
            (&mut self.retried, other.retried),
            (&mut self.released, other.released),
            (&mut self.crashed, other.crashed),
            (&mut self.died, other.died),
            (&mut self.cancelled, other.cancelled),
            (&mut self.requeued, other.requeued),
            (&mut self.purged, other.purged),
            (&mut self.trimmed, other.trimmed),
            (&mut self.expired, other.expired),
            (&mut self.throttled, other.throttled),
            (&mut self.snoozed, other.snoozed),
            (&mut self.schedules, other.schedules),
            (&mut self.low_lists, other.low_lists),
            (&mut self.dry_lists, other.dry_lists),
            (&mut self.max_leased, other.max_leased),
            (&mut self.max_messages, other.max_messages),
            (&mut self.keep_dead, other.keep_dead),
            (&mut self.max_remembered, other.max_remembered),
        ] {
            *sum = sum.saturating_add(part);
        }
        self.nodes = self.nodes.max(other.nodes);
        self.drained_nodes = self.drained_nodes.max(other.drained_nodes);
        self.overdue_ms = self.overdue_ms.max(other.overdue_ms);
        self.parked_ms = self.parked_ms.max(other.parked_ms);
        self.closed_ms = self.closed_ms.max(other.closed_ms);
        self.paused |= other.paused;
        self.full |= other.full;
        self.rate = self.rate.zip(other.rate).map(|(sum, part)| sum.plus(part));
    }
}

/// How far a requeue or a purge in steps is: see [`BulkSteps`](crate::admin::BulkSteps).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct BulkProgress {
    /// How many messages all steps together have dealt with.
    pub done: u64,
    /// How many of the selected messages are left, counted in the last step of each partition.
    /// `None` until each partition of the queue had its first step.
    pub left: Option<u64>,
    /// Why there is no further step; `None` if there is one.
    pub end: Option<BulkEnd>,
}

/// Why a requeue or a purge in steps has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BulkEnd {
    /// No selected message is left.
    Complete,
    /// The queue was deleted since the first step, and may have been created again. The last step
    /// may have dealt with messages of the new queue.
    QueueGone,
}

/// How many scheduled messages are due when: see [`Queue::dues`](crate::Queue::dues).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct DueCounts {
    /// How many messages are due before the first time, from each time until before the next one,
    /// and at or after the last time: one number more than the given times.
    pub counts: Vec<u64>,
    /// When the last scheduled message is due, in Unix milliseconds; `None` if none is scheduled.
    pub last_ms: Option<u64>,
    /// The server's clock at the count, in Unix milliseconds. With several partitions it is the
    /// clock of the first one's server.
    pub now_ms: u64,
}

impl DueCounts {
    /// Adds the counts of another partition.
    pub(crate) fn add(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.last_ms = self.last_ms.max(other.last_ms);
    }
}

/// A partition of a queue: see [`Queue::partitions`](crate::Queue::partitions).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartitionInfo {
    /// The index of the partition, from 0.
    pub index: usize,
    /// What distinguishes the keys of the partition: `-` for the first, whose keys begin with
    /// `dueq:{QUEUE}`, and a number such as `17` for `dueq:{QUEUE/17}`.
    pub tag: String,
    /// The slot of the partition's keys in a cluster.
    pub slot: u16,
    /// The address of the server that holds the partition.
    pub server: String,
    /// The URL of the other store, if the queue moves and the partition is there. Its tag begins with
    /// an `@` then.
    pub store: Option<String>,
    /// Whether messages leave the partition: the number of partitions changes, and the new one has
    /// no place for it.
    pub leaves: bool,
    /// Whether the partition is new: the number of partitions changes, and the old one had no place
    /// for it.
    pub joins: bool,
    /// What the partition holds and has done.
    pub stats: QueueStats,
}

/// A live node of a queue: see [`Queue::nodes`](crate::Queue::nodes).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct NodeInfo {
    /// The id of the node. Each worker of a process has its own.
    pub id: String,
    /// How many milliseconds ago the node sent its last beat, by the server's clock: 3,000 at most.
    /// With several partitions the newest beat counts. 0 while the node has parked the queue.
    pub silent_ms: u64,
    /// In how many milliseconds a node that has parked the queue sends its next beat; 0 if it has
    /// not parked the queue. With several partitions the earliest beat counts.
    pub parked_ms: u64,
    /// How many partitions the node leads: 0 or 1 if the queue has one partition.
    pub leads: usize,
    /// How many partitions the node attends: 1 if the queue has one partition. 0 if the node only
    /// watches the home of a queue of several partitions.
    pub attends: usize,
    /// The process of the worker. `None` if it did not tell it yet, or is of an older release or of
    /// another client.
    pub process: Option<ProcessInfo>,
    /// Whether an operator has [drained](crate::Queue::drain_nodes) it: it takes no more messages of the
    /// queue.
    pub is_drained: bool,
}

/// A node that sent no beat for this long is no longer alive.
const SILENCE_MS: u64 = 3_000;

impl NodeInfo {
    /// Whether the node is alive: it sent a beat within 3 s, or is parked.
    pub fn is_alive(&self) -> bool {
        self.silent_ms <= SILENCE_MS
    }

    /// Whether the node has the messages of this lease.
    pub fn has(&self, lease: &LeaseInfo) -> bool {
        let of_lease = lease.node.as_deref().and_then(end_of_node);
        of_lease.is_some() && of_lease == end_of_node(&self.id)
    }

    /// A node that fell silent, by what it told last.
    pub(crate) fn silent(id: String, process: Option<ProcessInfo>, now_ms: u64) -> Self {
        let told_ms = process.as_ref().map_or(0, |process| process.told_ms);
        Self {
            id,
            silent_ms: now_ms.saturating_sub(told_ms).max(SILENCE_MS + 1),
            parked_ms: 0,
            leads: 0,
            attends: 0,
            process,
            is_drained: false,
        }
    }

    /// Merges the entries of a node at several partitions into one. The nodes are sorted by their
    /// ids.
    pub(crate) fn merged(mut nodes: Vec<Self>) -> Vec<Self> {
        nodes.sort_by(|one, other| one.id.cmp(&other.id));
        nodes.dedup_by(|next, kept| {
            let is_same = next.id == kept.id;
            if is_same {
                kept.merge(next.clone());
            }
            is_same
        });
        nodes
    }

    /// Adds what the same node is at another partition, or in another queue.
    pub(crate) fn merge(&mut self, other: Self) {
        // A node that only watches the home does not report whether it is parked there.
        self.parked_ms = match (self.attends, other.attends) {
            (0, _) => other.parked_ms,
            (_, 0) => self.parked_ms,
            _ => self.parked_ms.min(other.parked_ms),
        };
        self.silent_ms = self.silent_ms.min(other.silent_ms);
        self.leads += other.leads;
        self.attends += other.attends;
        self.is_drained |= other.is_drained;
        let told = |node: &Self| node.process.as_ref().map(|process| process.told_ms);
        if told(self) < told(&other) {
            self.process = other.process;
        }
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
            process: None,
            is_drained: false,
        }
    }

    #[test]
    fn node_at_several_partitions_is_listed_once() {
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
