//! What an id is judged against beside its own records: its queue, and the life of that from one emptying to the next.

use std::collections::BTreeSet;

use super::operators::Operators;

/// A claim of which nobody knows what it granted, if anything.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Hidden {
    pub(super) asked_us: u64,
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
    pub(super) hidden: Vec<Hidden>,
    /// How many messages those may have taken together.
    pub(super) hidden_room: u64,
    /// Calls that may have changed it, of which nobody knows.
    pub(super) unknown_calls: u64,
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

    /// Hidden claims that were sent before this time: how many, and the shortest of their leases.
    pub(super) fn hidden_before(&self, told_us: u64) -> (usize, u64) {
        let count = self.hidden.partition_point(|hidden| hidden.asked_us < told_us);
        let shortest = self.hidden.get(..count).into_iter().flatten().map(|hidden| hidden.lease_ms).min();
        (count, shortest.unwrap_or(0))
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

/// The store as one `born`.
#[derive(Debug, Default)]
pub(super) struct Epoch {
    pub(super) queue: u16,
    pub(super) born: String,
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
}

impl Epoch {
    pub(super) fn is_void(&self, seq: u64) -> bool {
        self.void(seq).is_some()
    }

    /// Which of its ends is no part of what came after it: the place of that in `undone`.
    pub(super) fn void(&self, seq: u64) -> Option<usize> {
        self.undone.iter().position(|(survived, next)| *survived < seq && seq <= *next)
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
}

impl Context<'_> {
    pub(super) fn clock_disturbed(&self, from_us: u64, until_us: u64) -> bool {
        self.clock_faults.iter().any(|(begin, end)| *begin <= until_us && from_us <= *end)
    }
}
