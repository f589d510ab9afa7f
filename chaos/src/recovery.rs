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
}

/// When something was asked, and when it was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Claim {
    asked_us: u64,
    told_us: u64,
}

/// While one of these is under way nobody can work, or the time is not what it was.
const OUTAGES: [&str; 7] =
    ["server_kill", "server_stop", "aof_truncate", "disk_full", "flushall", "clock_forward", "clock_back"];
/// While one of these is under way, or just before the kill, there may be no other worker that could take over.
const CREW_FAULTS: [&str; 7] =
    ["worker_kill", "worker_stop", "poison", "net_cut", "net_delay", "net_drop", "net_half_open"];
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
    let faults = faults(&folder.join("harness.jsonl"))?;
    let workers = workers(folder)?;
    let (mut claims, mut handlers) = (Vec::new(), BTreeMap::new());
    for worker in &workers {
        read_claims(worker, |claim, _| claims.push(claim), &mut handlers)?;
    }
    claims.sort_unstable();
    let (mut samples, mut never) = (BTreeMap::<String, Vec<u64>>::new(), BTreeMap::new());
    for fault in faults.iter().filter(|fault| fault.kind != "worker_kill" && fault.kind != "poison") {
        // A kill is over when it is done; a server that was killed is also one that answers again.
        let kinds = match &*fault.kind {
            "server_kill" => vec![("server_kill", fault.begun_us), ("server_answers", fault.ended_us)],
            kind => vec![(kind, if kind.ends_with("_kill") { fault.begun_us } else { fault.ended_us })],
        };
        for (kind, mut from_us) in kinds {
            // Who cannot work for another reason has not failed to recover from this one.
            for outage in faults.iter().filter(|other| OUTAGES.contains(&&*other.kind)) {
                if outage.begun_us <= from_us && outage.ended_us > from_us && kind != outage.kind {
                    from_us = outage.ended_us;
                }
            }
            let first = claims.partition_point(|claim| claim.asked_us < from_us);
            match claims.get(first) {
                Some(claim) => samples.entry(kind.to_owned()).or_default().push(claim.told_us - from_us),
                None => *never.entry(kind.to_owned()).or_default() += 1,
            }
        }
    }
    redeliveries(folder, &workers, &faults, &mut samples)?;
    let by_fault = samples.into_iter().map(|(kind, samples)| (kind, summary(samples))).collect();
    Ok(Recoveries { by_fault, never, handlers })
}

fn summary(mut samples_us: Vec<u64>) -> Recovery {
    samples_us.sort_unstable();
    let ms = |place: usize| samples_us.get(place).map_or(0, |us| us.div_ceil(1_000));
    Recovery { count: samples_us.len(), p50: ms(samples_us.len() / 2), max: ms(samples_us.len().saturating_sub(1)) }
}

fn faults(path: &Path) -> Result<Vec<Fault>> {
    let mut open: HashMap<u64, Fault> = HashMap::new();
    for line in crate::history::read(path)? {
        let (t_us, Event::Fault { fault, number, phase, detail }) = line? else { continue };
        let entry =
            open.entry(number).or_insert(Fault { kind: fault, begun_us: t_us, ended_us: 0, victim: detail.clone() });
        if phase == Phase::End {
            (entry.ended_us, entry.victim) = (t_us, detail);
        }
    }
    let mut faults: Vec<_> = open.into_values().filter(|fault| fault.ended_us > 0).collect();
    faults.sort_unstable_by_key(|fault| fault.begun_us);
    Ok(faults)
}

fn workers(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
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
            let (t_us, event) = serde_json::from_str(&line).with_context(|| format!("{}: {line}", path.display()))?;
            tell(t_us, event);
        }
    }
}

/// Each claim of the main queue that was granted something, with the ids.
fn read_claims(
    path: &Path,
    mut tell: impl FnMut(Claim, &[crate::history::ClaimedItem]),
    handlers: &mut BTreeMap<String, u64>,
) -> Result<()> {
    let mut asked: HashMap<u64, u64> = HashMap::new();
    let words = ["\"claim\":{", "\"claimed\":{", "\"lost_lease\"", "\"wants\":\"panic\""];
    lines(path, &words, |t_us, event| match event {
        Event::Invoke { call, queue, what: Call::Claim { .. } } if queue == QUEUE => drop(asked.insert(call, t_us)),
        Event::Ok { call, answer: Answer::Claimed { items, .. }, .. } => {
            if let Some(asked_us) = asked.remove(&call).filter(|_| !items.is_empty()) {
                tell(Claim { asked_us, told_us: t_us }, &items);
            }
        }
        Event::LostLease { .. } => *handlers.entry("handler_outlives_its_lease".to_owned()).or_default() += 1,
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
    samples: &mut BTreeMap<String, Vec<u64>>,
) -> Result<()> {
    let mut held: HashMap<String, Vec<u64>> = HashMap::new();
    for fault in faults.iter().filter(|fault| fault.kind == "worker_kill") {
        for id in held_by(&folder.join(format!("{}.jsonl", fault.victim)))? {
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
                for killed_us in
                    held.get(&item.0).into_iter().flatten().filter(|killed_us| **killed_us < claim.asked_us)
                {
                    let first = again.entry((item.0.clone(), *killed_us)).or_insert(claim.told_us);
                    *first = (*first).min(claim.told_us);
                }
            }
        };
        read_claims(worker, note, &mut BTreeMap::new())?;
    }
    for ((_, killed_us), told_us) in again {
        let beside = |fault: &&Fault| {
            let crew = CREW_FAULTS.contains(&&*fault.kind) && fault.begun_us != killed_us;
            let over_us = fault.ended_us + if crew { RESTART_US } else { 0 };
            (crew || OUTAGES.contains(&&*fault.kind)) && fault.begun_us < told_us && over_us > killed_us
        };
        let kind = if faults.iter().any(|fault| beside(&fault)) { "worker_kill_beside_others" } else { "worker_kill" };
        samples.entry(kind.to_owned()).or_default().push(told_us - killed_us);
    }
    Ok(())
}

/// The ids that a dead worker had been granted at the first attempt, and not begun to settle: what it asked for last may have
/// been done, and then the message came back, or not, for another reason.
fn held_by(path: &Path) -> Result<BTreeSet<String>> {
    let mut held = BTreeSet::new();
    for line in crate::history::read(path)? {
        match line?.1 {
            Event::Ok { answer: Answer::Claimed { items, .. }, .. } => {
                held.extend(items.into_iter().filter(|item| item.3 == 1).map(|item| item.0));
            }
            Event::Invoke { what: Call::Settle { verb, items }, .. } if verb != crate::history::Verb::Extend => {
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
        assert_eq!(summary(vec![1, 2_000, 3_001]), Recovery { count: 3, p50: 2, max: 4 });
        assert_eq!(summary(Vec::new()), Recovery { count: 0, p50: 0, max: 0 });
    }
}
