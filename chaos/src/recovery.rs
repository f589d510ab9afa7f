//! How long it took until work went on after a fault, from the histories.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Serialize;

use crate::history::{Answer, Call, Event, Phase};
use crate::run::stage::QUEUE;

/// Of all faults of a kind, in ms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Recovery {
    pub count: usize,
    pub p50: u64,
    pub max: u64,
}

#[derive(Debug, Default)]
pub struct Recoveries {
    /// By fault. `worker_kill` counts deliveries that the dead worker held, each until somebody claimed it again;
    /// `worker_kill_beside_others` those in whose time the server was away, its clock was stepped, or another worker
    /// was disturbed as well.
    pub by_fault: BTreeMap<String, Recovery>,
    /// Faults after which nothing was claimed any more, as the run ended.
    pub never: BTreeMap<String, u64>,
    /// What handlers did that is a fault too.
    pub handlers: BTreeMap<String, u64>,
    /// Those that took longer than they may, in words.
    pub late: Vec<String>,
}

/// Work must go on so long after the end of a fault: ten times the floor of 1 s. What another outage or a stall of the
/// machine takes of it does not count, nor what comes after the end of the producers, when there may be nothing to do.
const GOES_ON_US: u64 = 10_000_000;
/// What a killed worker held must be delivered again so long after its lease: the floor of 1 s, a hold of 5 s, and as much
/// again as for other faults.
const REDELIVERED_US: u64 = 1_000_000 + 5_000_000 + GOES_ON_US;

/// When something was asked, and when it was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Claim {
    asked_us: u64,
    told_us: u64,
    /// Granted by a master that had been replaced, or undone in another way.
    void: bool,
}

/// When the last writes were gone, of which `incarnation`, and which `seq` they had.
struct Undone {
    t_us: u64,
    incarnation: String,
    survived: u64,
    next: u64,
}

/// While one of these is under way nobody can work, or the time is not what it was.
const OUTAGES: [&str; 8] = [
    "server_kill",
    "server_stop",
    "aof_truncate",
    "failover",
    "disk_full",
    "flushall",
    "clock_forward",
    "clock_back",
];
/// While one of these is under way, or just before the kill, there may be no other worker that could take over.
const CREW_FAULTS: [&str; 7] = [
    "worker_kill",
    "worker_stop",
    "poison",
    "net_cut",
    "net_delay",
    "net_drop",
    "net_half_open",
];
/// How long a worker that died takes to be there again, with time to spare.
const RESTART_US: u64 = 3_000_000;

#[derive(Debug)]
struct Fault {
    kind: String,
    begun_us: u64,
    ended_us: u64,
    victim: String,
}

/// Reads the histories in a folder.
pub fn of(folder: &Path) -> Result<Recoveries> {
    let Harness {
        faults,
        undone,
        stalls,
        calm_us,
    } = harness(&folder.join("harness.jsonl"))?;
    let workers = workers(folder)?;
    let (mut claims, mut handlers) = (Vec::new(), BTreeMap::new());
    for worker in &workers {
        read_claims(
            worker,
            &undone,
            |claim, _| claims.push(claim),
            &mut handlers,
        )?;
    }
    claims.sort_unstable();
    let (mut samples, mut never, mut late) = (
        BTreeMap::<String, Vec<u64>>::new(),
        BTreeMap::new(),
        Vec::new(),
    );
    let outages = faults
        .iter()
        .filter(|fault| OUTAGES.contains(&&*fault.kind));
    let mut excused: Vec<_> = outages
        .map(|fault| (fault.begun_us, fault.ended_us))
        .chain(stalls)
        .collect();
    excused.sort_unstable();
    for fault in faults
        .iter()
        .filter(|fault| fault.kind != "worker_kill" && fault.kind != "poison")
    {
        // A kill is over when it is done; a server that was killed is also one that answers again.
        let kinds = match &*fault.kind {
            // From when the address leads to the new master.
            "failover" => undone_within(fault, &undone)
                .map(|t_us| ("failover", t_us))
                .collect(),
            "server_kill" => vec![
                ("server_kill", fault.begun_us),
                ("server_answers", fault.ended_us),
            ],
            kind => vec![(
                kind,
                if kind.ends_with("_kill") {
                    fault.begun_us
                } else {
                    fault.ended_us
                },
            )],
        };
        for (kind, mut from_us) in kinds {
            // Who cannot work for another reason has not failed to recover from this one.
            for outage in faults
                .iter()
                .filter(|other| OUTAGES.contains(&&*other.kind))
            {
                if outage.begun_us <= from_us && outage.ended_us > from_us && kind != outage.kind {
                    from_us = outage.ended_us;
                }
            }
            let first = claims.partition_point(|claim| claim.asked_us < from_us);
            let counts = |claim: &&Claim| kind != "failover" || !claim.void;
            let found = claims.get(first..).into_iter().flatten().find(counts);
            let told_us = found.map_or(u64::MAX, |claim| claim.told_us).min(calm_us);
            if unexcused_us(from_us, told_us, &excused) > GOES_ON_US {
                late.push(format!("{kind} was over at {from_us} us, and work went on at {told_us} us at the earliest"));
            }
            match found {
                Some(claim) => samples
                    .entry(kind.to_owned())
                    .or_default()
                    .push(claim.told_us - from_us),
                None => *never.entry(kind.to_owned()).or_default() += 1,
            }
        }
    }
    redeliveries(
        folder,
        &workers,
        &faults,
        &undone,
        &excused,
        &mut samples,
        &mut late,
    )?;
    let by_fault = samples
        .into_iter()
        .map(|(kind, samples)| (kind, summary(samples)))
        .collect();
    Ok(Recoveries {
        by_fault,
        never,
        handlers,
        late,
    })
}

