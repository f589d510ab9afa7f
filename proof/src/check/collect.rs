//! Collects the histories of all processes, sorted by queue and id.

use std::collections::{HashMap, HashSet};

use super::context::{Epoch, Queue};
use super::record::Record;
use super::served::Served;
use super::ticks::Ticks;
use super::verdict::Verdict;
use crate::check::liveness::faults::Faults;
use crate::check::queue::moves::Moves;
use crate::check::queue::order::{Change, Reply};
use crate::check::queue::partitions::Partitions;
use crate::check::queue::windows::Windowed;
use crate::history::{LeftItem, State};

/// Faults in which a replica replaces its master.
const FAILOVERS: [&str; 3] = ["failover", "master_kill", "master_freeze"];

/// Everything that was read from the histories.
#[derive(Debug)]
pub(super) struct Collection {
    pub(super) verdict: Verdict,
    pub(super) processes: Vec<String>,
    pub(super) queues: Vec<Queue>,
    /// The masters of a cluster, by index. Index 0 is an empty name, for calls whose master is
    /// unknown.
    pub(super) masters: Vec<String>,
    pub(super) partitions: Partitions,
    pub(super) moves: Moves,
    pub(super) ticks: Ticks,
    pub(super) served: Served,
    /// For each queue: a number for each of its ids.
    pub(super) ids: Vec<HashMap<Box<str>, u32>>,
    /// The queue of each id.
    pub(super) queue_of: Vec<u16>,
    pub(super) epochs: Vec<Epoch>,
    /// For each epoch: its replies.
    pub(super) replies: Vec<Vec<Reply>>,
    pub(super) records: Vec<Record>,
    pub(super) unknown: Vec<Record>,
    /// Ids of messages whose push was refused.
    pub(super) refused: HashSet<u32>,
    /// Ids of follow-ups whose ack was refused.
    pub(super) refused_children: HashSet<u32>,
    /// Pushes with a window that stored a message.
    pub(super) windowed: Vec<Windowed>,
    pub(super) left: Vec<(u32, State, LeftItem)>,
    /// Queues that a replaced master alone had, that master, and when it was one no more.
    pub(super) vanished: Vec<(u16, u16, u64)>,
    pub(super) faults: Faults,
    pub(super) clock_faults: Vec<(u64, u64)>,
    /// Processes that use the scripts of an older release.
    pub(super) older: HashSet<u16>,
    /// Whether a worker started handlers without having written the shares of its queues.
    pub(super) has_starts_without_shares: bool,
    /// Queue and token of the lost claims that their workers have given up.
    pub(super) given_up: HashSet<(u16, u64)>,
    /// By id: the number of calls that may have cancelled it.
    pub(super) cancels: HashMap<u32, u32>,
    /// Answers with CANCELLED: the epoch, the position of the answer in `replies`, and the ids.
    pub(super) cancelled: Vec<(u16, usize, Vec<u32>)>,
}

impl Collection {
    pub(super) fn new() -> Self {
        Self {
            verdict: Verdict::new(),
            processes: Vec::new(),
            queues: Vec::new(),
            masters: vec![String::new()],
            partitions: Partitions::default(),
            moves: Moves::default(),
            ticks: Ticks::default(),
            served: Served::default(),
            ids: Vec::new(),
            queue_of: Vec::new(),
            epochs: Vec::new(),
            replies: Vec::new(),
            records: Vec::new(),
            unknown: Vec::new(),
            refused: HashSet::new(),
            refused_children: HashSet::new(),
            windowed: Vec::new(),
            left: Vec::new(),
            vanished: Vec::new(),
            faults: Faults::default(),
            clock_faults: Vec::new(),
            older: HashSet::new(),
            has_starts_without_shares: false,
            given_up: HashSet::new(),
            cancels: HashMap::new(),
            cancelled: Vec::new(),
        }
    }

    /// The number of a queue, or of a partition such as `orders/17`.
    pub(super) fn queue(&mut self, name: &str) -> u16 {
        let whole = name.split_once('/').map(|(whole, _)| self.queue(whole));
        let place = self
            .queues
            .iter()
            .position(|queue| queue.name == name)
            .unwrap_or_else(|| {
                self.queues.push(Queue {
                    name: name.to_owned(),
                    whole: whole.unwrap_or(u16::try_from(self.queues.len()).unwrap_or(u16::MAX)),
                    ..Queue::default()
                });
                self.ids.push(HashMap::new());
                self.queues.len() - 1
            });
        u16::try_from(place).unwrap_or(u16::MAX)
    }

    pub(super) fn master(&mut self, name: &str) -> u16 {
        let known = self.masters.iter().position(|known| known == name);
        let place = known.unwrap_or_else(|| {
            self.masters.push(name.to_owned());
            self.masters.len() - 1
        });
        u16::try_from(place).unwrap_or(u16::MAX)
    }

    pub(super) fn id(&mut self, queue: u16, id: &str) -> u32 {
        let Some(ids) = self.ids.get_mut(usize::from(queue)) else {
            return u32::MAX;
        };
        if let Some(number) = ids.get(id) {
            return *number;
        }
        let number = u32::try_from(self.queue_of.len()).unwrap_or(u32::MAX);
        ids.insert(id.into(), number);
        self.queue_of.push(queue);
        number
    }

