//! Computes from the histories how long it takes after a fault until workers claim again.

mod histories;
mod redelivered;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use serde::Serialize;

use histories::{Claim, Fault, Harness, Undone};
/// The recovery times of all faults of one kind, in ms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Recovery {
    pub count: usize,
    pub p50: u64,
    pub max: u64,
}

#[derive(Debug, Default)]
pub struct Recoveries {
    /// The recoveries of each kind of fault. `worker_kill` counts each message that a dead worker
    /// had leased, until its next claim. `worker_kill_beside_others` counts such messages if
    /// meanwhile the server was unreachable, its clock was stepped, or another worker was
    /// disturbed.
    pub by_fault: BTreeMap<String, Recovery>,
    /// Faults after which no claim came before the end of the run.
    pub never: BTreeMap<String, u64>,
    /// Faults that handlers caused.
    pub handlers: BTreeMap<String, u64>,
    /// Describes the recoveries that took too long.
    pub late: Vec<String>,
}

/// The time limit for the first claim after a fault: ten times the fallback interval of 1 s. Other
/// outages and stalls are subtracted, and so is the time after the producers ended, when there may
/// be nothing to claim.
const GOES_ON_US: u64 = 10_000_000;
/// During these faults no worker can claim, or the server's time jumps; on a cluster, no worker can
/// claim from some of the queues.
const OUTAGES: [&str; 17] = [
    "server_kill",
    "server_stop",
    "aof_truncate",
    "failover",
    "disk_full",
    "flushall",
    "answers_dropped",
    "rights_taken",
    "clock_forward",
    "clock_back",
    "slot_halfway",
    "slot_to_and_fro",
    "master_kill",
    "master_freeze",
    "master_cut",
    "master_stop",
    "home_emptied",
];
/// Computes the recoveries from the histories in a folder.
pub fn of(folder: &Path) -> Result<Recoveries> {
    let Harness {
        faults,
        undone,
        stalls,
        calm_us,
    } = histories::harness(&folder.join("harness.jsonl"))?;
    let workers = histories::of_places(folder, 'w')?;
    let (mut claims, mut handlers) = (Vec::new(), BTreeMap::new());
    for worker in &workers {
        histories::read_claims(
            worker,
            &undone,
            |claim, _, _| claims.push(claim),
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
        // A kill ends at once; the killed server has to answer again as well.
        let kinds = match &*fault.kind {
            // Count from the moment at which the address leads to the new master.
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
            // Subtract the time in which another fault makes the server unreachable.
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
            let answered_us = found
                .map_or(u64::MAX, |claim| claim.answered_us)
                .min(calm_us);
            if unexcused_us(from_us, answered_us, &excused) > GOES_ON_US {
                late.push(format!("{kind} was over at {from_us} us, and work went on at {answered_us} us at the earliest"));
            }
            match found {
                Some(claim) => samples
                    .entry(kind.to_owned())
                    .or_default()
                    .push(claim.answered_us - from_us),
                None => *never.entry(kind.to_owned()).or_default() += 1,
            }
        }
    }
    // Servers of HTTP, too, claim messages of dead workers. `harness.jsonl` has no claims.
    let claimants = [workers, histories::of_places(folder, 'h')?].concat();
    redelivered::redeliveries(
        folder,
        &claimants,
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

/// The part of a span outside of outages and stalls, which are sorted by their start.
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
    let first = undone.iter().filter(|undone| undone.is_first);
    let times = first.map(|undone| undone.t_us);
    times.filter(move |t_us| (fault.begun_us..fault.ended_us).contains(t_us))
}
#[cfg(test)]
mod tests;
