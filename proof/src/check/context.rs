//! The context of an id: its queue, and the epoch between two emptyings of the store.

use std::collections::BTreeSet;

use super::excuses::Chains;
use super::missing::MissingChange;
use super::record::Record;
use super::ticks::Tick;
use crate::check::queue::operators::Operators;
use crate::check::queue::order::Reply;

/// A call without an answer that may have changed its queue, once.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Lost {
    /// When it was sent, and after which time it can no longer be applied.
    pub(super) asked_us: u64,
    pub(super) until_us: u64,
    /// Of a claim: the most messages that it can have granted, and the lease.
    pub(super) most: u64,
    pub(super) lease_ms: u64,
    pub(super) token: u64,
    /// The worker that sent it claimed others while its lease lasted, and did not ask for it again: no
    /// crash of its grants is excused.
    pub(super) given_up: bool,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    pub(super) name: String,
    /// The number of the queue that it is a partition of, or its own.
    pub(super) whole: u16,
    /// The values that were configured during the run.
    pub(super) max_attempts: BTreeSet<u64>,
    pub(super) max_crashes: BTreeSet<u64>,
    pub(super) dead_keep: BTreeSet<u64>,
    /// Whether dead letters may be trimmed by age.
    pub(super) ages: bool,
    pub(super) operators: Operators,
    /// In the order in which they were sent.
    pub(super) lost: Vec<Lost>,
    pub(super) died: u64,
    /// Whether the remaining messages were recorded.
    pub(super) scanned: bool,
    /// Whether messages of it may expire.
    pub(super) expires: bool,
    /// Whether any process pushed to it.
    pub(super) pushed: bool,
}

impl Queue {
    /// The limit, if it certainly was the same all the time.
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
    // The default applies until a limit is configured: a limit configured after the start leaves
    // both possible.
    match values.len() {
        0 => Some(default),
        1 => values.first().copied().filter(|value| *value == default),
        _ => None,
    }
}

/// A master that was replaced, when, and how many changes its replica had.
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
    /// When its first and its last reply came.
    pub(super) first_us: u64,
    pub(super) last_us: u64,
    /// The latest time of the server in a reply, in ms.
    pub(super) latest_ms: u64,
    /// The harness emptied the store.
    pub(super) emptied: bool,
    /// Whether it is the last epoch of its queue.
    pub(super) last: bool,
    /// Ranges from `survived` to `next`: the changes between them are void. The harness itself made
    /// the change `next`: answers with it that changed nothing came afterwards.
    pub(super) undone: Vec<(u64, u64)>,
    /// Masters of a cluster that were replaced.
    pub(super) replaced: Vec<Replaced>,
    /// The `seq` of replies before which the server's clock had gone back.
    pub(super) steps: Vec<u64>,
    /// The `seq` of changes that an answered call certainly made, and of those that perhaps none
    /// made.
    pub(super) made: Vec<u64>,
    pub(super) gaps: Vec<MissingChange>,
    /// The claims that found nothing ready or due while the queue was open: `seq`, and the server's
    /// time in ms.
    pub(super) empty: Vec<(u64, u64)>,
}

impl Epoch {
    pub(super) fn is_void(&self, seq: u64) -> bool {
        self.void(seq).is_some()
    }

    /// Whether a master that had been replaced answered a call that was sent afterwards. Its changes
    /// are void; an answer that changed nothing has the `seq` that its replica had.
    pub(super) fn is_stale(&self, reply: &Reply) -> bool {
        self.replaced.iter().any(|replaced| {
            replaced.master == reply.master
                && replaced.at_us < reply.asked_us
                && reply.seq <= replaced.survived
        })
    }

    /// The index in `undone` of the rollback that makes a change void.
    pub(super) fn void(&self, seq: u64) -> Option<usize> {
        self.undone
            .iter()
            .position(|(survived, next)| *survived < seq && seq < *next)
    }

    /// The end of the range of `seq` around this one that no call can have made: undone changes, and
    /// the harness's own change behind them.
    pub(super) fn skipped(&self, seq: u64) -> Option<u64> {
        let mut ranges = self.undone.iter();
        let range = ranges.find(|(survived, next)| *survived < seq && seq <= *next);
        range.map(|(_, next)| *next)
    }

    /// Whether a rollback came before this change.
    pub(super) fn undone_before(&self, seq: u64) -> bool {
        self.undone.iter().any(|(_, next)| *next <= seq)
    }

    /// The changes between two `seq` that a call without an answer can have made.
    pub(super) fn gaps(&self, after: u64, until: u64) -> &[MissingChange] {
        let first = self.gaps.partition_point(|gap| gap.seq <= after);
        let rest = self.gaps.get(first..).unwrap_or_default();
        rest.get(..rest.partition_point(|gap| gap.seq <= until))
            .unwrap_or_default()
    }

    /// This change, if a call without an answer can have made it.
    pub(super) fn gap(&self, seq: u64) -> Option<&MissingChange> {
        self.gaps(seq.checked_sub(1)?, seq).first()
    }

    /// Whether another answered call certainly made this change.
    pub(super) fn is_made_by_another(&self, seq: u64) -> bool {
        self.made.binary_search(&seq).is_ok()
    }

    /// Whether the server's clock went back between these two.
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
    /// When the harness changed the server's clock, from and until, by the clock of the processes.
    pub(super) clock_faults: &'a [(u64, u64)],
    /// A push of this id was refused.
    pub(super) refused: bool,
    /// It followed a delivery whose ack was refused.
    pub(super) refused_child: bool,
    /// Calls without an answer that name this id; and all others, in the server's order.
    pub(super) unknown: &'a [Record],
    pub(super) records: &'a [Record],
    pub(super) chains: &'a Chains,
    /// If it is the id of a tick that a schedule may make.
    pub(super) tick: Option<Tick<'a>>,
}

impl Context<'_> {
    pub(super) fn clock_disturbed(&self, from_us: u64, until_us: u64) -> bool {
        self.clock_faults
            .iter()
            .any(|(begin, end)| *begin <= until_us && from_us <= *end)
    }
}
