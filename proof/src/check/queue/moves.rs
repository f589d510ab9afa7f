//! Messages that move between the partitions of a queue: each batch that departs either arrives
//! once, or comes back.

use std::collections::HashMap;
use std::ops::Range;

use crate::check::collect::Collection;
use crate::check::liveness::faults::{after, outside_us};
use crate::check::message::reads::ReadState;
use crate::check::queue::order::Change;
use crate::check::record::{Record, Step, What};
use crate::check::verdict::{Kind, Verdict};
use crate::history::{Answer, Call, MovedItem};

/// How long a due message may be on its way, but for faults: five times the fallback interval.
const LONGEST_US: u64 = 5_000_000;
/// How long after a fault of one of its partitions it may be; and after the death of a mover.
const AFTERMATH_US: u64 = 3_000_000;
const MOVER_US: u64 = 13_000_000;

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

#[derive(Debug)]
struct Batch {
    sum: u64,
    ids: Vec<String>,
    items: Range<usize>,
    /// The first answer that showed it.
    shown: Record,
}

#[derive(Debug, Clone)]
enum Deed {
    Depart {
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
#[derive(Debug, Clone)]
struct Told {
    queue: u16,
    is_answered: bool,
    record: Record,
    deed: Deed,
}

#[derive(Debug, Default)]
pub(crate) struct Moves {
    pub(crate) items: Vec<Moved>,
    /// By the partition that they left and their number.
    batches: HashMap<(u16, u64), Batch>,
    told: Vec<Told>,
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
        self.tell(
            (queue, true),
            record,
            Deed::Depart {
                back: back(fate),
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
            let (back, ids) = (back(fate), ids.clone());
            let shown = None;
            self.tell((queue, false), record, Deed::Depart { back, ids, shown });
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
            self.tell(
                at,
                record,
                Deed::Arrive {
                    from,
                    number,
                    sum,
                    applied,
                },
            );
        }
    }

    fn tell(&mut self, (queue, is_answered): (u16, bool), record: Record, deed: Deed) {
        self.told.push(Told {
            queue,
            is_answered,
            record,
            deed,
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

fn back(fate: &str) -> Option<u64> {
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
    let mut add = |told: &Told, id: &str, step: Step, item: usize| {
        let id = all.id(told.queue, id);
        let item = u32::try_from(item).unwrap_or(u32::MAX);
        let what = What::Move { step, item };
        let record = Record {
            id,
            what,
            ..told.record
        };
        match told.is_answered {
            true => all.records.push(record),
            false => all.unknown.push(record),
        }
    };
    for told in &moves.told {
        let mut each = |from: u16, number: u64, step: Step| {
            if let Some(batch) = moves.batches.get(&(from, number)) {
                let pairs = batch.ids.iter().zip(batch.items.clone());
                pairs.for_each(|(id, item)| add(told, id, step, item));
            }
        };
        match &told.deed {
            Deed::Depart { back, ids, shown } => {
                if let Some(number) = back {
                    each(told.queue, *number, Step::Returns);
                }
                if let Some((number, is_new)) = shown {
                    let step = if *is_new { Step::Departs } else { Step::Away };
                    each(told.queue, *number, step);
                }
                for id in ids {
                    add(told, id, Step::Departs, usize::MAX);
                }
            }
            Deed::Arrive {
                from,
                number,
                sum,
                applied,
            } => match applied {
                Some(0) => each(*from, *number, Step::Arrived),
                None if told.is_answered || *sum == 0 => {}
                _ => each(*from, *number, Step::Arrives),
            },
        }
    }
    all.moves = moves;
}

/// Judges each batch as a whole.
pub(crate) fn judge(all: &Collection, verdict: &mut Verdict) {
    let mut ends: HashMap<(u16, u64), Vec<&Told>> = HashMap::new();
    for told in all.moves.told.iter().filter(|told| told.is_answered) {
        // A failover undid it.
        if all.epochs[usize::from(told.record.epoch)].is_void(told.record.seq()) {
            continue;
        }
        match told.deed {
            Deed::Arrive { from, number, .. } => ends.entry((from, number)).or_default().push(told),
            Deed::Depart {
                back: Some(number), ..
            } => {
                ends.entry((told.queue, number)).or_default().push(told);
            }
            Deed::Depart { .. } => {}
        }
    }
    for (key, batch) in &all.moves.batches {
        let ends = ends.get(key).map_or(&[][..], Vec::as_slice);
        let of_batch = OfBatch {
            all,
            key: *key,
            batch,
            ends,
        };
        verdict.moves.batches += 1;
        verdict.moves.messages += batch.ids.len() as u64;
        of_batch.judge(verdict);
        of_batch.judge_time(verdict);
    }
}

struct OfBatch<'a> {
    all: &'a Collection,
    key: (u16, u64),
    batch: &'a Batch,
    /// The answered calls that decided what became of it.
    ends: &'a [&'a Told],
}

impl OfBatch<'_> {
    fn judge(&self, verdict: &mut Verdict) {
        let Self { all, batch, .. } = self;
        let messages = batch.ids.len();
        let emptied = |record: &Record| all.epochs[usize::from(record.epoch)].emptied;
        let stored = |told: &&&Told| matches!(told.deed, Deed::Arrive { applied: Some(count), .. } if count > 0);
        let stored = self
            .ends
            .iter()
            .filter(stored)
            .filter(|told| !emptied(&told.record));
        let stored: Vec<_> = stored.collect();
        let has = |is: fn(&Deed) -> bool| self.ends.iter().any(|told| is(&told.deed));
        let arrived = has(|deed| {
            matches!(
                deed,
                Deed::Arrive {
                    applied: Some(_),
                    ..
                }
            )
        });
        let returned = has(|deed| matches!(deed, Deed::Depart { .. }));
        verdict.moves.returned += u64::from(returned);
        if stored.len() + usize::from(returned) > 1 {
            let times = stored.len();
            verdict.found(Kind::InTwoPartitions, || {
                self.tell(&format!("arrived {times} times, and came back: {returned}"))
            });
        }
        for told in self.ends {
            let Deed::Arrive { sum, applied, .. } = told.deed else {
                continue;
            };
            if sum > 0 && sum != batch.sum
                || applied.is_some_and(|count| count > 0 && count != messages)
            {
                verdict.found(Kind::Contradictions, || {
                    self.tell(&format!("arrived as {applied:?}"))
                });
            }
        }
        let source = &all.epochs[usize::from(batch.shown.epoch)];
        let undone = source.is_void(batch.shown.seq());
        if messages > 0 && !(arrived || returned || undone || source.emptied) {
            verdict.found(Kind::Lost, || self.tell("neither arrived nor came back"));
        }
    }

    /// No message of the batch waited for long on its way after its due time.
    fn judge_time(&self, verdict: &mut Verdict) {
        let Self { all, batch, .. } = self;
        let decides = |told: &&&Told| match told.deed {
            Deed::Arrive { applied, .. } => applied.is_some(),
            Deed::Depart { .. } => true,
        };
        let first = self
            .ends
            .iter()
            .filter(decides)
            .min_by_key(|told| told.record.answered_us);
        let Some(first) = first else { return };
        let mut excused = after(all.faults.of_movers(), MOVER_US);
        for partition in [self.key.0, first.queue] {
            excused.extend(after(all.unreachable(partition), AFTERMATH_US));
        }
        excused.sort_unstable();
        let (left_us, back_us) = (batch.shown.asked_us, first.record.answered_us);
        for (id, item) in batch.ids.iter().zip(batch.items.clone()) {
            let due_ms = all.moves.items[item].state.due_ms().unwrap_or(u64::MAX);
            let late_us = first.record.now().saturating_sub(due_ms) * 1_000;
            let from_us = left_us.max(back_us.saturating_sub(late_us));
            if outside_us((from_us, back_us), &excused) > LONGEST_US {
                verdict.found(Kind::Late, || {
                    self.tell(&format!("had {id}, due at {due_ms} ms, until {back_us} us"))
                });
            }
        }
    }

    fn tell(&self, what: &str) -> String {
        let (queue, number) = self.key;
        let (name, messages) = (
            &self.all.queues[usize::from(queue)].name,
            self.batch.ids.len(),
        );
        let seq = self.batch.shown.seq();
        format!("batch {number} of {messages} messages, which left {name} at seq {seq}, {what}")
    }
}
