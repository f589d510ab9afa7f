//! Whether a correct queue (by docs/protocol) may have returned an answer.

use crate::check::context::Context;
use crate::check::message::hypothesis::{Gone, Hypothesis, Status};
use crate::check::record::{Changed, Conflict, Push, Pushed, Record, Settled, What};
use crate::check::verdict::Kind;
use crate::history::{State, Verb};

impl Hypothesis {
    /// Checks an answer against this hypothesis; the error is the violation.
    pub(crate) fn allows(&self, record: &Record, context: &Context<'_>) -> Result<(), Kind> {
        match record.what {
            What::Push { push, verdict } => self.allows_push(&push, verdict, record, context),
            What::Claim {
                due_ms,
                version,
                attempt,
                bytes,
                options,
                expiry,
                ..
            } => {
                self.allows_claim(record, context)?;
                // The payload must be identical, and the options those of the push.
                if (version, bytes) != (u32::from(self.version), self.bytes)
                    || (options, expiry) != (self.options, self.expiry)
                {
                    return Err(Kind::Unexpected);
                }
                let deadline_ms = self.deadline_for(due_ms);
                if deadline_ms.is_some_and(|deadline_ms| record.now() > deadline_ms) {
                    return Err(Kind::GrantedExpired);
                }
                self.allows_numbers(due_ms, attempt, record)
            }
            What::Settle {
                verb,
                verdict,
                token,
                time,
                answered_ms,
            } => {
                let exceeds = self.exceeds(verb, time, record.now_up());
                self.allows_settle(verb, verdict, (token, exceeds), context)?;
                self.allows_settled_time(verb, verdict, (time, answered_ms), record, context)
            }
            What::Change {
                verb,
                verdict,
                time,
                expected,
                answered_ms,
                ..
            } => {
                self.allows_change(verb, verdict, record, context)?;
                self.allows_moved(
                    verb,
                    verdict,
                    (time, expected, answered_ms),
                    record,
                    context,
                )
            }
            What::Left {
                state,
                failures,
                crashes,
                time_ms,
            } => {
                self.allows_left(state, (failures, crashes), context)?;
                self.allows_left_time(state, time_ms, context)
            }
            What::Move { step, item } => match context.moved(item) {
                Some(moved) => self.allows_move(step, moved, record, context),
                None => Ok(()),
            },
            What::ReadState(seen) => self.allows_seen(seen, record, context),
            What::Held {
                token,
                due_ms,
                version,
                attempt,
                bytes,
                ..
            } => self.allows_held(token, (due_ms, attempt), (version, bytes), context),
        }
    }

    fn allows_claim(&self, record: &Record, context: &Context<'_>) -> Result<(), Kind> {
        match self.status {
            Status::Waiting => {}
            Status::Leased => return Err(Kind::OverlappingLeases),
            Status::Dead => return Err(Kind::DeadAndDelivered),
            Status::Absent(gone) => return Err(self.although(gone, context)),
        }
        if record.now() < self.not_before_ms {
            return Err(if self.put_off {
                Kind::RetriedEarly
            } else {
                Kind::Early
            });
        }
        let (since_us, floor_us) = self.floor_us;
        // The two clocks may drift apart by a thousandth of the elapsed time.
        let drift_us = 2_000 + floor_us.saturating_sub(since_us) / 1_000;
        if record.answered_us + drift_us < floor_us
            && !context.clock_disturbed(since_us, record.answered_us)
        {
            return Err(Kind::EarlyByClient);
        }
        Ok(())
    }

    fn allows_numbers(&self, due_ms: u64, attempt: u32, record: &Record) -> Result<(), Kind> {
        let least = 1 + self.failures + self.crashes;
        if attempt < least || attempt > least.saturating_add(self.slack) {
            return Err(Kind::Miscounted);
        }
        if record.now() < due_ms {
            return Err(Kind::Early);
        }
        if self.due_ms.is_some_and(|due| due != due_ms) || due_ms > self.latest_due_ms {
            return Err(Kind::WrongDue);
        }
        Ok(())
    }

    /// The violation if a message exists although it should not.
    pub(crate) fn although(&self, gone: Gone, context: &Context<'_>) -> Kind {
        match gone {
            Gone::NeverPushed if context.refused_child => Kind::ChildOfRefusedAck,
            Gone::NeverPushed if context.refused => Kind::RefusedLeftTrace,
            Gone::NeverPushed => Kind::Unexpected,
            Gone::Acked => Kind::ClaimedAfterAck,
            Gone::Cancelled | Gone::Purged => Kind::FiredAfterCancel,
            Gone::Expired => Kind::GrantedExpired,
            Gone::Departed => Kind::InTwoPartitions,
            Gone::Vanished => Kind::Contradictions,
        }
    }

