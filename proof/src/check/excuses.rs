//! What calls without an answer can explain; each call is used at most once.
//!
//! | excuse | window | reason |
//! |---|---|---|
//! | any call without an answer | from when it was sent until `UNDER_WAY_US` later | longer than a request can lie before a frozen server |
//! | one change by it | a `seq` that no answered call made, seen in that window | every change has a `seq` of its own |
//! | a message that a lost claim took | due by then, and one of at most `n`; gone again when a lease could have run out | what a claim grants waited, and comes back at its deadline |
//! | a lost push, cancel, settle or move of an id | between the two answers about that id which it explains | it changed that message then, or nothing |

use std::cell::RefCell;
use std::collections::HashMap;

use serde::Serialize;

use super::context::{Epoch, Lost, Queue};
use super::missing::MissingChange;
use super::record::{Record, What};
use super::verdict::{Kind, Verdict};
use crate::check::message::unknown::bit;
use crate::history::Verb;

/// How long after its sending an abandoned request may still be applied: it may wait in the socket
/// of a frozen server, or in a frozen process that has not sent it yet. Faults freeze either for at
/// most 6.5 s; the rest is for slow machines.
pub(super) const UNDER_WAY_US: u64 = 30_000_000;

/// One kind of excuse in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Excuse {
    /// The number of calls without an answer.
    pub calls: u64,
    /// The number of messages that these calls name; for claims, that they asked for.
    pub available: u64,
    /// The number of messages that only such a call explains.
    pub used: u64,
}

/// A need: a lost claim must have taken a message after the first `seq`, and at or before the
/// second.
pub(super) type Need = (u64, u64);

/// Lists of needs that share prefixes: a hypothesis refers to its list by a number. 0 is the empty
/// list.
#[derive(Debug, Default)]
pub(super) struct Chains(RefCell<Links>);

#[derive(Debug, Default)]
struct Links {
    /// For each list: the number of the list that it continues, and the need that it adds.
    all: Vec<(u32, Need)>,
    numbers: HashMap<(u32, Need), u32>,
}

impl Chains {
    pub(super) fn add(&self, chain: u32, need: Need) -> u32 {
        let Links { all, numbers } = &mut *self.0.borrow_mut();
        *numbers.entry((chain, need)).or_insert_with(|| {
            all.push((chain, need));
            u32::try_from(all.len()).unwrap_or(u32::MAX)
        })
    }

    pub(super) fn needs(&self, mut chain: u32) -> Vec<Need> {
        let Links { all, .. } = &*self.0.borrow();
        let mut needs = Vec::new();
        while let Some((former, need)) = chain
            .checked_sub(1)
            .and_then(|place| all.get(place as usize))
        {
            needs.push(*need);
            chain = *former;
        }
        needs
    }

    pub(super) fn clear(&self) {
        *self.0.borrow_mut() = Links::default();
    }
}

/// The name of a kind of excuse.
fn name(record: &Record) -> &'static str {
    match record.what {
        What::Push { .. } => "push",
        What::Change {
            verb: Verb::Cancel, ..
        } => "cancel",
        What::Change { .. } => "change",
        What::Settle {
            verb: Verb::Extend, ..
        } => "extend",
        _ => "settle",
    }
}

/// Counts the available excuses.
pub(super) fn count(queues: &[Queue], unknown: &[Record], verdict: &mut Verdict) {
    for lost in queues
        .iter()
        .flat_map(|queue| &queue.lost)
        .filter(|lost| lost.most > 0)
    {
        let claims = verdict.excuses.entry("claim").or_default();
        (claims.calls, claims.available) = (claims.calls + 1, claims.available + lost.most);
    }
    let mut calls = std::collections::HashSet::new();
    for record in unknown {
        let excuse = verdict.excuses.entry(name(record)).or_default();
        excuse.available += 1;
        excuse.calls += u64::from(calls.insert((name(record), record.process, record.asked_us)));
    }
}

/// Counts the excuses that one id used.
pub(super) fn use_up(unknown: &[Record], used: u64, verdict: &mut Verdict) {
    for (_, record) in unknown
        .iter()
        .enumerate()
        .filter(|(place, _)| used & bit(*place) != 0)
    {
        verdict.excuses.entry(name(record)).or_default().used += 1;
    }
}

/// Judges whether the lost claims of a queue can have taken all messages that the hypotheses assign
/// to them.
pub(super) fn judge(queue: &Queue, needs: &[(&Epoch, Need)], verdict: &mut Verdict) {
    if needs.is_empty() {
        return;
    }
    verdict.excuses.entry("claim").or_default().used += needs.len() as u64;
    let unmet = |is: fn(&Lost) -> bool| self::unmet(queue, needs, is);
    let (none, excused) = (unmet(|_| true), unmet(|lost| !lost.given_up));
    for _ in none..excused {
        verdict.found(Kind::ChargedUnseen, || {
            let given_up = queue.lost.iter().filter(|lost| lost.given_up).count();
            format!(
                "queue {}: of {} deliveries that no handler saw, {} were granted by {given_up} claims without an answer whose workers went on without them",
                queue.name, needs.len(), excused - none
            )
        });
    }
    if none > 0 {
        verdict.found(Kind::Miscounted, || {
            let needs = needs.len();
            format!(
                "queue {}: {needs} crashes of leases that no process knows, {none} more than the claims without an answer explain",
                queue.name
            )
        });
    }
}

