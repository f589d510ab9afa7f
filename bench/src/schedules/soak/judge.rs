//! Judges the ticks of a run.

use std::collections::{HashMap, HashSet};

use dueq::ScheduleInfo;

use super::declared::Declared;
use super::history::Grant;
use super::operator::Done;
use crate::uniqueness::outcome::Violations;

/// The time in which one master replaced another. Writes in it may be undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) from_us: u64,
    pub(super) until_us: u64,
}

/// The counts of a schedule at the end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counted {
    pub(super) since_ms: u64,
    pub(super) last_ms: u64,
    pub(super) made: u64,
    pub(super) dropped: [u64; 3],
}

impl From<&ScheduleInfo> for Counted {
    fn from(info: &ScheduleInfo) -> Self {
        Self {
            since_ms: info.since_ms,
            last_ms: info.last_ms,
            made: info.made,
            dropped: [info.missed, info.overlapped, info.paused],
        }
    }
}

/// All that is known of a run.
pub(super) struct Run<'a> {
    pub(super) declared: &'a HashMap<String, Declared>,
    pub(super) counted: &'a HashMap<String, Counted>,
    pub(super) grants: &'a HashMap<String, Vec<Grant>>,
    /// Ids that were seen in Redis: at the end, or leased during the run.
    pub(super) stored: &'a HashSet<String>,
    pub(super) operator: &'a Done,
    pub(super) failures: &'a [Failure],
}

#[derive(Debug, Default)]
pub(super) struct Judged {
    pub(super) violations: Violations,
    pub(super) fires: u64,
    pub(super) made: u64,
    /// Grants of an id after its first, with a recorded crash.
    pub(super) after_crashes: u64,
    /// The same, as a failover undid the first.
    pub(super) undone: u64,
}

pub(super) fn judge(run: &Run<'_>) -> Judged {
    let mut judged = Judged::default();
    let mut seen: HashMap<&str, (u64, u64)> = HashMap::new();
    let ids = run.grants.keys().chain(run.stored.iter());
    for id in ids.collect::<HashSet<_>>() {
        let Some((name, nominal)) = tick(id).filter(|(name, _)| run.declared.contains_key(*name))
        else {
            judged
                .violations
                .add(format!("{id} is no tick of a schedule"));
            continue;
        };
        let declared = &run.declared[name];
        let grants = run.grants.get(id).map_or(&[][..], Vec::as_slice);
        let due_ms = due_ms(declared, nominal);
        let is_by_hand = run.is_by_hand(id, name, nominal);
        if nominal % declared.every_ms != 0 {
            if !is_by_hand {
                judged
                    .violations
                    .add(format!("{id} matches neither a fire nor a trigger"));
            }
            continue;
        }
        // A tick made by hand at the time of a fire has its id, and no jitter.
        if !is_by_hand {
            run.judge_grants(id, grants, due_ms, &mut judged);
        }
        let since = run.counted.get(name).map_or(0, |counted| counted.since_ms);
        if nominal >= since {
            let (certain, all) = seen.entry(name).or_default();
            *all += 1;
            let is_certain = grants.iter().any(|grant| !run.may_be_undone(grant.us));
            *certain += u64::from(is_certain && !is_by_hand);
        }
    }
    for (name, declared) in run.declared {
        let (certain, all) = seen.get(&**name).copied().unwrap_or_default();
        match run.counted.get(name) {
            None => judged.violations.add(format!("{name} is not stored")),
            Some(counted) => judge_counts(name, declared, counted, certain, all, &mut judged),
        }
    }
    judged
}

/// The law of conservation; and each tick that was made is seen.
fn judge_counts(
    name: &str,
    declared: &Declared,
    counted: &Counted,
    certain: u64,
    all: u64,
    judged: &mut Judged,
) {
    let (since, last, every) = (counted.since_ms, counted.last_ms, declared.every_ms);
    let fires = match last.checked_sub(since) {
        Some(time) => time / every + 1,
        None => 0,
    };
    let [missed, overlapped, paused] = counted.dropped;
    let (made, sum) = (counted.made, counted.made + missed + overlapped + paused);
    judged.fires += fires;
    judged.made += made;
    if sum != fires {
        judged.violations.add(format!(
            "{name}: {fires} fires, but {made} made + {missed} missed + {overlapped} overlapped + {paused} paused are {sum}"
        ));
    }
    // A tick that another replaced while it waited may have been in a lost answer only.
    if made > all && !declared.replaces {
        judged
            .violations
            .add(format!("{name}: {made} ticks are made, {all} seen"));
    }
    if made < certain {
        judged
            .violations
            .add(format!("{name}: {made} ticks are made, {certain} granted"));
    }
}

impl Run<'_> {
    fn judge_grants(&self, id: &str, grants: &[Grant], due_ms: u64, judged: &mut Judged) {
        for grant in grants.iter().filter(|grant| grant.us < due_ms * 1_000) {
            let text = format!("{id} is granted at {} us, due at {due_ms} ms", grant.us);
            judged.violations.add(text);
        }
        for pair in grants.windows(2) {
            let (one, next) = (&pair[0], &pair[1]);
            let is_undone = self.may_be_undone(one.us);
            let is_ack_kept = one.acked_us.is_some_and(|us| !self.may_be_undone(us));
            if next.attempt > 1 {
                judged.after_crashes += 1;
            } else if is_undone {
                judged.undone += 1;
            }
            let why = if next.attempt < 2 && !is_undone && !one.is_settled {
                "without a recorded crash"
            } else if is_ack_kept && !is_undone {
                "after its ack"
            } else if next.us < one.deadline_us
                && one.acked_us.is_none()
                && !is_undone
                && !one.is_settled
            {
                "before its lease ran out"
            } else {
                continue;
            };
            judged
                .violations
                .add(format!("{id} is granted again {why}: {one:?}, {next:?}"));
        }
    }

    /// Whether a failover may have undone a write of this time.
    fn may_be_undone(&self, us: u64) -> bool {
        let within = |failure: &Failure| (failure.from_us..=failure.until_us).contains(&us);
        self.failures.iter().any(within)
    }

    fn is_by_hand(&self, id: &str, name: &str, nominal: u64) -> bool {
        let unknown = |(of, from, until): &(String, u64, u64)| {
            of == name && (*from..=*until).contains(&nominal)
        };
        self.operator.triggered.contains(id) || self.operator.unknown.iter().any(unknown)
    }
}

/// The name and the nominal time of a tick.
pub(super) fn tick(id: &str) -> Option<(&str, u64)> {
    let (name, nominal) = id.rsplit_once('@')?;
    Some((name, nominal.parse().ok()?))
}

/// When the tick is due: by the library, so that the script's jitter is checked.
pub(super) fn due_ms(declared: &Declared, nominal: u64) -> u64 {
    let fires = declared.schedule.fires(nominal.saturating_sub(1));
    let fire = fires.ok().and_then(|mut fires| fires.next());
    fire.map_or(nominal, |fire| fire.due_ms)
}
