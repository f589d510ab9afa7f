//! The possible effects of unanswered calls on an id.

use crate::check::context::Context;
use crate::check::message::hypothesis::{Gone, Hypothesis, Status};
use crate::check::record::{Conflict, Push, Record, Time, What};
use crate::check::verdict::Cause;
use crate::history::Verb;

/// The most states that are followed for one id.
const LIVES: usize = 4_096;
const REPEAT_MS: u64 = 12_000;

/// The bit of an unanswered call in `Hypothesis::used`. Calls beyond the number of bits have none.
pub(crate) fn bit(place: usize) -> u64 {
    u32::try_from(place)
        .ok()
        .and_then(|place| 1_u64.checked_shl(place))
        .unwrap_or(0)
}

/// Adds every state that unanswered calls may have led to before `next`; `false` if there are too
/// many.
pub(crate) fn spread(
    lives: &mut Vec<Hypothesis>,
    unknown: &[Record],
    next: &Record,
    context: &Context<'_>,
) -> bool {
    if !unknown.iter().any(|call| call.asked_us < next.answered_us) {
        return true;
    }
    let (mut done, mut more) = (0, Vec::new());
    while let Some(life) = lives.get(done).copied() {
        life.reaped(next, context, &mut more);
        for (place, call) in unknown.iter().enumerate() {
            // A call that was sent after the next answer cannot have been applied before it.
            if call.asked_us < next.answered_us {
                life.perhaps(call, bit(place), next, context, &mut more);
            }
        }
        for life in more.drain(..) {
            if !lives.contains(&life) {
                lives.push(life);
            }
        }
        if lives.len() > LIVES {
            return false;
        }
        done += 1;
    }
    true
}

/// Adds the states after hidden claims and the expiry of their leases, before `next`; `false` if
/// there are too many.
pub(crate) fn hide(lives: &mut Vec<Hypothesis>, next: &Record, context: &Context<'_>) -> bool {
    let (mut done, mut more) = (0, Vec::new());
    while let Some(life) = lives.get(done).copied() {
        life.unasked(next, context, &mut more);
        for life in more.drain(..) {
            if !lives.contains(&life) {
                lives.push(life);
            }
        }
        if lives.len() > LIVES {
            return false;
        }
        done += 1;
    }
    true
}

impl Hypothesis {
    /// The state if this unanswered call was applied before `next`: once, in its time, and by a
    /// change that no answered call made.
    fn perhaps(
        &self,
        call: &Record,
        bit: u64,
        next: &Record,
        context: &Context<'_>,
        lives: &mut Vec<Self>,
    ) {
        if self.used & bit != 0 {
            return;
        }
        let mut gaps = context.epoch.gaps(self.seq, next.seq()).iter();
        let Some(gap) = gaps.find(|gap| gap.fits(call.asked_us, call.answered_us)) else {
            return;
        };
        let mut life = *self;
        life.slacken(next, context);
        life.used |= bit;
        // A clock that has gone back since gives no bound for that time.
        life.now_ms = if context.epoch.stepped(self.seq, next.seq()) {
            0
        } else {
            self.now_ms.max(gap.after_ms)
        };
        (life.seq, life.answered_us) = (gap.seq, gap.before_us);
        match call.what {
            What::Push { push, .. } => {
                lives.extend(life.perhaps_pushed(&push, call, next, context))
            }
            What::Move { step, item } => {
                lives.extend(life.perhaps_moved(step, context.moved(item)))
            }
            What::Settle {
                verb, token, time, ..
            } if self.status == Status::Leased && self.token == Some(token) => {
                life.perhaps_settled(verb, time, (call, next), context, lives);
            }
            What::Change {
                verb: Verb::Cancel, ..
            } if matches!(self.status, Status::Waiting | Status::Dead) => {
                life.leave(Gone::Cancelled);
                life.remember(life.now_ms + REPEAT_MS, u64::MAX, life.seq);
                lives.push(life);
            }
            What::Change {
                verb: Verb::Requeue,
                ..
            } if self.status == Status::Dead => {
                life.wait_at_least(life.now_ms);
                life.count_anew(Some(Cause::Requeue));
                life.requeued(None, lives);
            }
            What::Change {
                verb: Verb::Reschedule,
                time,
                expected,
                ..
            } if self.is_waiting() => {
                // A reschedule with an expected due time leaves a message with another one.
                if self
                    .score_ms
                    .zip(expected.due_ms())
                    .is_some_and(|(score_ms, expected)| score_ms != expected)
                {
                    return;
                }
                life.wait_for(time, call);
                (life.put_off, life.remembered_ms.1) = (true, u64::MAX);
                life.expires_by_ms = 0;
                lives.push(life);
            }
            What::Change {
                verb: Verb::RunNow, ..
            } if self.is_waiting() => {
                life.wait_at_least(life.now_ms);
                life.remembered_ms.1 = u64::MAX;
                lives.push(life);
            }
            _ => {}
        }
    }

