//! The context of an id: its queue, and the epoch (the time between two emptyings of the store).

use std::collections::BTreeSet;

use super::excuses::Chains;
use super::missing::MissingChange;
use super::record::Record;
use super::ticks::Tick;
use crate::check::queue::moves::Moved;
use crate::check::queue::operators::Operators;
use crate::check::queue::order::Reply;

/// A call without an answer that may have changed its queue, once.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Lost {
    /// When the call was sent, and the time after which it can no longer be applied.
    pub(super) asked_us: u64,
    pub(super) until_us: u64,
    /// For a claim: the most messages that it may have granted, and the lease.
    pub(super) most: u64,
    pub(super) lease_ms: u64,
    pub(super) token: u64,
    /// The claim's worker got answers to other claims while its lease lasted, and did not ask for
    /// this one again: then a crash of its grants has no excuse.
    pub(super) given_up: bool,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    pub(super) name: String,
    /// The number of the queue; for a partition, that of its whole queue.
    pub(super) whole: u16,
    /// The values of `max_attempts` that were configured during the run.
    pub(super) max_attempts: BTreeSet<u64>,
    pub(super) max_crashes: BTreeSet<u64>,
    pub(super) dead_keep: BTreeSet<u64>,
    /// Whether dead letters may be trimmed by age.
    pub(super) ages: bool,
    pub(super) operators: Operators,
    /// The lost calls, in the order in which they were sent.
    pub(super) lost: Vec<Lost>,
    pub(super) died: u64,
    /// Whether the remaining messages were recorded.
    pub(super) scanned: bool,
    /// Whether messages of the queue may expire.
    pub(super) expires: bool,
    /// Whether any process pushed to the queue.
    pub(super) pushed: bool,
}

impl Queue {
    /// The limit, if it was certainly the same throughout the run.
    pub(super) fn max_attempts(&self) -> Option<u64> {
        one(&self.max_attempts, 20)
    }

    pub(super) fn max_crashes(&self) -> Option<u64> {
        one(&self.max_crashes, 5)
    }

    pub(super) fn may_trim(&self) -> bool {
        self.ages || self.dead_keep.first().copied().unwrap_or(100_000) < self.died
    }
}

fn one(values: &BTreeSet<u64>, default: u64) -> Option<u64> {
    // Until a limit is configured, the default applies: after a configuration during the run both
    // values are possible.
    match values.len() {
        0 => Some(default),
        1 => values.first().copied().filter(|value| *value == default),
        _ => None,
    }
}

/// A replaced master: when it was replaced, and how many changes its replica had.
#[derive(Debug)]
pub(super) struct Replaced {
    pub(super) at_us: u64,
    pub(super) survived: u64,
    pub(super) master: u16,
}

/// The store under one `incarnation`.
#[derive(Debug, Default)]
pub(super) struct Epoch {
    pub(super) queue: u16,
    pub(super) incarnation: String,
    /// When the first and the last reply of the epoch came.
    pub(super) first_us: u64,
    pub(super) last_us: u64,
    /// When the last call that the epoch answered was sent: it existed at that time or later.
    pub(super) asked_us: u64,
    /// The latest time of the server in any reply, in ms.
    pub(super) latest_ms: u64,
    /// Whether the harness emptied the store.
    pub(super) emptied: bool,
    /// Whether this is the last epoch of its queue.
    pub(super) last: bool,
    /// Ranges from `survived` to `next` whose changes were undone. The harness itself made the
    /// change `next`, so an answer with that `seq` that changed nothing came after the rollback.
    pub(super) undone: Vec<(u64, u64)>,
    /// Masters of a cluster that were replaced.
    pub(super) replaced: Vec<Replaced>,
    /// The `seq` of replies before which the server's clock had gone back.
    pub(super) steps: Vec<u64>,
    /// The `seq` of each change that an answered call certainly made; below, all other changes,
    /// which an unanswered call may have made.
    pub(super) made: Vec<u64>,
    pub(super) gaps: Vec<MissingChange>,
    /// Claims that found nothing ready or due while the queue was open: `seq`, and the server's
    /// time in ms.
    pub(super) empty: Vec<(u64, u64)>,
}

