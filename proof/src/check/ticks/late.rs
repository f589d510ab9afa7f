//! Judges that ticks are made in time: a schedule stands still only because of a fault or a pause.
//!
//! After a step back of the server's clock, the next fire lies ahead by that step: that time is
//! excused.

use super::*;
use crate::check::liveness::faults::{Rule, outside_us};

/// The longest time without a tick that nothing excuses: five times the fallback interval of 1 s.
const LONGEST_US: u64 = 5_000_000;

pub(super) fn judge(all: &Collection, queue: u16, last: usize, verdict: &mut Verdict) {
    let excused = all.excused(queue, Rule::Named);
    // Some schedules fire every 50 ms, until the scheduler ends by pausing all of them.
    let pauses = &all.queues[usize::from(queue)].operators.pauses;
    let mut granted_us = pauses.granted_us();
    if let Some(calm_us) = all.partitions.calm_us {
        let first = all.ticks.told.iter().map(|told| told.at.1).min();
        granted_us.extend(first);
        granted_us.retain(|at_us| *at_us < calm_us);
        granted_us.push(calm_us);
        granted_us.sort_unstable();
        for pair in granted_us.windows(2) {
            if outside_us((pair[0], pair[1]), &excused) > LONGEST_US {
                verdict.found(Kind::Late, || {
                    format!("no tick was granted from {} to {} us", pair[0], pair[1])
                });
            }
        }
    }
    let paused = paused(all, last);
    for stored in &all.ticks.stored {
        let next_ms = stored.numbers[0];
        let Some((now_ms, at_us)) = paused.get(&*stored.name).copied() else {
            continue;
        };
        let due_ms = Spec::read(&stored.spec, &stored.pattern)
            .map(|spec| spec.due_ms(&format!("{}@{next_ms}", stored.name), next_ms));
        let Some(due_ms) = due_ms.filter(|due_ms| next_ms > 0 && *due_ms < now_ms) else {
            continue;
        };
        // A refill may list fires that have already passed.
        let listed = all.ticks.listed_us.get(&(stored.name.clone(), next_ms));
        let from_us = at_us.saturating_sub((now_ms - due_ms) * 1_000);
        let from_us = from_us.max(listed.copied().unwrap_or(0));
        if stored.state != "paused" || from_us >= at_us {
            continue;
        }
        let mut clocks = all.clock_faults.iter();
        let stepped = clocks.any(|(begin_us, end_us)| *begin_us < at_us && from_us < *end_us);
        if !stepped && outside_us((from_us, at_us), &excused) > LONGEST_US {
            verdict.found(Kind::Late, || {
                format!("a fire was not looked at from {from_us} to {at_us} us: {stored:?}")
            });
        }
    }
}

/// For each name: when its schedule was paused without a later resume, by the server's clock in ms
/// and by that of the processes. Leaves out schedules that an unanswered pause may have paused
/// before.
fn paused(all: &Collection, epoch: usize) -> HashMap<&str, (u64, u64)> {
    let told = all.ticks.told.iter();
    let mut told: Vec<_> = told
        .filter(|told| usize::from(told.epoch) == epoch)
        .collect();
    told.sort_by_key(|told| told.seq);
    let mut paused = HashMap::new();
    for told in told {
        let Call::Other { verb, args } = &told.call else {
            continue;
        };
        for (name, word) in args.iter().skip(1).zip(&told.words) {
            match (verb.as_str(), &*args[0], word.starts_with("OK ")) {
                ("amend", "pause", true) => drop(paused.entry(&**name).or_insert(told.at)),
                ("amend", _, true) => drop(paused.remove(&**name)),
                _ => {}
            }
        }
    }
    let lost = |name: &str| {
        all.ticks
            .named
            .get(name)
            .is_some_and(|named| named.lost_pause)
    };
    paused.retain(|name, _| !lost(name));
    paused
}