    /// The due time if it was given absolutely; else the earliest that its delay allows.
    fn wait_for(&mut self, time: Time, call: &Record) {
        let due_ms = time.due_ms(self.now_ms);
        if time.delay_ms().is_some() {
            self.wait_at_least(due_ms)
        } else {
            self.wait_until(due_ms)
        }
        self.put_floor(time, call);
    }

    fn perhaps_pushed(
        &self,
        push: &Push,
        call: &Record,
        next: &Record,
        context: &Context<'_>,
    ) -> Option<Self> {
        let stepped = context
            .epoch
            .stepped(self.remembered_seq.min(self.seq), next.seq());
        if push.until_ms > 0 && push.until_ms <= self.now_ms && !stepped {
            return None;
        }
        let mut life = *self;
        match self.status {
            Status::Absent(gone) => {
                life.pushed(push, 0);
                life.again = (gone == Gone::Acked).then_some(Cause::UnknownOutcome);
                let near = push
                    .time
                    .delay_ms()
                    .map_or(push.time.due_ms(0) <= self.now_ms + REPEAT_MS, |ms| {
                        ms < REPEAT_MS
                    });
                let least = if near {
                    push.until_ms.max(self.remembered_ms.0)
                } else {
                    self.remembered_ms.0
                };
                life.remember(least, push.until_ms.max(self.remembered_ms.1), self.seq);
            }
            Status::Waiting if push.conflict != Conflict::Keep => {
                life.expires_by_ms = 0;
                if push.conflict == Conflict::Replace {
                    life.pushed(push, 0);
                }
                life.remembered_ms.1 = u64::MAX;
            }
            _ => return None,
        }
        life.wait_for(push.time, call);
        life.put_off = self.is_waiting();
        Some(life)
    }

    fn perhaps_settled(
        mut self,
        verb: Verb,
        time: Time,
        (call, next): (&Record, &Record),
        context: &Context<'_>,
        lives: &mut Vec<Self>,
    ) {
        match verb {
            Verb::Ack => self.leave(Gone::Acked),
            Verb::Bury => (self.status, self.token) = (Status::Dead, None),
            Verb::Again => {
                self.expires_by_ms = 0;
                self.wait_for(time, call);
                self.count_anew(Some(Cause::Again));
                self.put_off = true;
            }
            Verb::Snooze => {
                if self.surely_exceeds(verb, time, next, context, lives) {
                    return;
                }
                self.fix_deadline();
                self.wait_for(time, call);
                (self.again, self.put_off) = (Some(Cause::Snooze), true);
            }
            Verb::Retry => {
                let last = self.last_failure(context);
                self.failures += 1;
                if last != Some(false) {
                    let mut dead = self;
                    (dead.status, dead.token) = (Status::Dead, None);
                    lives.push(dead);
                }
                if last == Some(true) || self.surely_exceeds(verb, time, next, context, lives) {
                    return;
                }
                self.fix_deadline();
                self.wait_for(time, call);
                (self.again, self.put_off) = (Some(Cause::Retry), true);
            }
            Verb::Release | Verb::Throttle => {
                // The due time stays, unless the clock went back before it: then it is that time or
                // an earlier one.
                let due_ms = self.due_ms;
                self.wait_at_least(0);
                self.due_ms = due_ms.filter(|due_ms| *due_ms <= self.now_ms);
                self.latest_due_ms = due_ms.unwrap_or(u64::MAX);
                (self.again, self.put_off) = (Some(Cause::Release), false);
            }
            _ => return,
        }
        lives.push(self);
    }
}
