//! Whether the times in an answer are the requested ones.

use crate::check::context::Context;
use crate::check::message::hypothesis::{Hypothesis, Status};
use crate::check::record::{Changed, Expected, Record, Settled, Time, What};
use crate::check::verdict::Kind;
use crate::history::{State, Verb};

impl Hypothesis {
    pub(crate) fn allows_settled_time(
        &self,
        verb: Verb,
        verdict: Settled,
        (time, answered_ms): (Time, u64),
        record: &Record,
        context: &Context<'_>,
    ) -> Result<(), Kind> {
        let wanted_ms = time.due_ms(record.now_up());
        let right = match (verb, verdict) {
            (Verb::Retry | Verb::Again | Verb::Snooze, Settled::Done) => answered_ms == wanted_ms,
            (Verb::Extend, Settled::Done) => {
                let least_ms = wanted_ms.max(self.deadline_ms);
                answered_ms == least_ms
                    || answered_ms > least_ms && answered_ms <= self.extended_ms(record, context)
            }
            _ => true,
        };
        right.then_some(()).ok_or(Kind::WrongTimes)
    }

    /// The latest deadline of this lease, if unanswered extensions were applied.
    fn extended_ms(&self, record: &Record, context: &Context<'_>) -> u64 {
        let stepped = context.epoch.stepped(self.seq, record.seq());
        let longest = context.unknown.iter().filter_map(|call| match call.what {
            What::Settle {
                verb: Verb::Extend,
                token,
                time,
                ..
            } if self.token == Some(token) => Some((call, time)),
            _ => None,
        });
        let until_ms = longest
            .filter(|(call, _)| call.asked_us < record.answered_us)
            .map(|(_, time)| {
                if stepped {
                    u64::MAX
                } else {
                    time.due_ms(record.now_up())
                }
            });
        until_ms.max().unwrap_or(0)
    }

    /// For a reschedule or run_now: whether it rightly moved the message or left it, and whether to
    /// the right time.
    pub(crate) fn allows_moved(
        &self,
        verb: Verb,
        verdict: Changed,
        (time, expected, answered_ms): (Time, Expected, u64),
        record: &Record,
        context: &Context<'_>,
    ) -> Result<(), Kind> {
        let stepped = context.epoch.stepped(self.seq, record.seq());
        let (score_ms, expected_ms) = (self.score_ms, expected.due_ms());
        let due = || {
            score_ms
                .filter(|_| !stepped)
                .map(|score_ms| score_ms <= record.now())
        };
        let check = |right: bool, kind: Kind| right.then_some(()).ok_or(kind);
        match (verb, verdict) {
            (Verb::Reschedule, Changed::Done) => {
                let wanted_ms = time.due_ms(record.now_up());
                check(answered_ms == wanted_ms, Kind::WrongTimes)?;
                let refused = score_ms
                    .zip(expected_ms)
                    .is_some_and(|(is, expected)| is != expected && is != wanted_ms);
                check(!refused, Kind::Contradictions)
            }
            (Verb::Reschedule, Changed::Conflict) => {
                let known = score_ms
                    .map_or(answered_ms >= self.not_before_ms || stepped, |score_ms| {
                        score_ms == answered_ms
                    });
                check(known, Kind::WrongTimes)?;
                let wanted = answered_ms == time.due_ms(record.now_up());
                check(
                    !wanted && expected_ms.is_some_and(|expected| expected != answered_ms),
                    Kind::Contradictions,
                )
            }
            (Verb::RunNow, Changed::Done) => {
                check(answered_ms == record.now(), Kind::WrongTimes)?;
                check(due() != Some(true), Kind::Contradictions)
            }
            (Verb::RunNow, Changed::Already) => check(due() != Some(false), Kind::Contradictions),
            _ => Ok(()),
        }
    }

    /// Checks the time of a remaining message: the due time of a waiting one, the due time at the
    /// claim of a leased one, the death of a dead one.
    pub(crate) fn allows_left_time(
        &self,
        state: State,
        time_ms: u64,
        context: &Context<'_>,
    ) -> Result<(), Kind> {
        let stepped = context.epoch.stepped(self.seq, u64::MAX);
        let right = match (self.status, state) {
            (Status::Waiting, _) if self.slack > 0 => true,
            (Status::Waiting, _) => self
                .score_ms
                .map_or(time_ms >= self.not_before_ms || stepped, |score_ms| {
                    score_ms == time_ms
                }),
            (Status::Leased, _) => self.due_ms.is_none_or(|due_ms| due_ms == time_ms),
            // If a settlement made the message dead, the time is exact. If an expired lease did, it
            // is not.
            (Status::Dead, _) => self
                .score_ms
                .map_or(time_ms >= self.now_ms || stepped, |died_ms| {
                    died_ms == time_ms
                }),
            _ => true,
        };
        right.then_some(()).ok_or(Kind::WrongTimes)
    }
}
