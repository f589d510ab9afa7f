//! Messages that move between the partitions of a queue: the calls that move them, and the records
//! that follow from these calls.

use std::collections::HashMap;
use std::ops::Range;

use crate::check::collect::Collection;
use crate::check::message::reads::ReadState;
use crate::check::queue::order::Change;
use crate::check::record::{Record, Step, What};
use crate::history::{Answer, Call, MovedItem};

/// A message in a batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moved {
    pub(crate) batch: u64,
    pub(crate) state: ReadState,
    /// The original due time, if it is not the time in the state; and the deadline that a retry or
    /// snooze has fixed. 0 if it has none.
    pub(crate) due_ms: u64,
    pub(crate) fixed_ms: u64,
}

/// What a depart takes out of a partition.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) sum: u64,
    pub(super) ids: Vec<String>,
    /// The messages, as places in the list of all moved ones.
    pub(super) items: Range<usize>,
    /// The first answer that showed it.
    pub(super) shown: Record,
}

#[derive(Debug)]
pub(super) enum MoveVerb {
    Depart {
        /// The batch that comes back.
        back: Option<u64>,
        /// The ids, if the call got no answer.
        ids: Vec<String>,
        /// The batch in the answer, and whether this call made it.
        shown: Option<(u64, bool)>,
    },
    Arrive {
        from: u16,
        number: u64,
        sum: u64,
        /// How many messages it stored; `None` if the batch is void, or without an answer.
        applied: Option<usize>,
    },
}

/// A call that moves messages; `record` has its time, without an answer the span of it.
#[derive(Debug)]
pub(super) struct MoveCall {
    pub(super) queue: u16,
    pub(super) is_answered: bool,
    pub(super) record: Record,
    pub(super) verb: MoveVerb,
}

#[derive(Debug, Default)]
pub(crate) struct Moves {
    pub(crate) items: Vec<Moved>,
    /// By the partition that they left and their number.
    pub(super) batches: HashMap<(u16, u64), Batch>,
    pub(super) calls: Vec<MoveCall>,
    /// Whether a mover ran, so that messages must have moved.
    pub(crate) has_movers: bool,
}

impl Moves {
    pub(crate) fn departed(&mut self, queue: u16, fate: &str, answer: Answer, record: Record) {
        let Answer::Departed {
            number,
            is_new,
            sum,
            items,
            ..
        } = answer
        else {
            return;
        };
        let known = &mut self.items;
        if number > 0 {
            let batch = self.batches.entry((queue, number)).or_insert_with(|| {
                let start = known.len();
                known.extend(items.iter().filter_map(|item| moved(item, number)));
                Batch {
                    sum,
                    ids: items.into_iter().map(|item| item.0).collect(),
                    items: start..known.len(),
                    shown: record,
                }
            });
            if record.answered_us < batch.shown.answered_us {
                batch.shown = record;
            }
        }
        self.note(
            (queue, true),
            record,
            MoveVerb::Depart {
                back: back_of(fate),
                ids: Vec::new(),
                shown: (number > 0).then_some((number, is_new)),
            },
        );
    }

    pub(crate) fn arrived(
        &mut self,
        queue: u16,
        from: u16,
        call: &Call,
        said: &str,
        record: Record,
    ) {
        let applied = said
            .strip_prefix("APPLIED ")
            .map(|count| count.parse().unwrap_or(0));
        self.arrive((queue, true), from, call, applied, record);
    }

    /// Notes a call without an answer; `from` is the other partition of an arrive.
    pub(crate) fn unknown(&mut self, queue: u16, from: u16, call: &Call, record: Record) {
        if let Call::Depart { fate, ids } = call {
            let (back, ids) = (back_of(fate), ids.clone());
            let shown = None;
            self.note(
                (queue, false),
                record,
                MoveVerb::Depart { back, ids, shown },
            );
        } else {
            self.arrive((queue, false), from, call, None, record);
        }
    }

    fn arrive(
        &mut self,
        at: (u16, bool),
        from: u16,
        call: &Call,
        applied: Option<usize>,
        record: Record,
    ) {
        if let Call::Arrive { number, sum, .. } = *call {
            self.note(
                at,
                record,
                MoveVerb::Arrive {
                    from,
                    number,
                    sum,
                    applied,
                },
            );
        }
    }

    fn note(&mut self, (queue, is_answered): (u16, bool), record: Record, verb: MoveVerb) {
        self.calls.push(MoveCall {
            queue,
            is_answered,
            record,
            verb,
        });
    }
}

fn moved(MovedItem(_, state, due_ms, fixed_ms): &MovedItem, batch: u64) -> Option<Moved> {
    Some(Moved {
        batch,
        state: ReadState::parse(state)?,
        due_ms: *due_ms,
        fixed_ms: *fixed_ms,
    })
}

fn back_of(fate: &str) -> Option<u64> {
    fate.strip_prefix("back=")?.parse().ok()
}

/// Whether the call changed its partition.
pub(crate) fn changes(call: &Call, answer: &Answer) -> Option<Change> {
    let perhaps = |perhaps| if perhaps { Change::Perhaps } else { Change::No };
    Some(match (call, answer) {
        (Call::Depart { .. }, Answer::Departed { is_new: true, .. }) => Change::Yes,
        (Call::Depart { fate, .. }, Answer::Departed { number, .. }) => {
            perhaps(*number == 0 && !fate.is_empty())
        }
        (Call::Arrive { number, sum, .. }, Answer::Other(words)) => {
            let said = words.first().and_then(|word| word.split_once(' '));
            match said {
                Some(("APPLIED", "0")) => Change::Perhaps,
                Some(("APPLIED", _)) => Change::Yes,
                Some(("VOID", last)) => perhaps(*sum == 0 && last.parse() == Ok(*number)),
                _ => Change::No,
            }
        }
        _ => return None,
    })
}

/// Adds what the calls did to each message as records.
pub(crate) fn resolve(all: &mut Collection) {
    let moves = std::mem::take(&mut all.moves);
    let mut add = |call: &MoveCall, id: &str, step: Step, item: usize| {
        let id = all.id(call.queue, id);
        let item = u32::try_from(item).unwrap_or(u32::MAX);
        let what = What::Move { step, item };
        let record = Record {
            id,
            what,
            ..call.record
        };
        match call.is_answered {
            true => all.records.push(record),
            false => all.unknown.push(record),
        }
    };
    for call in &moves.calls {
        let mut each = |from: u16, number: u64, step: Step| {
            if let Some(batch) = moves.batches.get(&(from, number)) {
                let pairs = batch.ids.iter().zip(batch.items.clone());
                pairs.for_each(|(id, item)| add(call, id, step, item));
            }
        };
        match &call.verb {
            MoveVerb::Depart { back, ids, shown } => {
                if let Some(number) = back {
                    each(call.queue, *number, Step::Returns);
                }
                if let Some((number, is_new)) = shown {
                    let step = if *is_new { Step::Departs } else { Step::Away };
                    each(call.queue, *number, step);
                }
                for id in ids {
                    add(call, id, Step::Departs, usize::MAX);
                }
            }
            MoveVerb::Arrive {
                from,
                number,
                sum,
                applied,
            } => match applied {
                Some(0) => each(*from, *number, Step::Arrived),
                None if call.is_answered || *sum == 0 => {}
                _ => each(*from, *number, Step::Arrives),
            },
        }
    }
    all.moves = moves;
}
