//! What an id is judged against beside its own records: its queue, and the life of that from one emptying to the next.

use std::collections::BTreeSet;

use super::excuses::Chains;
use super::missing::MissingChange;
use super::operators::Operators;
use super::record::Record;

/// A call without an answer that may have changed its queue, once.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Lost {
    /// When it was sent, and from when on it cannot be applied any more.
    pub(super) asked_us: u64,
    pub(super) until_us: u64,
    /// If it is a claim: how many messages it can have granted, and for how long.
    pub(super) most: u64,
    pub(super) lease_ms: u64,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    pub(super) name: String,
    /// What it was configured to in the course of the run.
    pub(super) max_attempts: BTreeSet<u64>,
    pub(super) max_crashes: BTreeSet<u64>,
    pub(super) dead_keep: BTreeSet<u64>,
    /// Whether messages may be trimmed from the dead by age.
    pub(super) ages: bool,
    pub(super) operators: Operators,
    /// In the order in which they were sent.
    pub(super) lost: Vec<Lost>,
    pub(super) died: u64,
    /// Whether what is left of it was written down.
    pub(super) scanned: bool,
    /// Whether anybody pushed to it.
    pub(super) pushed: bool,
}

impl Queue {
    /// The limit if it is known to have been one and the same all the time.
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
    // The default holds until it is configured: who configures it after the start leaves both possible.
    match values.len() {
        0 => Some(default),
        1 => values.first().copied().filter(|value| *value == default),
        _ => None,
    }
}

/// The store as one `incarnation`.
#[derive(Debug, Default)]
pub(super) struct Epoch {
    pub(super) queue: u16,
    pub(super) incarnation: String,
    /// When its first and its last reply came.
    pub(super) first_us: u64,
    pub(super) last_us: u64,
    /// What it held is gone, and that was the harness.
    pub(super) emptied: bool,
    /// Whether it is the last one of its queue.
    pub(super) last: bool,
    /// From `survived` to `next`: void.
    pub(super) undone: Vec<(u64, u64)>,
    /// The `seq` of replies before which the server's clock had gone back.
    pub(super) steps: Vec<u64>,
    /// The `seq` of changes that an answered call surely made, and those that nobody may have.
    pub(super) made: Vec<u64>,
    pub(super) gaps: Vec<MissingChange>,
    /// The claims that found nothing of what was ready or due: `seq`, and the server's ms.
    pub(super) empty: Vec<(u64, u64)>,
}

impl Epoch {
    pub(super) fn is_void(&self, seq: u64) -> bool {
        self.void(seq).is_some()
    }

    /// Which of its ends is no part of what came after it: the place of that in `undone`.
    pub(super) fn void(&self, seq: u64) -> Option<usize> {
        self.undone
            .iter()
            .position(|(survived, next)| *survived < seq && seq <= *next)
    }

    /// What may have been changed after one `seq` and up to another by a call without an answer.
    pub(super) fn gaps(&self, after: u64, until: u64) -> &[MissingChange] {
        let first = self.gaps.partition_point(|gap| gap.seq <= after);
        let rest = self.gaps.get(first..).unwrap_or_default();
        rest.get(..rest.partition_point(|gap| gap.seq <= until))
            .unwrap_or_default()
    }

    /// Whether an answered call surely made this change, and not the one that asks.
    pub(super) fn is_made_by_another(&self, seq: u64) -> bool {
        self.made.binary_search(&seq).is_ok()
    }

    /// Whether the server's clock went back between these two.
    pub(super) fn stepped(&self, after: u64, until: u64) -> bool {
        let first = self.steps.partition_point(|seq| *seq <= after);
        self.steps.get(first).is_some_and(|seq| *seq <= until)
    }
}

/// All of it, for one id.
#[derive(Debug, Clone, Copy)]
pub(super) struct Context<'a> {
    pub(super) queue: &'a Queue,
    pub(super) epoch: &'a Epoch,
    /// When the server's clock was tampered with, from until, by the clock of the processes.
    pub(super) clock_faults: &'a [(u64, u64)],
    /// Somebody's push of this id was refused.
    pub(super) refused: bool,
    /// Calls without an answer that name this id; and all others, in the order of the server.
    pub(super) unknown: &'a [Record],
    pub(super) records: &'a [Record],
    pub(super) chains: &'a Chains,
}

impl Context<'_> {
    pub(super) fn clock_disturbed(&self, from_us: u64, until_us: u64) -> bool {
        self.clock_faults
            .iter()
            .any(|(begin, end)| *begin <= until_us && from_us <= *end)
    }
}