/// How much of a time no outage and no stall covers; they are in the order of their beginnings.
fn unexcused_us(from_us: u64, to_us: u64, excused: &[(u64, u64)]) -> u64 {
    let (mut left_us, mut free_us) = (to_us.saturating_sub(from_us), from_us);
    for (begin_us, end_us) in excused {
        let (begin_us, end_us) = ((*begin_us).max(free_us), (*end_us).min(to_us));
        if begin_us < end_us {
            (left_us, free_us) = (left_us - (end_us - begin_us), end_us);
        }
    }
    left_us
}

fn summary(mut samples_us: Vec<u64>) -> Recovery {
    samples_us.sort_unstable();
    let ms = |place: usize| samples_us.get(place).map_or(0, |us| us.div_ceil(1_000));
    Recovery {
        count: samples_us.len(),
        p50: ms(samples_us.len() / 2),
        max: ms(samples_us.len().saturating_sub(1)),
    }
}

fn undone_within(fault: &Fault, undone: &[Undone]) -> impl Iterator<Item = u64> {
    let times = undone.iter().map(|undone| undone.t_us);
    times.filter(move |t_us| (fault.begun_us..fault.ended_us).contains(t_us))
}

/// What the harness wrote down.
struct Harness {
    faults: Vec<Fault>,
    undone: Vec<Undone>,
    stalls: Vec<(u64, u64)>,
    /// When the producers were told to end.
    calm_us: u64,
}

