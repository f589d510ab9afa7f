//! Follows the records of one id in the server's order, with every state that the id may have.
//!
//! Usually there is one state. A call without an answer adds the states that it would lead to; an
//! answer keeps the states that allow it. If none allows it, that is a violation.

use crate::check::context::Context;
use crate::check::describe::story;
use crate::check::excuses::Need;
use crate::check::liveness::lateness::Wait;
use crate::check::message::hypothesis::{Gone, Hypothesis, Status};
use crate::check::message::options::Expiry;
use crate::check::message::unknown::{hide, spread};
use crate::check::record::{Pushed, Record, Settled, What};
use crate::check::ticks::Tick;
use crate::check::verdict::{Kind, Verdict};
use crate::history::Verb;

/// The most changes of the queue itself between two answers: mostly expiries of leases.
const UNASKED: usize = 12;

/// One id within one epoch, to be judged.
pub(crate) struct Case<'a> {
    /// Answered calls about the id, in the server's order.
    pub(crate) records: &'a [Record],
    /// Calls without an answer.
    pub(crate) unknown: &'a [Record],
    pub(crate) context: Context<'a>,
}

fn may_expire(record: &Record) -> bool {
    matches!(record.what, What::Push { push, .. } if push.expiry != Expiry::NONE)
}

/// The needs and findings of one id.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// The lost claims that are needed to explain the id's records.
    pub(crate) needs: Vec<Need>,
    /// The unanswered calls that are needed to explain the id's records, one bit each.
    pub(crate) used: u64,
    /// How long the message waited for each claim, where that is certain.
    pub(crate) waits: Vec<Wait>,
}