    /// The name of an id's number. Slow, so only for descriptions of violations.
    pub(super) fn name_of(&self, number: u32) -> String {
        let named = |ids: &HashMap<Box<str>, u32>| {
            ids.iter()
                .find(|(_, id)| **id == number)
                .map(|(name, _)| name.to_string())
        };
        self.ids
            .iter()
            .zip(&self.queues)
            .find_map(|(ids, queue)| Some(format!("{}/{}", queue.name, named(ids)?)))
            .unwrap_or_default()
    }

    pub(super) fn epoch(&mut self, queue: u16, incarnation: &str) -> u16 {
        let known = self
            .epochs
            .iter()
            .rposition(|epoch| epoch.queue == queue && epoch.incarnation == incarnation);
        let place = known.unwrap_or_else(|| {
            self.epochs.push(Epoch {
                queue,
                incarnation: incarnation.to_owned(),
                first_us: u64::MAX,
                ..Epoch::default()
            });
            self.replies.push(Vec::new());
            self.epochs.len() - 1
        });
        u16::try_from(place).unwrap_or(u16::MAX)
    }

    /// Derives everything that needs all histories.
    pub(super) fn settle(&mut self) {
        self.ticks.settle();
        for (queue, master, at_us) in std::mem::take(&mut self.vanished) {
            for (epoch, replies) in self.epochs.iter_mut().zip(&self.replies) {
                epoch.emptied |= epoch.queue == queue
                    && epoch.first_us < at_us
                    && replies.iter().all(|reply| reply.master == master);
            }
        }
        self.clock_faults = self.faults.of_clocks();
        for queue in 0..self.queues.len() {
            // Partitions of a whole queue were looked through if they existed.
            let whole = usize::from(self.queues[queue].whole);
            self.queues[queue].scanned |= self.queues[whole].scanned;
        }
        for queue in &self.queues {
            let pauses = &queue.operators.pauses;
            for (epoch, found) in pauses.empty_while_open(&self.epochs, queue.expires) {
                self.epochs[usize::from(epoch)].empty.push(found);
            }
        }
        for (number, queue) in (0..).zip(&mut self.queues) {
            queue.lost.sort_unstable_by_key(|lost| lost.asked_us);
            for lost in &mut queue.lost {
                lost.given_up = self.given_up.contains(&(number, lost.token));
            }
        }
        // If only one call cancels an id, the call is not a repetition, and so made the change. Not
        // so if a purge, which is remembered like a cancel, may have removed the message.
        for (epoch, place, ids) in std::mem::take(&mut self.cancelled) {
            let purged_us = self.queues[usize::from(self.epochs[usize::from(epoch)].queue)]
                .operators
                .first_purge_us();
            let alone = ids.iter().any(|id| self.cancels.get(id) == Some(&1));
            let Some(reply) = self.replies[usize::from(epoch)].get_mut(place) else {
                continue;
            };
            if alone && purged_us.is_none_or(|purged_us| reply.answered_us < purged_us) {
                reply.changed = Change::Surely;
            }
        }
    }

    /// The reasons for which the run proves nothing.
    pub(super) fn doubts(&self) -> Vec<String> {
        let mut doubts: Vec<_> = self.faults.untraced().collect();
        let unseen = self
            .queues
            .iter()
            .filter(|queue| !queue.scanned && queue.pushed);
        doubts.extend(unseen.map(|queue| {
            format!(
                "nothing was written down about what is left of queue {}",
                queue.name
            )
        }));
        for (missing, what) in [
            (self.processes.is_empty(), "there are no histories"),
            (self.verdict.messages == 0, "nothing was pushed"),
            (self.verdict.deliveries == 0, "nothing was claimed"),
            (
                FAILOVERS
                    .iter()
                    .any(|kind| self.verdict.faults.contains_key(*kind))
                    && self.verdict.replicated == 0,
                "there were failovers, and no push was acknowledged as replicated",
            ),
            (
                self.verdict.schedules.applied > 0 && self.verdict.schedules.granted == 0,
                "schedules were declared, and no tick was claimed",
            ),
            (
                self.verdict.limits.under_rate == 0
                    && self
                        .queues
                        .iter()
                        .any(|queue| queue.operators.limits.has_rate()),
                "a rate was set, and no start was judged by it",
            ),
            (
                self.verdict.limits.under_max_leased == 0
                    && self
                        .queues
                        .iter()
                        .any(|queue| queue.operators.limits.has_max_leased()),
                "max_leased was set, and no lease was judged by it",
            ),
            (
                self.ticks.doubt().is_some(),
                self.ticks.doubt().unwrap_or_default(),
            ),
            (
                self.verdict.http.proves_nothing(),
                "consumers claimed over HTTP, and were handed nothing, or nothing again after a lost answer",
            ),
            (
                self.moves.has_movers && self.verdict.moves.messages == 0,
                "movers ran, and no message moved",
            ),
            (
                self.has_starts_without_shares,
                "a worker started handlers and did not write the shares of its queues",
            ),
            (
                self.verdict.unjudged > 0,
                "some ids have too many calls without an answer to be judged",
            ),
        ] {
            doubts.extend(missing.then(|| what.to_owned()));
        }
        doubts
    }
}
