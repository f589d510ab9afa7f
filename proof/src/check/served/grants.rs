//! Judges that each grant of a server of HTTP reaches one consumer, or is given back.

use std::collections::HashMap;

use super::settlements::handed;
use super::{Answer, Claim, Delivery, Grant, Sent};
use crate::check::collect::Collection;
use crate::check::verdict::{Kind, Verdict};

/// If a server was killed, grants this shortly before its last line may not have been given back:
/// the library repeats a release for 10 s, and the server may have been frozen meanwhile.
const ABOUT_TO_GIVE_BACK_US: u64 = 30_000_000;
/// The clocks of server and processes may drift apart by a thousandth of a lease: its length is
/// divided by this.
const DRIFT: u64 = 1_000;

pub(super) fn judge(all: &Collection, verdict: &mut Verdict) {
    let served = &all.served;
    let mut grants: HashMap<&Delivery, u64> = HashMap::new();
    for delivery in served.grants.iter().flat_map(|grant| &grant.deliveries) {
        *grants.entry(delivery).or_default() += 1;
    }
    let mut got: HashMap<&Delivery, u64> = HashMap::new();
    for delivery in handed(all) {
        verdict.http.handed_out += 1;
        let times = got.entry(delivery).or_default();
        *times += 1;
        // The reply to the claim was lost, and `held` showed the grant.
        let shown = u64::from(served.held.contains(delivery));
        let granted = grants.get(delivery).copied().unwrap_or(shown);
        if *times > granted {
            let kind = match granted {
                0 => Kind::Unexpected,
                _ => Kind::HandedOutTwice,
            };
            verdict.found(kind, || {
                let Delivery { id, token, .. } = delivery;
                format!("{id} was handed out {times} times by {token}, and granted {granted} times")
            });
        }
    }
    for grant in &served.grants {
        let Some(claim) = served.claim_for(grant) else {
            verdict.found(Kind::Unexpected, || {
                let words = words(all, grant);
                format!("{words}: no consumer had asked for it")
            });
            continue;
        };
        verdict.http.repeated += repeated(grant, claim);
        let missing = grant.deliveries.iter().filter(|delivery| {
            let is_back = || {
                let of_lease = served.settled.get(&delivery.lease());
                of_lease.is_some_and(|of| of.iter().any(|settling| settling.gives_back()))
            };
            !got.contains_key(*delivery) && !is_back()
        });
        for delivery in missing {
            match fate(all, grant, claim) {
                Some(kind) => verdict.found(kind, || {
                    let (words, sent) = (words(all, grant), &claim.sent);
                    format!("{words}: {} reached nobody; sent {sent:?}", delivery.id)
                }),
                None => verdict.http.unreceived += 1,
            }
        }
    }
}

fn words(all: &Collection, grant: &Grant) -> String {
    format!(
        "{} granted at {} us in {} for {} ms, seq {}",
        all.processes[usize::from(grant.process)],
        grant.answered_us,
        all.queues[usize::from(grant.queue)].name,
        grant.lease_ms,
        grant.seq
    )
}

/// The number of the grant's deliveries that came with the answer to a repetition.
fn repeated(grant: &Grant, claim: &Claim) -> u64 {
    let later = claim.sent.iter().skip(1);
    let later = later.filter(|sent| sent.sent_us > grant.answered_us);
    let answers = later.filter_map(|sent| sent.answer.as_ref());
    let of_grant = |answer: &Answer| {
        let mut deliveries = answer.deliveries.iter();
        deliveries.any(|delivery| grant.deliveries.contains(delivery))
    };
    answers.filter(|answer| of_grant(answer)).count() as u64
}

/// The violation, if the grant must have reached a consumer and did not.
fn fate(all: &Collection, grant: &Grant, claim: &Claim) -> Option<Kind> {
    if is_undone(all, grant) {
        return None;
    }
    let answered = |sent: &Sent| sent.answer.as_ref().is_some_and(Answer::is_of_claim);
    if !claim.is_repeatable {
        let (is_on_request, last_us) = all.served.ends.get(&grant.process)?;
        let is_killed = !is_on_request && grant.answered_us + ABOUT_TO_GIVE_BACK_US >= *last_us;
        let is_answered = claim.sent.iter().any(answered);
        return (is_answered && !is_killed).then_some(Kind::NeverStarted);
    }
    // By the clock of the processes the lease lasts at least this long.
    let lease_us = grant.lease_ms * 1_000;
    let until_us = grant.asked_us + lease_us - lease_us / DRIFT;
    let in_time = |sent: &&Sent| {
        let answer = sent.answer.as_ref().filter(|answer| answer.is_of_claim());
        answer.is_some_and(|answer| {
            sent.sent_us > grant.answered_us && answer.answered_us < until_us && answer.more == 0
        })
    };
    let sent = claim.sent.iter().find(in_time)?;
    let answered_us = sent.answer.as_ref()?.answered_us;
    let is_clear =
        !is_emptied(all, grant, answered_us) && !is_clock_changed(all, grant, answered_us);
    is_clear.then_some(Kind::ChargedToRepetition)
}

fn is_undone(all: &Collection, grant: &Grant) -> bool {
    all.epochs[usize::from(grant.epoch)].is_void(grant.seq)
}

/// Whether the store may have been emptied before this time.
fn is_emptied(all: &Collection, grant: &Grant, before_us: u64) -> bool {
    let epoch = &all.epochs[usize::from(grant.epoch)];
    epoch.emptied && epoch.asked_us < before_us
}

fn is_clock_changed(all: &Collection, grant: &Grant, before_us: u64) -> bool {
    let mut faults = all.clock_faults.iter();
    faults.any(|(begin_us, end_us)| *begin_us <= before_us && grant.asked_us <= *end_us)
}
