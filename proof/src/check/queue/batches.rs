//! Each batch that leaves a partition either arrives once, or comes back; and neither takes long.

use std::collections::HashMap;

use crate::check::collect::Collection;
use crate::check::liveness::faults::{after, outside_us};
use crate::check::queue::moves::{Batch, MoveCall, MoveVerb};
use crate::check::verdict::{Kind, Verdict};

/// How long a due message may be on its way, but for faults: five times the fallback interval.
const LONGEST_US: u64 = 5_000_000;
/// How long after a fault of one of its partitions it may be; and after a mover was killed or frozen.
const AFTERMATH_US: u64 = 3_000_000;
const MOVER_US: u64 = 13_000_000;

pub(crate) fn judge(all: &Collection, verdict: &mut Verdict) {
    let mut ends: HashMap<(u16, u64), Ends<'_>> = HashMap::new();
    for call in all.moves.calls.iter().filter(|call| call.is_answered) {
        // A failover undid it.
        if all.epochs[usize::from(call.record.epoch)].is_void(call.record.seq()) {
            continue;
        }
        match call.verb {
            MoveVerb::Arrive { from, number, .. } => {
                let ends = ends.entry((from, number)).or_default();
                ends.arrivals.push(call);
            }
            MoveVerb::Depart { back, .. } => {
                if let Some(number) = back {
                    ends.entry((call.queue, number))
                        .or_default()
                        .returns
                        .push(call);
                }
            }
        }
    }
    let none = Ends::default();
    for (key, batch) in &all.moves.batches {
        let ends = ends.get(key).unwrap_or(&none);
        let of_batch = OfBatch {
            all,
            key: *key,
            batch,
            ends,
        };
        verdict.moves.batches += 1;
        verdict.moves.messages += batch.ids.len() as u64;
        verdict.moves.returned += u64::from(!ends.returns.is_empty());
        of_batch.judge(verdict);
        of_batch.judge_time(verdict);
    }
}

/// The answered calls that decided what becomes of a batch.
#[derive(Default)]
struct Ends<'a> {
    arrivals: Vec<&'a MoveCall>,
    returns: Vec<&'a MoveCall>,
}

/// How many messages an arrive has stored; `None` if its batch is void.
fn applied(arrival: &MoveCall) -> Option<usize> {
    match arrival.verb {
        MoveVerb::Arrive { applied, .. } => applied,
        MoveVerb::Depart { .. } => None,
    }
}

struct OfBatch<'a> {
    all: &'a Collection,
    /// The partition that it left, and its number there.
    key: (u16, u64),
    batch: &'a Batch,
    ends: &'a Ends<'a>,
}

impl OfBatch<'_> {
    fn judge(&self, verdict: &mut Verdict) {
        let Self {
            all, batch, ends, ..
        } = self;
        let messages = batch.ids.len();
        // What an emptied store had may arrive once more.
        let is_kept = |call: &MoveCall| !all.epochs[usize::from(call.record.epoch)].emptied;
        let mut times = 0;
        for call in &ends.arrivals {
            let stored = applied(call).unwrap_or(0);
            times += u32::from(stored > 0 && is_kept(call));
            let differs =
                matches!(call.verb, MoveVerb::Arrive { sum, .. } if ![0, batch.sum].contains(&sum));
            if differs || ![0, messages].contains(&stored) {
                verdict.found(Kind::Contradictions, || {
                    self.words(&format!("is another one where {stored} of it arrived"))
                });
            }
        }
        let has_arrived = ends.arrivals.iter().any(|call| applied(call).is_some());
        let is_back = !ends.returns.is_empty();
        if times + u32::from(is_back) > 1 {
            let back = if is_back { ", and came back" } else { "" };
            verdict.found(Kind::InTwoPartitions, || {
                self.words(&format!("arrived {times} times{back}"))
            });
        }
        let source = &all.epochs[usize::from(batch.shown.epoch)];
        let never_left = source.is_void(batch.shown.seq()) || source.emptied;
        if messages > 0 && !(has_arrived || is_back || never_left) {
            verdict.found(Kind::Lost, || self.words("neither arrived nor came back"));
        }
    }

    /// Judges that no message of the batch was due for long while it was on its way.
    fn judge_time(&self, verdict: &mut Verdict) {
        let Self {
            all, batch, ends, ..
        } = self;
        let arrivals = ends.arrivals.iter().filter(|call| applied(call).is_some());
        let decided = arrivals.chain(&ends.returns);
        let Some(end) = decided.min_by_key(|call| call.record.answered_us) else {
            return;
        };
        let of_movers = all.faults.of_movers_us().map(|at_us| (at_us, at_us));
        let mut excused = after(of_movers, MOVER_US);
        for partition in [self.key.0, end.queue] {
            excused.extend(after(all.unreachable(partition), AFTERMATH_US));
        }
        excused.sort_unstable();
        let (left_us, back_us) = (batch.shown.asked_us, end.record.answered_us);
        for (id, item) in batch.ids.iter().zip(batch.items.clone()) {
            let due_ms = all.moves.items[item].state.due_ms().unwrap_or(u64::MAX);
            let late_us = end.record.now().saturating_sub(due_ms) * 1_000;
            let from_us = left_us.max(back_us.saturating_sub(late_us));
            if outside_us((from_us, back_us), &excused) > LONGEST_US {
                verdict.found(Kind::Late, || {
                    self.words(&format!("had {id}, due at {due_ms} ms, until {back_us} us"))
                });
            }
        }
    }

    fn words(&self, what: &str) -> String {
        let (queue, number) = self.key;
        let name = &self.all.queues[usize::from(queue)].name;
        let (seq, messages) = (self.batch.shown.seq(), self.batch.ids.len());
        format!("batch {number} of {messages} messages, which left {name} at seq {seq}, {what}")
    }
}
