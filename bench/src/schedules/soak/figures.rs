//! The figures of a run.

use std::collections::HashMap;

use super::declared::Declared;
use super::history::{Grant, History};
use super::judge::{Failure, Judged, due_ms, tick};
use super::operator::Done;
use crate::limits::report::{ms, quantile, rounded};
use crate::uniqueness::outcome::Outcome;

/// When faults began and ended, and what they were.
pub(super) struct Faults {
    /// From this time on ticks are late for other reasons than the nodes' start.
    pub(super) calm_us: u64,
    pub(super) begin_us: u64,
    pub(super) end_us: u64,
    pub(super) failures: Vec<Failure>,
}

pub(super) fn reported(
    judged: Judged,
    history: &History,
    declared: &HashMap<String, Declared>,
    faults: &Faults,
) -> Outcome {
    let (fires, made) = (judged.fires, judged.made);
    let (after_crashes, undone) = (judged.after_crashes, judged.undone);
    let mut outcome = Outcome::new(judged.violations);
    outcome.figure("fires", fires);
    outcome.figure("ticks made", made);
    outcome.figure("ticks seen by nodes", history.grants.len());
    outcome.figure("grants after a crash", after_crashes);
    outcome.figure("grants after an undone one", undone);
    outcome.figure("failovers", faults.failures.len());
    let windows = faults.failures.iter();
    let windows: Vec<_> = windows.map(|one| ms(one.until_us - one.from_us)).collect();
    outcome.figure("time that each may undo, ms", windows);
    let [mut calm, mut faulty] = lateness(&history.grants, declared, faults);
    for (names, late) in [
        (
            [
                "lateness without faults, p50 ms",
                "lateness without faults, p99 ms",
            ],
            &mut calm,
        ),
        (
            [
                "lateness with faults, p50 ms",
                "lateness with faults, p99 ms",
            ],
            &mut faulty,
        ),
    ] {
        outcome.figure(names[0], ms(quantile(late, 0.5)));
        outcome.figure(names[1], ms(quantile(late, 0.99)));
    }
    let ticks = history.grants.len().max(1) as f64;
    let calls: u64 = history.calls.values().sum();
    outcome.figure(
        "script calls of nodes per tick",
        rounded(calls as f64 / ticks),
    );
    let each = history.calls.iter();
    let each = each.map(|(verb, calls)| format!("{verb} {}", rounded(*calls as f64 / ticks)));
    outcome.figure("of them by verb", each.collect::<Vec<_>>().join(", "));
    outcome
}

pub(super) fn operated_figures(outcome: &mut Outcome, operated: &Done, faults: &Faults) {
    outcome.figure("pauses", operated.pauses);
    outcome.figure("resumes", operated.resumes);
    outcome.figure("ticks by hand", operated.triggered.len());
    outcome.figure("applies of the same set", operated.applies);
    outcome.figure("operator's calls without an answer", operated.failed);
    for (name, at_ms) in &operated.changed {
        let is_near = |one: &Failure| one.from_us / 1_000 <= at_ms + 60_000;
        if !faults.failures.iter().any(is_near) {
            let text = format!("the same apply changed {name} at {at_ms} ms");
            outcome.violations.add(text);
        }
    }
}

/// Of the first grant of each tick, in microseconds: before the faults, and during them.
fn lateness(
    grants: &HashMap<String, Vec<Grant>>,
    declared: &HashMap<String, Declared>,
    faults: &Faults,
) -> [Vec<u64>; 2] {
    let mut late = [Vec::new(), Vec::new()];
    for (id, grants) in grants {
        let Some((name, nominal)) = tick(id) else {
            continue;
        };
        let (Some(first), Some(declared)) = (grants.first(), declared.get(name)) else {
            continue;
        };
        let is_measured = (faults.calm_us..faults.end_us).contains(&first.us);
        if nominal % declared.every_ms == 0 && is_measured {
            let due_us = due_ms(declared, nominal) * 1_000;
            let index = usize::from(first.us >= faults.begin_us);
            late[index].push(first.us.saturating_sub(due_us));
        }
    }
    late
}