    fn allows_push(
        &self,
        push: &Push,
        verdict: Pushed,
        record: &Record,
        context: &Context<'_>,
    ) -> Result<(), Kind> {
        let stepped = context.epoch.stepped(self.remembered_seq, record.seq());
        let never = self.status == Status::Absent(Gone::NeverPushed);
        match verdict {
            Pushed::Created if self.is_there() => Err(Kind::Lost),
            Pushed::Created if self.has_made(push, record, context) => {
                Err(Kind::UnexplainedDuplicates)
            }
            Pushed::Moved if self.is_waiting() && push.conflict != Conflict::Keep => Ok(()),
            Pushed::Moved if never => Err(Kind::ApiLies),
            Pushed::Moved => Err(Kind::Contradictions),
            Pushed::Exists(_) if never && context.refused => Err(Kind::RefusedLeftTrace),
            Pushed::Exists(_) if never => Err(Kind::ApiLies),
            Pushed::Exists(state) => self.allows_state(state),
            Pushed::Finished if never => Err(Kind::ApiLies),
            Pushed::Finished if self.is_there() => Err(Kind::Contradictions),
            Pushed::Finished if !self.is_repeated(push, record, context) => Err(Kind::Lost),
            // The call found the message earlier, and is remembered until its own time limit.
            Pushed::Finished
                if self.remembered_ms.1.max(push.until_ms) <= record.now() && !stepped =>
            {
                Err(Kind::ApiLies)
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn allows_state(&self, state: State) -> Result<(), Kind> {
        let fits = match state {
            State::Scheduled | State::Ready => self.is_waiting(),
            State::Leased => self.status == Status::Leased,
            State::Dead => self.status == Status::Dead,
        };
        fits.then_some(()).ok_or(Kind::Contradictions)
    }

    fn allows_settle(
        &self,
        verb: Verb,
        verdict: Settled,
        (token, exceeds): (u64, bool),
        context: &Context<'_>,
    ) -> Result<(), Kind> {
        let current = self.status == Status::Leased && self.token == Some(token);
        let last = match verb {
            Verb::Retry => self.last_failure(context),
            _ => Some(false),
        };
        let (dies, drops) = (exceeds && !self.expiry.drops(), self.expiry.drops());
        match verdict {
            Settled::Done | Settled::Dead | Settled::Dropped if !current => {
                Err(Kind::StaleTokensAccepted)
            }
            Settled::Done if last == Some(true) || exceeds => Err(Kind::WrongDeaths),
            Settled::Dead if last == Some(false) && !dies => Err(Kind::WrongDeaths),
            Settled::Dropped if last == Some(true) || !exceeds || !drops => Err(Kind::WrongDeaths),
            Settled::Lost if current => Err(Kind::LeasesCutShort),
            Settled::Lost if !self.is_there() => Err(Kind::Contradictions),
            Settled::Gone if self.is_there() => Err(Kind::Lost),
            _ => Ok(()),
        }
    }

    fn allows_change(
        &self,
        verb: Verb,
        verdict: Changed,
        record: &Record,
        context: &Context<'_>,
    ) -> Result<(), Kind> {
        let never = self.status == Status::Absent(Gone::NeverPushed);
        match (verb, verdict) {
            (_, Changed::Refused | Changed::Unknown) => Ok(()),
            (_, Changed::Absent) if self.is_there() => Err(Kind::Lost),
            (Verb::Cancel, Changed::Absent) => {
                let stepped = context.epoch.stepped(self.remembered_seq, record.seq());
                let forgotten = self.remembered_ms.0 <= record.now() || stepped;
                let cancelled = self.status == Status::Absent(Gone::Cancelled);
                if cancelled && !forgotten {
                    Err(Kind::Contradictions)
                } else {
                    Ok(())
                }
            }
            (_, Changed::Absent) => Ok(()),
            (Verb::Cancel, Changed::Done) => match self.status {
                Status::Waiting | Status::Dead => Ok(()),
                Status::Leased => Err(Kind::FiredAfterCancel),
                Status::Absent(Gone::NeverPushed) => Err(Kind::ApiLies),
                Status::Absent(Gone::Acked | Gone::Expired) => Err(Kind::Contradictions),
                // The settlement is a repetition within the deduplication window.
                Status::Absent(_) => Ok(()),
            },
            (Verb::Requeue, Changed::Done) if self.status == Status::Dead => Ok(()),
            (Verb::Reschedule | Verb::RunNow, Changed::Done) if self.is_waiting() => Ok(()),
            (Verb::Reschedule, Changed::Conflict) | (Verb::RunNow, Changed::Already)
                if self.is_waiting() =>
            {
                Ok(())
            }
            (_, Changed::Is(state)) if !never => self.allows_state(state),
            _ if never && context.refused => Err(Kind::RefusedLeftTrace),
            _ if never => Err(Kind::ApiLies),
            _ => Err(Kind::Contradictions),
        }
    }

    fn allows_left(
        &self,
        state: State,
        counts: (u32, u32),
        context: &Context<'_>,
    ) -> Result<(), Kind> {
        match (self.status, state) {
            (Status::Absent(gone @ Gone::NeverPushed), _) => {
                return Err(self.although(gone, context));
            }
            (Status::Absent(_), _) => return Err(Kind::Unexpected),
            (Status::Dead, State::Scheduled | State::Ready | State::Leased) => {
                return Err(Kind::TwoStates);
            }
            (_, State::Dead) if self.status != Status::Dead => return Err(Kind::WrongDeaths),
            _ => self.allows_state(state)?,
        }
        let fits = self.failures == counts.0
            && (self.crashes..=self.crashes.saturating_add(self.slack)).contains(&counts.1);
        fits.then_some(()).ok_or(Kind::Miscounted)
    }
}
