//! Judges that servers settle only what consumers ask for, and tell them what the queue answered.

use std::collections::HashSet;

use super::{Delivery, Grant, Lease};
use crate::check::collect::Collection;
use crate::check::record::split;
use crate::check::verdict::{Kind, Verdict};
use crate::history::Verb;

/// A consumer asks for a settlement.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) verb: Verb,
    pub(super) t_us: u64,
}

/// An outcome that a consumer was told.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) process: u16,
    pub(super) t_us: u64,
    pub(super) lease: Lease,
    pub(super) verb: Verb,
    pub(super) outcome: String,
}

/// A settlement that a server sends to Redis.
#[derive(Debug)]
pub(super) struct Settling {
    process: u16,
    verb: Verb,
    t_us: u64,
    answer: Word,
}

#[derive(Debug, PartialEq)]
enum Word {
    None,
    Refused,
    Said(String),
}

impl Settling {
    pub(super) fn new(process: u16, verb: Verb, t_us: u64) -> Self {
        Self {
            process,
            verb,
            t_us,
            answer: Word::None,
        }
    }

    pub(super) fn said(&mut self, word: &str) {
        self.answer = Word::Said(word.to_owned());
    }

    pub(super) fn refused(&mut self) {
        self.answer = Word::Refused;
    }

    pub(super) fn gives_back(&self) -> bool {
        self.verb == Verb::Release
    }
}

pub(super) fn judge(all: &Collection, verdict: &mut Verdict) {
    let served = &all.served;
    for told in served.told.iter().filter(|told| !is_true(all, told)) {
        verdict.found(Kind::ApiLies, || {
            let (process, t_us) = (told.process, told.t_us);
            let (_, id, token) = &told.lease;
            let said = served.settled.get(&told.lease);
            format!(
                "process {process} at {t_us} us: {:?} of {id} by {token} got {:?}; the servers of HTTP have sent {said:?}",
                told.verb, told.outcome
            )
        });
    }
    let handed: HashSet<Lease> = handed(all).map(Delivery::lease).collect();
    let shown: HashSet<Lease> = served.held.iter().map(Delivery::lease).collect();
    for (lease, settlings) in &served.settled {
        let asked = served.asked.get(lease);
        for settling in settlings {
            let mut asked = asked.into_iter().flatten();
            if asked.any(|asked| asked.verb == settling.verb && asked.t_us <= settling.t_us) {
                continue;
            }
            // After a lost reply to its claim, a server's node extends or releases the deliveries
            // that `held` showed.
            let is_shown = shown.contains(lease);
            let why = match grant_of(all, lease) {
                _ if settling.verb == Verb::Extend && is_shown => continue,
                _ if !settling.gives_back() => "no consumer asked for it",
                None if !is_shown => "it was not granted",
                _ if handed.contains(lease) => "a consumer has it",
                Some(grant) if is_repeatable(all, grant) => "its claim can be repeated",
                _ => {
                    verdict.http.given_back += 1;
                    continue;
                }
            };
            verdict.found(Kind::SettledUnasked, || {
                let (_, id, token) = lease;
                let (process, t_us, verb) = (settling.process, settling.t_us, settling.verb);
                format!("process {process} at {t_us} us: {verb:?} of {id} by {token}: {why}")
            });
        }
    }
}

/// All deliveries that consumers received.
pub(super) fn handed(all: &Collection) -> impl Iterator<Item = &Delivery> {
    let sent = all.served.claims.iter().flat_map(|claim| &claim.sent);
    let answers = sent.filter_map(|sent| sent.answer.as_ref());
    answers.flat_map(|answer| &answer.deliveries)
}

fn grant_of<'a>(all: &'a Collection, lease: &Lease) -> Option<&'a Grant> {
    all.served.grants.get(*all.served.grant_of.get(lease)?)
}

fn is_repeatable(all: &Collection, grant: &Grant) -> bool {
    let claim = all.served.claim_for(grant);
    claim.is_some_and(|claim| claim.is_repeatable)
}

/// Whether the queue gave this answer to one of the calls for the settlement.
fn is_true(all: &Collection, told: &Told) -> bool {
    if told.outcome.starts_with('?') {
        return true;
    }
    let settlings = all.served.settled.get(&told.lease).into_iter().flatten();
    let mut of_verb = settlings.filter(|settling| settling.verb == told.verb);
    of_verb.any(|settling| match &settling.answer {
        // The library does not return the time of the next delivery.
        Word::Said(said) if told.verb == Verb::Again => split(said).0 == told.outcome,
        Word::Said(said) => *said == told.outcome,
        Word::None | Word::Refused => false,
    })
}
