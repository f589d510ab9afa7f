//! Reads faults and claims from the histories of a run.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::history::{Answer, Call, Event, Phase};
use crate::queues::{TICKS, planned_queues};

/// When a claim was sent and when it was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Claim {
    pub(super) asked_us: u64,
    pub(super) answered_us: u64,
    /// Whether the grant is void: by a replaced master, or undone in another way.
    pub(super) void: bool,
}

/// When the last writes were lost, of which `incarnation`, and the `seq` before and after.
pub(super) struct Undone {
    pub(super) t_us: u64,
    /// Whether this entry is the first of its fault, which undid the writes of every queue.
    pub(super) is_first: bool,
    pub(super) incarnation: String,
    pub(super) survived: u64,
    pub(super) next: u64,
}
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) kind: String,
    pub(super) begun_us: u64,
    pub(super) ended_us: u64,
    pub(super) victim: String,
}
/// The history of the harness.
pub(super) struct Harness {
    pub(super) faults: Vec<Fault>,
    pub(super) undone: Vec<Undone>,
    pub(super) stalls: Vec<(u64, u64)>,
    /// When the producers were asked to end.
    pub(super) calm_us: u64,
}

pub(super) fn harness(path: &Path) -> Result<Harness> {
    let (mut open, mut undone) = (HashMap::<u64, Fault>::new(), Vec::new());
    let (mut stalls, mut calm_us) = (Vec::new(), u64::MAX);
    for line in crate::history::read(path)? {
        let (t_us, fault, number, phase, detail) = match line? {
            (
                t_us,
                Event::Fault {
                    fault,
                    number,
                    phase,
                    detail,
                },
            ) => (t_us, fault, number, phase, detail),
            (
                t_us,
                Event::Undone {
                    queue,
                    incarnation,
                    survived,
                    next,
                },
            ) => {
                undone.push(Undone {
                    t_us,
                    is_first: queue == planned_queues(1)[0].name,
                    incarnation,
                    survived,
                    next,
                });
                continue;
            }
            (t_us, Event::Stalled { ms }) => {
                stalls.push((t_us.saturating_sub(ms * 1_000), t_us));
                continue;
            }
            (t_us, Event::Calm) => {
                calm_us = t_us;
                continue;
            }
            _ => continue,
        };
        let entry = open.entry(number).or_insert(Fault {
            kind: fault,
            begun_us: t_us,
            ended_us: 0,
            victim: detail.clone(),
        });
        if phase == Phase::End {
            (entry.ended_us, entry.victim) = (t_us, detail);
        }
    }
    let mut faults: Vec<_> = open
        .into_values()
        .filter(|fault| fault.ended_us > 0)
        .collect();
    faults.sort_unstable_by_key(|fault| fault.begun_us);
    Ok(Harness {
        faults,
        undone,
        stalls,
        calm_us,
    })
}

/// The files of histories in `folder` whose names begin with this letter, such as `w` for workers.
pub(super) fn of_places(folder: &Path, first: char) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        if name.starts_with(first) && name.ends_with(".jsonl") {
            found.push(path);
        }
    }
    Ok(found)
}

/// Parses only the lines with one of these words, because most lines are about other events. Leaves
/// out a torn last line.
pub(super) fn lines(path: &Path, words: &[&str], mut tell: impl FnMut(u64, Event)) -> Result<()> {
    let mut reader = BufReader::with_capacity(1 << 20, File::open(path)?);
    let mut line = String::new();
    loop {
        line.clear();
        if reader.read_line(&mut line)? == 0 || !line.ends_with('\n') {
            return Ok(());
        }
        if words.iter().any(|word| line.contains(word)) {
            let (t_us, event) = serde_json::from_str(&line)
                .with_context(|| format!("{}: {line}", path.display()))?;
            tell(t_us, event);
        }
    }
}

/// Each claim that granted messages, with its queue and their ids.
pub(super) fn read_claims(
    path: &Path,
    undone: &[Undone],
    mut tell: impl FnMut(Claim, &str, &[crate::history::ClaimedItem]),
    handlers: &mut BTreeMap<String, u64>,
) -> Result<()> {
    let mut asked: HashMap<u64, (u64, String)> = HashMap::new();
    let words = [
        "\"claim\":{",
        "\"claimed\":{",
        "\"lost_lease\"",
        "\"wants\":\"panic\"",
    ];
    lines(path, &words, |t_us, event| match event {
        Event::Invoke {
            call,
            queue,
            what: Call::Claim { .. },
            ..
        } if queue != TICKS => drop(asked.insert(call, (t_us, queue))),
        Event::Ok {
            call,
            seq,
            incarnation,
            answer: Answer::Claimed { items, .. },
            ..
        } => {
            if let Some((asked_us, queue)) = asked.remove(&call).filter(|_| !items.is_empty()) {
                let is_void = |undone: &Undone| {
                    undone.incarnation == incarnation && undone.survived < seq && seq <= undone.next
                };
                tell(
                    Claim {
                        asked_us,
                        answered_us: t_us,
                        void: undone.iter().any(is_void),
                    },
                    &queue,
                    &items,
                );
            }
        }
        Event::LostLease { .. } => {
            *handlers
                .entry("handler_outlives_its_lease".to_owned())
                .or_default() += 1
        }
        Event::Ended { wants, .. } if wants == "panic" => {
            *handlers.entry("handler_panics".to_owned()).or_default() += 1;
        }
        _ => {}
    })
}
/// The queues and ids that a dead worker had been granted at the first attempt, and had not begun
/// to settle: an unanswered settlement may have been applied. Raises `lease_ms` to the longest
/// lease that the worker asked for.
pub(super) fn held_by(path: &Path, lease_ms: &mut u64) -> Result<BTreeSet<(String, String)>> {
    let (mut held, mut queues) = (BTreeSet::new(), HashMap::new());
    for line in crate::history::read(path)? {
        match line?.1 {
            Event::Ok {
                call,
                answer: Answer::Claimed { items, .. },
                ..
            } => {
                let queue: String = queues.remove(&call).unwrap_or_default();
                // Only the first attempt: another tick may replace a tick.
                let first = items
                    .into_iter()
                    .filter(|item| item.3 == 1 && queue != TICKS);
                held.extend(first.map(|item| (queue.clone(), item.0)));
            }
            Event::Invoke {
                call,
                queue,
                what: Call::Claim { lease_ms: its, .. },
                ..
            } => {
                queues.insert(call, queue);
                *lease_ms = its.max(*lease_ms);
            }
            Event::Invoke {
                queue,
                what: Call::Follow { ack, .. },
                ..
            } => {
                held.remove(&(queue, ack.0));
            }
            Event::Invoke {
                queue,
                what: Call::Settle { verb, items },
                ..
            } if verb != crate::history::Verb::Extend => {
                for item in items {
                    held.remove(&(queue.clone(), item.0));
                }
            }
            _ => {}
        }
    }
    Ok(held)
}