impl Case<'_> {
    /// Adds the violations to the verdict.
    pub(crate) fn judge(&self, verdict: &mut Verdict, name: &dyn Fn(&Record) -> String) -> Found {
        let mut wrong = Verdict::default();
        let mut found = self.pass(false, &mut wrong, name);
        // An answer that every state allows may still follow a hidden claim, purge or expiry, which
        // only a later answer reveals: so judge in two passes.
        let queue = self.context.queue;
        let hidden = queue.lost.iter().any(|lost| lost.most > 0)
            || queue.operators.first_purge_us().is_some()
            || self
                .records
                .iter()
                .chain(self.unknown.iter())
                .any(may_expire);
        if !wrong.is_clean() && hidden {
            let mut second = Verdict::default();
            let again = self.pass(true, &mut second, name);
            if second.is_clean() {
                (wrong, found) = (second, again);
            }
        }
        verdict.add(wrong);
        found
    }

    /// One pass. `eager`: assume hidden claims wherever they are possible; else only if nothing
    /// else explains an answer.
    fn pass(&self, eager: bool, verdict: &mut Verdict, name: &dyn Fn(&Record) -> String) -> Found {
        let (mut lives, mut next, mut left) = (Tick::starts(self.context.tick), Vec::new(), false);
        let mut waits = Vec::new();
        for (place, record) in self.records.iter().enumerate() {
            let tell = || {
                story(
                    &name(record),
                    self.records.get(..=place).unwrap_or_default(),
                    self.unknown,
                )
            };
            if matches!(record.what, What::Left { .. }) && std::mem::replace(&mut left, true) {
                verdict.found(Kind::TwoStates, tell);
                continue;
            }
            // An unanswered call may follow a hidden change, such as a push after a purge.
            let mut few = spread(&mut lives, self.unknown, record, &self.context);
            if few && eager {
                few = hide(&mut lives, record, &self.context)
                    && spread(&mut lives, self.unknown, record, &self.context);
            }
            if !few {
                verdict.unjudged += 1;
                return Found::default();
            }
            next.clear();
            let mut kind = self.accept(&lives, record, &mut next, verdict);
            if let ([life], false) = (&lives[..], next.is_empty()) {
                waits.extend(life.waited(record, self.unknown, &self.context));
            }
            if next.is_empty() {
                self.accept_unasked(&lives, record, &mut next, &mut kind, verdict);
            }
            if next.is_empty() {
                verdict.found(kind, tell);
                next.extend(lives.first().map(|life| life.after(record, &self.context)));
            }
            std::mem::swap(&mut lives, &mut next);
            self.count(record, verdict);
        }
        if !left {
            self.judge_end(&mut lives, verdict, name);
        }
        let least = lives
            .iter()
            .min_by_key(|life| (life.hidden, life.used.count_ones()));
        let (chain, used) = least.map_or((0, 0), |life| (life.chain, life.used));
        verdict.swept += u64::from(lives.iter().map(|life| life.swept).min().unwrap_or(0));
        verdict.limits.expired += least.map_or(0, |life| u64::from(life.expired));
        Found {
            needs: self.context.chains.needs(chain),
            used,
            waits,
        }
    }

    /// Keeps the states that allow an answer. If none does, returns the reason of the first state.
    fn accept(
        &self,
        lives: &[Hypothesis],
        record: &Record,
        next: &mut Vec<Hypothesis>,
        verdict: &mut Verdict,
    ) -> Kind {
        let mut kind = None;
        for life in lives {
            match life.allows(record, &self.context) {
                Ok(()) => {
                    if let (What::Claim { .. }, Some(cause), true) =
                        (record.what, life.again, next.is_empty())
                    {
                        verdict.explained(cause);
                    }
                    let after = life.after(record, &self.context);
                    if !next.contains(&after) {
                        next.push(after);
                    }
                }
                Err(refusal) => kind = kind.or(Some(refusal)),
            }
        }
        kind.unwrap_or(Kind::Contradictions)
    }

    /// Explains an answer by as few changes of the queue itself as possible.
    fn accept_unasked(
        &self,
        lives: &[Hypothesis],
        record: &Record,
        next: &mut Vec<Hypothesis>,
        kind: &mut Kind,
        verdict: &mut Verdict,
    ) {
        let mut frontier = lives.to_vec();
        for step in 0..UNASKED {
            let mut later = Vec::new();
            frontier
                .iter()
                .for_each(|life| life.unasked(record, &self.context, &mut later));
            if later.is_empty() {
                return;
            }
            let refusal = self.accept(&later, record, next, verdict);
            if !next.is_empty() {
                return;
            }
            // The expiry of a lease is no violation, but its consequences may be.
            if step == 0
                && *kind != Kind::WrongTimes
                && lives
                    .first()
                    .is_some_and(|life| life.status == Status::Leased)
            {
                *kind = refusal;
            }
            frontier = later;
        }
    }

    fn judge_end(
        &self,
        lives: &mut Vec<Hypothesis>,
        verdict: &mut Verdict,
        name: &dyn Fn(&Record) -> String,
    ) {
        let Some(last) = self.records.last().or(self.unknown.first()) else {
            return;
        };
        if self.context.epoch.emptied || !self.context.queue.scanned {
            return;
        }
        let end = Record {
            order: u64::MAX,
            now_us: u64::MAX,
            answered_us: u64::MAX,
            ..*last
        };
        if !spread(lives, self.unknown, &end, &self.context) {
            verdict.unjudged += 1;
            return;
        }
        let mut gone = Vec::new();
        for life in &*lives {
            let mut later = vec![*life];
            life.reaped(&end, &self.context, &mut later);
            let operators = &self.context.queue.operators;
            // A purge or a claim may take a message that a bulk requeue has made due again.
            for life in later.clone() {
                if life.status == Status::Dead {
                    operators.revived(&life, &end, &self.context, &mut later);
                }
            }
            for life in later.clone() {
                life.expired_before(&end, &self.context, &mut later);
            }
            for life in later {
                let is_over =
                    life.may_be_trimmed(&self.context) || life.may_be_replaced(&end, &self.context);
                // A message must not leave in a batch that nobody knows.
                let vanished = life.status == Status::Absent(Gone::Departed) && life.batch == 0;
                if !life.is_there() && !vanished || is_over {
                    gone.push(life);
                } else if operators.may_purge(&life, &end, &self.context) {
                    gone.push(life.purged(&end));
                }
            }
        }
        if gone.is_empty() {
            verdict.found(Kind::Lost, || {
                story(&name(last), self.records, self.unknown)
            });
        } else {
            *lives = gone;
        }
    }

    fn count(&self, record: &Record, verdict: &mut Verdict) {
        match record.what {
            What::Push {
                verdict: Pushed::Created,
                ..
            } => verdict.messages += 1,
            What::Claim { .. } => verdict.deliveries += 1,
            What::Settle {
                verb: Verb::Snooze,
                verdict: Settled::Done,
                ..
            } => verdict.limits.snoozed += 1,
            What::Settle {
                verb: Verb::Throttle,
                verdict: Settled::Done,
                ..
            } => verdict.limits.throttled += 1,
            _ => {}
        }
    }
}
