//! Computes how long it takes from the kill of a worker until another claim of its messages.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::histories::{Claim, Fault, Undone, held_by, read_claims};
use super::{GOES_ON_US, OUTAGES, unexcused_us};
/// The time limit from the end of the lease to the next claim of a killed worker's message: the
/// fallback interval of 1 s, a handler time of 5 s, and the limit of other faults.
const REDELIVERED_US: u64 = 1_000_000 + 5_000_000 + GOES_ON_US;
/// During these faults, or shortly after them, there may be no other worker that can claim.
const CREW_FAULTS: [&str; 7] = [
    "worker_kill",
    "worker_stop",
    "poison",
    "net_cut",
    "net_delay",
    "net_drop",
    "net_half_open",
];
/// How long a killed worker takes to run again, with a margin.
const RESTART_US: u64 = 3_000_000;
/// The times from the kill of each worker until the next claim of messages at their first attempt.
/// A message without a next claim vanished with the store; if it is lost, the checker reports that.
pub(super) fn redeliveries(
    folder: &Path,
    workers: &[PathBuf],
    faults: &[Fault],
    undone: &[Undone],
    excused: &[(u64, u64)],
    samples: &mut BTreeMap<String, Vec<u64>>,
    late: &mut Vec<String>,
) -> Result<()> {
    let (mut held, mut lease_ms): (HashMap<(String, String), Vec<u64>>, _) = (HashMap::new(), 0);
    for fault in faults.iter().filter(|fault| fault.kind == "worker_kill") {
        for message in held_by(
            &folder.join(format!("{}.jsonl", fault.victim)),
            &mut lease_ms,
        )? {
            held.entry(message).or_default().push(fault.begun_us);
        }
    }
    if held.is_empty() {
        return Ok(());
    }
    let mut again: HashMap<((String, String), u64), u64> = HashMap::new();
    for worker in workers {
        let note = |claim: Claim, queue: &str, items: &[crate::history::ClaimedItem]| {
            for item in items {
                let message = (queue.to_owned(), item.0.clone());
                for killed_us in held
                    .get(&message)
                    .into_iter()
                    .flatten()
                    .filter(|killed_us| **killed_us < claim.asked_us)
                {
                    let first = again
                        .entry((message.clone(), *killed_us))
                        .or_insert(claim.answered_us);
                    *first = (*first).min(claim.answered_us);
                }
            }
        };
        read_claims(worker, undone, note, &mut BTreeMap::new())?;
    }
    for (((queue, id), killed_us), answered_us) in again {
        let beside = |fault: &&Fault| {
            let crew = CREW_FAULTS.contains(&&*fault.kind) && fault.begun_us != killed_us;
            let over_us = fault.ended_us + if crew { RESTART_US } else { 0 };
            (crew || OUTAGES.contains(&&*fault.kind))
                && fault.begun_us < answered_us
                && over_us > killed_us
        };
        let kind = if faults.iter().any(|fault| beside(&fault)) {
            "worker_kill_beside_others"
        } else {
            "worker_kill"
        };
        let limit_us = REDELIVERED_US + lease_ms * 1_000;
        if kind == "worker_kill" && unexcused_us(killed_us, answered_us, excused) > limit_us {
            late.push(format!(
                "a worker was killed at {killed_us} us, and {queue}/{id} was claimed again at {answered_us} us"
            ));
        }
        samples
            .entry(kind.to_owned())
            .or_default()
            .push(answered_us - killed_us);
    }
    Ok(())
}
