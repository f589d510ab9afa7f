//! The checker: judges from the histories of all processes whether the queue kept its guarantees.
//!
//! The order of events is Redis's own, by `seq`. Each id is judged separately, against
//! docs/protocol. Calls without an answer may have been applied: an effect that one of them can
//! have had, once and in its time, is no violation (`excuses`).

mod calls;
mod collect;
mod context;
mod describe;
mod excuses;
mod liveness;
mod message;
mod missing;
mod process;
mod queue;
mod record;
mod served;
mod ticks;
mod verdict;
mod workers;

use std::path::Path;

use anyhow::{Context as _, Result};

pub use excuses::Excuse;
pub use verdict::{Cause, Kind, Verdict};

use crate::history::{self, Event};
use collect::Collection;
use context::{Context, Epoch};
use excuses::{Chains, Need};
use message::judge::Case;
use record::{Record, What};

/// Judges the histories in a folder: one `*.jsonl` file for each process.
pub fn check(folder: &Path) -> Result<Verdict> {
    let entries =
        std::fs::read_dir(folder).with_context(|| format!("the folder {}", folder.display()))?;
    let mut paths = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<_>>>()?;
    paths.retain(|path| {
        path.extension()
            .is_some_and(|extension| extension == "jsonl")
    });
    paths.sort();
    let mut all = Collection::new();
    for path in paths {
        process::read(&mut all, &path.display().to_string(), history::read(&path)?)?;
    }
    Ok(judge_all(all))
}

/// Judges histories in memory.
pub fn check_events(histories: impl IntoIterator<Item = Vec<(u64, Event)>>) -> Result<Verdict> {
    let mut all = Collection::new();
    for (number, history) in histories.into_iter().enumerate() {
        process::read(
            &mut all,
            &format!("history {number}"),
            history.into_iter().map(Ok),
        )?;
    }
    Ok(judge_all(all))
}

fn judge_all(mut all: Collection) -> Verdict {
    let mut verdict = std::mem::take(&mut all.verdict);
    all.settle();
    queue::moves::resolve(&mut all);
    queue::partitions::judge_left(&all, &mut verdict);
    for (epoch, replies) in all.epochs.iter_mut().zip(&mut all.replies) {
        queue::order::judge(
            epoch,
            &all.queues[usize::from(epoch.queue)],
            replies,
            &mut verdict,
        );
    }
    queue::windows::judge(&mut all, &mut verdict);
    all.replies.clear();
    add_left(&mut all);
    let (mut records, mut unknown) = (
        std::mem::take(&mut all.records),
        std::mem::take(&mut all.unknown),
    );
    let mut void = Vec::new();
    records.retain(|record| {
        let kept = !all.epochs[usize::from(record.epoch)].is_void(record.seq());
        void.extend((!kept).then_some(*record));
        kept
    });
    // A stable sort keeps the items of one call in order.
    let order = |record: &Record| (record.id, record.epoch, record.order, record.now_us);
    records.sort_by_key(order);
    void.sort_by_key(order);
    queue::rollback::judge(&all, &void, &mut verdict);
    unknown.sort_by_key(|record| (record.id, record.asked_us));
    judge_ids(&all, &records, &unknown, &mut verdict);
    queue::operators::judge(&all, verdict.swept, &mut verdict);
    queue::limits::judge(&all, &records, &unknown, &mut verdict);
    queue::partitions::judge(&all, &mut verdict);
    queue::batches::judge(&all, &mut verdict);
    served::judge(&all, &mut verdict);
    ticks::judge(&all, &records, &mut verdict);
    all.verdict = verdict;
    all.verdict.invalid_because = all.doubts();
    all.verdict.valid = all.verdict.invalid_because.is_empty();
    all.verdict
}