impl Epoch {
    pub(super) fn is_void(&self, seq: u64) -> bool {
        self.void(seq).is_some()
    }

    /// Whether a replaced master answered a call that was sent after its replacement. Its changes
    /// are undone; an answer that changed nothing has the `seq` that its replica had.
    pub(super) fn is_stale(&self, reply: &Reply) -> bool {
        self.replaced.iter().any(|replaced| {
            replaced.master == reply.master
                && replaced.at_us < reply.asked_us
                && reply.seq <= replaced.survived
        })
    }

    /// The index in `undone` of the rollback that undid this change.
    pub(super) fn void(&self, seq: u64) -> Option<usize> {
        self.undone
            .iter()
            .position(|(survived, next)| *survived < seq && seq < *next)
    }

    /// The end of the range around this `seq` that no call can have made: undone changes, and the
    /// harness's own change after them.
    pub(super) fn skipped(&self, seq: u64) -> Option<u64> {
        let mut ranges = self.undone.iter();
        let range = ranges.find(|(survived, next)| *survived < seq && seq <= *next);
        range.map(|(_, next)| *next)
    }

    /// Whether a rollback happened before this change.
    pub(super) fn undone_before(&self, seq: u64) -> bool {
        self.undone.iter().any(|(_, next)| *next <= seq)
    }

    /// The changes between two `seq` that unanswered calls may have made.
    pub(super) fn gaps(&self, after: u64, until: u64) -> &[MissingChange] {
        let first = self.gaps.partition_point(|gap| gap.seq <= after);
        let rest = self.gaps.get(first..).unwrap_or_default();
        rest.get(..rest.partition_point(|gap| gap.seq <= until))
            .unwrap_or_default()
    }

    /// This change, if an unanswered call may have made it.
    pub(super) fn gap(&self, seq: u64) -> Option<&MissingChange> {
        self.gaps(seq.checked_sub(1)?, seq).first()
    }

    /// Whether another answered call certainly made this change.
    pub(super) fn is_made_by_another(&self, seq: u64) -> bool {
        self.made.binary_search(&seq).is_ok()
    }

    /// Whether the server's clock went back between these two `seq`.
    pub(super) fn stepped(&self, after: u64, until: u64) -> bool {
        let first = self.steps.partition_point(|seq| *seq <= after);
        self.steps.get(first).is_some_and(|seq| *seq <= until)
    }
}

/// The context of one id.
#[derive(Debug, Clone, Copy)]
pub(super) struct Context<'a> {
    pub(super) queue: &'a Queue,
    pub(super) epoch: &'a Epoch,
    /// The times in which the harness had changed the server's clock, by the clock of the
    /// processes.
    pub(super) clock_faults: &'a [(u64, u64)],
    /// Whether a push of this id was refused.
    pub(super) refused: bool,
    /// Whether the id is a follow-up whose ack was refused.
    pub(super) refused_child: bool,
    /// Unanswered calls that name this id; below, all answered ones in the server's order.
    pub(super) unknown: &'a [Record],
    pub(super) records: &'a [Record],
    pub(super) chains: &'a Chains,
    /// All messages that moved between partitions.
    pub(super) moves: &'a [Moved],
    /// Set if the id is that of a tick which a schedule may make.
    pub(super) tick: Option<Tick<'a>>,
}

impl<'a> Context<'a> {
    /// A moved message by its place in the list.
    pub(super) fn moved(&self, item: u32) -> Option<&'a Moved> {
        self.moves.get(item as usize)
    }

    pub(super) fn clock_disturbed(&self, from_us: u64, until_us: u64) -> bool {
        self.clock_faults
            .iter()
            .any(|(begin, end)| *begin <= until_us && from_us <= *end)
    }
}
