//! The law of schedules: each fire is counted once, as made, missed, overlapped or paused.

use std::collections::{BTreeSet, HashMap};

use super::*;
use crate::check::excuses::UNDER_WAY_US;
use crate::kit::law::Counts;

/// Judges the declarations and the counts.
pub(in crate::check) fn judge(all: &Collection, records: &[Record], verdict: &mut Verdict) {
    declarations(all, verdict);
    let names = names(all);
    // Only the last epoch of the queue: the remaining schedules belong to it.
    let mut epochs = all.epochs.iter().enumerate();
    let last =
        epochs.rfind(|(_, epoch)| epoch.last && all.queues[usize::from(epoch.queue)].name == TICKS);
    let Some((last, epoch)) = last else {
        return;
    };
    let mut fires: HashMap<&str, BTreeSet<u64>> = HashMap::new();
    for record in records {
        let is_seen = matches!(
            record.what,
            What::Claim { .. } | What::Held { .. } | What::Left { .. }
        );
        let Some(id) = names.get(&record.id).filter(|_| is_seen) else {
            continue;
        };
        let Some((name, nominal_ms)) = parts(id) else {
            continue;
        };
        verdict.schedules.granted += u64::from(matches!(record.what, What::Claim { .. }));
        if usize::from(record.epoch) == last {
            fires.entry(name).or_default().insert(nominal_ms);
        }
    }
    verdict.schedules.left = all.ticks.stored.len() as u64;
    verdict.schedules.backfilled = all.ticks.backfilled;
    verdict.schedules.refilled = all.ticks.refilled;
    verdict.schedules.dry = all.ticks.dry;
    late::judge(all, epoch.queue, last, verdict);
    for stored in &all.ticks.stored {
        let none = BTreeSet::new();
        let seen = fires.get(&*stored.name).unwrap_or(&none);
        counts(all, epoch, stored, seen, verdict);
    }
}

/// Judges the counts of one schedule. These of its fires were granted or remain.
fn counts(
    all: &Collection,
    epoch: &Epoch,
    stored: &Stored,
    seen: &BTreeSet<u64>,
    verdict: &mut Verdict,
) {
    let [
        next,
        last,
        since,
        made,
        missed,
        overlapped,
        paused,
        triggered,
        ..,
    ] = stored.numbers;
    let sums = &mut verdict.schedules;
    sums.made += made;
    sums.missed += missed;
    sums.overlapped += overlapped;
    sums.paused += paused;
    sums.triggered += triggered;
    sums.ended += u64::from(stored.state == "ended");
    let tell = |what: String| format!("{what}: {stored:?}");
    let Some(spec) = Spec::read(&stored.spec, &stored.pattern) else {
        return verdict.found(Kind::UnaccountedFires, || tell("no interval".to_owned()));
    };
    let counts = Counts {
        made,
        missed,
        overlapped,
        paused,
    };
    let Some(fires) = spec.fires(since, last) else {
        let what = "its first or its last fire is none";
        return verdict.found(Kind::UnaccountedFires, || tell(what.to_owned()));
    };
    verdict.schedules.fires += fires;
    if let Some(what) = counts.breach(fires) {
        for _ in 0..fires.abs_diff(counts.all()) {
            verdict.found(Kind::UnaccountedFires, || tell(what.clone()));
        }
    }
    let wanted = if last < since {
        since
    } else {
        last + spec.every_ms
    };
    // A cron that waits for more listed fires has no next one, also while it is paused.
    let is_dry = spec.is_cron && next == 0 && matches!(&*stored.state, "dry" | "paused");
    if next != wanted && stored.state != "ended" && !is_dry {
        let what = format!("its next fire must be {wanted}");
        verdict.found(Kind::UnaccountedFires, || tell(what));
    }
    let is_ended = stored.state == "ended";
    if made > spec.limit || is_ended != (made == spec.limit) {
        let what = format!("it has made {made} ticks, and its limit is {}", spec.limit);
        verdict.found(Kind::UnaccountedFires, || tell(what));
    }
    // Each fire that was counted as made was granted, or its tick remains.
    let Some(named) = all.ticks.named.get(&stored.name) else {
        return verdict.found(Kind::Unexpected, || tell("never declared".to_owned()));
    };
    // The counts may have restarted at a fire that an earlier schedule of this name had as well.
    if named.removed && !epoch.steps.is_empty() {
        return;
    }
    let is_fire = |ms: &&u64| (since..=last).contains(*ms) && spec.has_fire(**ms);
    let seen: Vec<_> = seen.iter().filter(is_fire).collect();
    let by_hand = |ms: &&&u64| {
        all.ticks
            .triggered
            .contains_key(&format!("{}@{ms}", stored.name))
    };
    let perhaps = seen.iter().filter(by_hand).count() + named.lost_triggers_us.len();
    let (seen, perhaps) = (seen.len() as u64, perhaps as u64);
    // A later tick may have replaced a tick whose claim got no answer.
    let queue = all.queues.iter().find(|queue| queue.name == TICKS);
    let lost = queue.map_or(0, |queue| {
        let claims = queue.lost.iter().filter(|lost| lost.most > 0);
        claims.count() as u64
    });
    let unseen = if spec.replaces { lost } else { 0 };
    if let Some(what) = counts.breach_of_granted(seen, perhaps, unseen) {
        verdict.found(Kind::UnaccountedFires, || tell(what));
    }
}