/// Adds the remaining messages as records: they belong to the last epoch of their queue, and come
/// last.
fn add_left(all: &mut Collection) {
    let mut last_of = Vec::new();
    for queue in 0..all.queues.len() {
        let queue = u16::try_from(queue).unwrap_or(u16::MAX);
        let of_queue = all
            .epochs
            .iter()
            .enumerate()
            .filter(|(_, epoch)| epoch.queue == queue);
        let last = of_queue
            .max_by_key(|(_, epoch)| epoch.last_us)
            .map(|(place, _)| u16::try_from(place).unwrap_or(u16::MAX));
        let last = last.unwrap_or_else(|| all.epoch(queue, ""));
        all.epochs[usize::from(last)].last = true;
        last_of.push(last);
    }
    for (id, state, item) in std::mem::take(&mut all.left) {
        let epoch = last_of[usize::from(all.queue_of[id as usize])];
        all.records.push(Record {
            id,
            epoch,
            process: u16::MAX,
            order: u64::MAX,
            now_us: u64::MAX,
            asked_us: u64::MAX,
            answered_us: u64::MAX,
            what: What::Left {
                state,
                failures: item.2,
                crashes: item.3,
                time_ms: item.1,
            },
        });
    }
}

/// The messages, deliveries and violations counted so far.
fn sums(verdict: &Verdict) -> [u64; 3] {
    let violations = verdict.violations.values().sum();
    [verdict.messages, verdict.deliveries, violations]
}

fn judge_ids(all: &Collection, records: &[Record], unknown: &[Record], verdict: &mut Verdict) {
    let mut needs: Vec<Vec<(&Epoch, Need)>> = vec![Vec::new(); all.queues.len()];
    let mut waits = vec![Vec::new(); all.epochs.len()];
    let name = |record: &Record| all.name_of(record.id);
    let (mut of_epoch, chains) = (Vec::new(), Chains::default());
    excuses::count(&all.queues, unknown, verdict);
    let (ticks, mut copies) = (ticks::names(all), queue::copies::Copies::of(all));
    for records in records.chunk_by(|one, other| (one.id, one.epoch) == (other.id, other.epoch)) {
        let Some(first) = records.first() else {
            continue;
        };
        let (queue, epoch) = (
            all.queue_of[first.id as usize],
            &all.epochs[usize::from(first.epoch)],
        );
        let from = unknown.partition_point(|record| record.id < first.id);
        of_epoch.clear();
        of_epoch.extend(
            unknown
                .get(from..)
                .into_iter()
                .flatten()
                .take_while(|record| record.id == first.id)
                .filter(
                    // A call that was sent after the store was emptied had no effect on the epoch
                    // before.
                    |record| epoch.last || record.asked_us < epoch.last_us,
                ),
        );
        chains.clear();
        let context = Context {
            queue: &all.queues[usize::from(queue)],
            epoch,
            clock_faults: &all.clock_faults,
            refused: all.refused.contains(&first.id),
            refused_child: all.refused_children.contains(&first.id),
            unknown: &of_epoch,
            records,
            chains: &chains,
            moves: &all.moves.items,
            tick: ticks
                .get(&first.id)
                .and_then(|id| all.ticks.tick(id, records)),
        };
        let before = sums(verdict);
        let found = Case {
            records,
            unknown: &of_epoch,
            context,
        }
        .judge(verdict, &name);
        let after = sums(verdict);
        let name = all.queues[usize::from(queue)].name.clone();
        let counts = verdict.queues.entry(name).or_default();
        counts.messages += after[0] - before[0];
        counts.deliveries += after[1] - before[1];
        counts.violations += after[2] - before[2];
        excuses::use_up(&of_epoch, found.used, verdict);
        copies.judge(records, &of_epoch, found.used, verdict);
        needs[usize::from(queue)].extend(found.needs.into_iter().map(|need| (epoch, need)));
        // A claim may find only timers. The tick that a timer makes may be due later than the
        // timer.
        if !ticks.contains_key(&first.id) {
            waits[usize::from(first.epoch)].extend(found.waits);
        }
    }
    for (queue, needs) in all.queues.iter().zip(&needs) {
        excuses::judge(queue, needs, verdict);
    }
    for (epoch, waits) in all.epochs.iter().zip(waits) {
        liveness::lateness::judge(all, epoch, waits, verdict);
    }
}