fn harness(path: &Path) -> Result<Harness> {
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
            ) if queue == QUEUE => {
                undone.push(Undone {
                    t_us,
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

fn workers(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        if name.starts_with('w') && name.ends_with(".jsonl") {
            found.push(path);
        }
    }
    Ok(found)
}

/// The lines that hold one of these words; a torn last one is left out. Most lines of a history are about something else.
fn lines(path: &Path, words: &[&str], mut tell: impl FnMut(u64, Event)) -> Result<()> {
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

/// Each claim of the main queue that was granted something, with the ids.
fn read_claims(
    path: &Path,
    undone: &[Undone],
    mut tell: impl FnMut(Claim, &[crate::history::ClaimedItem]),
    handlers: &mut BTreeMap<String, u64>,
) -> Result<()> {
    let mut asked: HashMap<u64, u64> = HashMap::new();
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
        } if queue == QUEUE => drop(asked.insert(call, t_us)),
        Event::Ok {
            call,
            seq,
            incarnation,
            answer: Answer::Claimed { items, .. },
            ..
        } => {
            if let Some(asked_us) = asked.remove(&call).filter(|_| !items.is_empty()) {
                let is_void = |undone: &Undone| {
                    undone.incarnation == incarnation && undone.survived < seq && seq <= undone.next
                };
                tell(
                    Claim {
                        asked_us,
                        told_us: t_us,
                        void: undone.iter().any(is_void),
                    },
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

/// From the kill of each worker until what it held, delivered for the first time, was claimed by somebody
/// else. What is never claimed again went with the store; if it was lost, the checker says so.
fn redeliveries(
    folder: &Path,
    workers: &[PathBuf],
    faults: &[Fault],
    undone: &[Undone],
    excused: &[(u64, u64)],
    samples: &mut BTreeMap<String, Vec<u64>>,
    late: &mut Vec<String>,
) -> Result<()> {
    let (mut held, mut lease_ms): (HashMap<String, Vec<u64>>, _) = (HashMap::new(), 0);
    for fault in faults.iter().filter(|fault| fault.kind == "worker_kill") {
        for id in held_by(
            &folder.join(format!("{}.jsonl", fault.victim)),
            &mut lease_ms,
        )? {
            held.entry(id).or_default().push(fault.begun_us);
        }
    }
    if held.is_empty() {
        return Ok(());
    }
    let mut again: HashMap<(String, u64), u64> = HashMap::new();
    for worker in workers {
        let note = |claim: Claim, items: &[crate::history::ClaimedItem]| {
            for item in items {
                for killed_us in held
                    .get(&item.0)
                    .into_iter()
                    .flatten()
                    .filter(|killed_us| **killed_us < claim.asked_us)
                {
                    let first = again
                        .entry((item.0.clone(), *killed_us))
                        .or_insert(claim.told_us);
                    *first = (*first).min(claim.told_us);
                }
            }
        };
        read_claims(worker, undone, note, &mut BTreeMap::new())?;
    }
    for ((id, killed_us), told_us) in again {
        let beside = |fault: &&Fault| {
            let crew = CREW_FAULTS.contains(&&*fault.kind) && fault.begun_us != killed_us;
            let over_us = fault.ended_us + if crew { RESTART_US } else { 0 };
            (crew || OUTAGES.contains(&&*fault.kind))
                && fault.begun_us < told_us
                && over_us > killed_us
        };
        let kind = if faults.iter().any(|fault| beside(&fault)) {
            "worker_kill_beside_others"
        } else {
            "worker_kill"
        };
        let limit_us = REDELIVERED_US + lease_ms * 1_000;
        if kind == "worker_kill" && unexcused_us(killed_us, told_us, excused) > limit_us {
            late.push(format!(
                "a worker was killed at {killed_us} us, and {id} was claimed again at {told_us} us"
            ));
        }
        samples
            .entry(kind.to_owned())
            .or_default()
            .push(told_us - killed_us);
    }
    Ok(())
}

/// The ids that a dead worker had been granted at the first attempt, and not begun to settle: what it asked for last may have
/// been done, and then the message came back, or not, for another reason. Makes `lease_ms` the longest lease it asked for.
fn held_by(path: &Path, lease_ms: &mut u64) -> Result<BTreeSet<String>> {
    let mut held = BTreeSet::new();
    for line in crate::history::read(path)? {
        match line?.1 {
            Event::Ok {
                answer: Answer::Claimed { items, .. },
                ..
            } => {
                held.extend(
                    items
                        .into_iter()
                        .filter(|item| item.3 == 1)
                        .map(|item| item.0),
                );
            }
            Event::Invoke {
                what: Call::Claim { lease_ms: its, .. },
                ..
            } => *lease_ms = its.max(*lease_ms),
            Event::Invoke {
                what: Call::Settle { verb, items },
                ..
            } if verb != crate::history::Verb::Extend => {
                for item in items {
                    held.remove(&item.0);
                }
            }
            _ => {}
        }
    }
    Ok(held)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_in_whole_ms_rounded_up() {
        assert_eq!(
            summary(vec![1, 2_000, 3_001]),
            Recovery {
                count: 3,
                p50: 2,
                max: 4
            }
        );
        assert_eq!(
            summary(Vec::new()),
            Recovery {
                count: 0,
                p50: 0,
                max: 0
            }
        );
    }

    #[test]
    fn outages_and_stalls_take_nothing_of_the_limit() {
        assert_eq!(unexcused_us(10, 100, &[]), 90);
        assert_eq!(
            unexcused_us(10, 100, &[(0, 20), (15, 30), (16, 25), (90, 200)]),
            60
        );
        assert_eq!(unexcused_us(10, 100, &[(0, 10), (100, 101)]), 90);
        assert_eq!(unexcused_us(100, 10, &[(0, 200)]), 0);
    }

    #[test]
    fn work_that_goes_on_too_late_is_told() -> Result<()> {
        let folder = std::env::temp_dir().join(format!("dueq-late-{}", std::process::id()));
        let late = |claimed_us: u64, lines: &[(u64, Event)]| -> Result<usize> {
            let _ = std::fs::remove_dir_all(&folder);
            std::fs::create_dir_all(&folder)?;
            let fault = |phase| Event::Fault {
                fault: "net_cut".into(),
                number: 1,
                phase,
                detail: String::new(),
            };
            let begun = [(1_000, fault(Phase::Begin)), (2_000, fault(Phase::End))];
            let what = Call::Claim {
                n: 1,
                token: "00".into(),
                lease_ms: 1,
                due: true,
            };
            let items = vec![crate::history::ClaimedItem(
                "a".into(),
                1,
                1,
                1,
                9,
                String::new(),
            )];
            let answer = Answer::Claimed {
                deadline_ms: 1,
                items,
                paused: false,
            };
            let asked = Event::Invoke {
                call: 1,
                queue: QUEUE.into(),
                what,
            };
            let told = Event::Ok {
                call: 1,
                seq: 1,
                now_us: 1,
                incarnation: "b".into(),
                answer,
            };
            for (name, lines) in [
                ("harness.jsonl", [&begun[..], lines].concat()),
                (
                    "w1.jsonl",
                    vec![(claimed_us - 1, asked), (claimed_us, told)],
                ),
            ] {
                let lines = lines
                    .iter()
                    .map(|line| Ok(serde_json::to_string(line)? + "\n"))
                    .collect::<Result<String>>()?;
                std::fs::write(folder.join(name), lines)?;
            }
            Ok(of(&folder)?.late.len())
        };
        assert_eq!(late(10_002_000, &[])?, 0);
        assert_eq!(late(10_002_001, &[])?, 1);
        assert_eq!(
            late(30_002_000, &[(25_000_000, Event::Stalled { ms: 20_000 })])?,
            0
        );
        assert_eq!(
            late(30_002_000, &[(9_000_000, Event::Calm)])?,
            0,
            "there may have been nothing to do"
        );
        assert_eq!(late(30_002_000, &[(12_000_000, Event::Calm)])?, 1);
        Ok(std::fs::remove_dir_all(&folder)?)
    }

    #[test]
    fn a_failover_counts_from_the_new_address_and_by_what_the_new_master_grants() -> Result<()> {
        let folder = std::env::temp_dir().join(format!("dueq-recovery-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder)?;
        let write = |name: &str, lines: &[(u64, Event)]| -> Result<()> {
            let lines = lines
                .iter()
                .map(|line| Ok(serde_json::to_string(line)? + "\n"))
                .collect::<Result<String>>()?;
            Ok(std::fs::write(folder.join(name), lines)?)
        };
        let fault = |phase| Event::Fault {
            fault: "failover".into(),
            number: 1,
            phase,
            detail: String::new(),
        };
        let undone = Event::Undone {
            queue: QUEUE.into(),
            incarnation: "b".into(),
            survived: 10,
            next: 100,
        };
        write(
            "harness.jsonl",
            &[
                (1_000, fault(Phase::Begin)),
                (50_000, undone),
                (900_000, fault(Phase::End)),
            ],
        )?;
        let claim = |call| {
            let what = Call::Claim {
                n: 1,
                token: "00".into(),
                lease_ms: 1,
                due: true,
            };
            Event::Invoke {
                call,
                queue: QUEUE.into(),
                what,
            }
        };
        let granted = |call, seq| {
            let items = vec![crate::history::ClaimedItem(
                "a".into(),
                1,
                1,
                1,
                9,
                String::new(),
            )];
            let answer = Answer::Claimed {
                deadline_ms: 1,
                items,
                paused: false,
            };
            Event::Ok {
                call,
                seq,
                now_us: 1,
                incarnation: "b".into(),
                answer,
            }
        };
        // The first was asked for too early, the second granted by the old master.
        let lines = [
            (40_000, claim(1)),
            (60_000, granted(1, 101)),
            (61_000, claim(2)),
            (62_000, granted(2, 12)),
        ];
        write("w1.jsonl", &lines)?;
        write("w2.jsonl", &[(63_000, claim(1)), (70_001, granted(1, 102))])?;
        let recoveries = of(&folder)?;
        std::fs::remove_dir_all(&folder)?;
        assert_eq!(
            recoveries.by_fault.get("failover"),
            Some(&Recovery {
                count: 1,
                p50: 21,
                max: 21
            })
        );
        Ok(())
    }
}