/// The number of needs that no lost claim can meet, if each claim took at most as many messages as
/// it asked for.
fn unmet(queue: &Queue, needs: &[(&Epoch, Need)], counts: fn(&Lost) -> bool) -> u64 {
    let claims = queue
        .lost
        .iter()
        .filter(|lost| lost.most > 0 && counts(lost));
    let claims: Vec<_> = claims.collect();
    let room: u64 = claims.iter().map(|claim| claim.most).sum();
    if needs.len() as u64 > room {
        return needs.len() as u64 - room;
    }
    let able = |(epoch, (after, until)): &(&Epoch, Need)| {
        let gaps = epoch.gaps(*after, *until);
        let fits = |gap: &MissingChange, place: usize| {
            gap.fits(claims[place].asked_us, claims[place].until_us)
        };
        (0..claims.len())
            .filter(|place| gaps.iter().any(|gap| fits(gap, *place)))
            .collect::<Vec<_>>()
    };
    let able: Vec<_> = needs.iter().map(able).collect();
    let mut taken: Vec<Vec<usize>> = vec![Vec::new(); claims.len()];
    let mut left = 0;
    for need in 0..needs.len() {
        let mut seen = vec![false; claims.len()];
        left += u64::from(!meet(need, &able, &mut taken, &mut seen, &|place| {
            claims[place].most
        }));
    }
    left
}

/// Finds a claim for one need; moves other needs to other claims if necessary.
fn meet(
    need: usize,
    able: &[Vec<usize>],
    taken: &mut Vec<Vec<usize>>,
    seen: &mut [bool],
    most: &impl Fn(usize) -> u64,
) -> bool {
    for &claim in &able[need] {
        if std::mem::replace(&mut seen[claim], true) {
            continue;
        }
        if (taken[claim].len() as u64) < most(claim) {
            taken[claim].push(need);
            return true;
        }
        for place in 0..taken[claim].len() {
            if meet(taken[claim][place], able, taken, seen, most) {
                taken[claim][place] = need;
                return true;
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gap(seq: u64) -> MissingChange {
        let at = seq * 10;
        MissingChange {
            seq,
            after_us: at,
            before_us: at + 10,
            after_ms: 0,
            before_ms: u64::MAX,
            lease_ms: Some(1),
        }
    }

    #[test]
    fn a_lost_claim_explains_at_most_n_messages_in_its_time() {
        let claim = |asked_us, until_us, most| Lost {
            asked_us,
            until_us,
            most,
            lease_ms: 1,
            token: 0,
            given_up: false,
        };
        let epoch = Epoch {
            gaps: vec![gap(1), gap(5), gap(9)],
            ..Epoch::default()
        };
        let unmet = |lost: &[Lost], needs: &[Need]| {
            let queue = Queue {
                lost: lost.to_vec(),
                ..Queue::default()
            };
            super::unmet(
                &queue,
                &needs.iter().map(|need| (&epoch, *need)).collect::<Vec<_>>(),
                |_| true,
            )
        };
        assert_eq!(unmet(&[claim(0, 100, 2)], &[(0, 5), (0, 9)]), 0);
        assert_eq!(unmet(&[claim(0, 100, 2)], &[(0, 5), (0, 9), (4, 9)]), 1);
        assert_eq!(
            unmet(&[claim(70, 100, 9)], &[(0, 5), (5, 9)]),
            1,
            "it was sent later"
        );
        assert_eq!(unmet(&[claim(0, 40, 9)], &[(4, 9)]), 1, "its time was over");
        assert_eq!(
            unmet(&[claim(0, 100, 9)], &[(5, 8)]),
            1,
            "nothing changed then"
        );
        // The first need must use another claim, because only this one fits the second need.
        assert_eq!(
            unmet(&[claim(0, 40, 1), claim(0, 100, 1)], &[(0, 9), (0, 1)]),
            0
        );
        assert_eq!(
            unmet(&[claim(0, 100, 1), claim(0, 40, 1)], &[(0, 9), (4, 9)]),
            0
        );
    }

    #[test]
    fn lists_of_needs_share_their_prefixes() {
        let chains = Chains::default();
        let one = chains.add(0, (1, 2));
        let two = chains.add(one, (3, 4));
        assert_eq!((chains.add(0, (1, 2)), chains.add(one, (3, 4))), (one, two));
        assert_eq!(chains.needs(two), [(3, 4), (1, 2)]);
        assert_eq!(chains.needs(0), []);
    }
}