/// Judges declarations: older revisions must be refused, and an unchanged schedule must be kept.
fn declarations(all: &Collection, verdict: &mut Verdict) {
    let told = all.ticks.told.iter();
    let mut told: Vec<_> = told
        .filter(|told| !all.epochs[usize::from(told.epoch)].is_void(told.seq))
        .collect();
    // A call that changed nothing has the `seq` of the last change before it.
    told.sort_by_key(|told| (told.epoch, told.seq, !changed(told)));
    for told in told.chunk_by(|one, other| one.epoch == other.epoch) {
        of_epoch(&all.ticks.lost_us, told, verdict);
    }
}

fn changed(told: &Told) -> bool {
    told.words.first().is_some_and(|word| word == "OK")
}

fn of_epoch(lost_us: &[u64], told: &[&Told], verdict: &mut Verdict) {
    let mut before_us = 0;
    let (mut highest, mut known) = (0_u64, HashMap::<&str, &[String]>::new());
    for told in told {
        let Call::Other { verb, args } = &told.call else {
            continue;
        };
        // An unanswered call may have declared other schedules.
        let may_be = |asked_us: &u64| *asked_us < told.at.1 && before_us < asked_us + UNDER_WAY_US;
        if lost_us.iter().any(may_be) {
            known.clear();
        }
        before_us = told.at.1;
        if verb == "amend" {
            let names = args.iter().skip(1).filter(|_| args[0] == "remove");
            names.for_each(|name| {
                known.remove(&**name);
            });
            continue;
        }
        let revision: u64 = args.get(1).and_then(|text| text.parse().ok()).unwrap_or(0);
        let stored = told
            .words
            .first()
            .and_then(|word| word.strip_prefix("STALE "));
        if let Some(stored) = stored {
            verdict.schedules.stale += 1;
            if stored.parse().is_ok_and(|stored: u64| stored <= revision) {
                verdict.found(Kind::Contradictions, || {
                    format!("revision {revision} was refused, and {stored} is stored")
                });
            }
            continue;
        }
        if !changed(told) {
            continue;
        }
        verdict.schedules.applied += 1;
        if revision < highest {
            verdict.found(Kind::Contradictions, || {
                format!("revision {revision} was applied after {highest}")
            });
        }
        highest = highest.max(revision);
        for ((name, _, item), word) in declared(args).zip(told.words.iter().skip(1)) {
            if word == "STAYS" {
                continue; // the item has a name only: prune leaves that schedule
            }
            let is_kept = word.starts_with("KEPT ");
            let before = known.insert(name, item);
            // For a cron the listed fires may differ: they are not part of the schedule.
            let is_same = |before: &[String]| before[..4] == item[..4] && before[5] == item[5];
            if before.is_some_and(|before| is_same(before) != is_kept) {
                verdict.found(Kind::Contradictions, || {
                    format!("declared {item:?} after {before:?}: {word}")
                });
            }
        }
        for word in &told.words {
            if let Some(name) = word.strip_prefix("REMOVED ") {
                known.remove(name);
            }
        }
    }
}
