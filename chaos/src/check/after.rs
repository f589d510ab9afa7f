//! What becomes of an id by an answer.

use super::context::Context;
use super::life::{Gone, Life, Place};
use super::record::{Changed, Conflict, Push, Pushed, Record, Settled, Time, What};
use super::verdict::Cause;
use crate::history::Verb;

/// How long an id that is gone early is remembered.
const REPEAT_MS: u64 = 12_000;

impl Life {
    /// Also if that should not have been answered: it is what has to be reckoned with from then on.
    pub(super) fn after(&self, record: &Record, context: &Context<'_>) -> Self {
        let mut life = *self;
        life.slack = self.slack.saturating_add(self.hidden_crashes(record, context));
        match record.what {
            What::Push { push, verdict } => life.after_push(&push, verdict, record, context),
            What::Claim { token, due_ms, lease_ms, version, attempt } => {
                if !life.is_there() {
                    life.failures = 0;
                }
                (life.place, life.token, life.due_ms) = (Place::Leased, Some(token), Some(due_ms));
                life.deadline_ms = record.now_up() + u64::from(lease_ms);
                life.version = u16::try_from(version).unwrap_or(u16::MAX);
                let crashes = attempt.saturating_sub(1 + life.failures);
                life.hidden += crashes.saturating_sub(life.crashes).min(life.slack);
                (life.crashes, life.slack) = (crashes, 0);
                (life.again, life.floor_us) = (None, (0, 0));
                life.changed_by(record);
            }
            What::Settle { verb, verdict, time, told_ms, .. } => {
                life.after_settle(verb, verdict, time, told_ms, record);
            }
            What::Change { verb, verdict, time, told_ms } => life.after_change(verb, verdict, time, told_ms, record),
            What::Seen(_) | What::Left { .. } => {}
        }
        // Between two answers that changed nothing the same crashes would be counted twice.
        if life.now_ms == self.now_ms && life.seq == self.seq {
            life.slack = self.slack;
        }
        life
    }

    /// An answer that says where it is does not say that it was there all the time: only changes count.
    fn changed_by(&mut self, record: &Record) {
        (self.seq, self.now_ms) = (record.seq(), record.now());
    }

    fn after_push(&mut self, push: &Push, verdict: Pushed, record: &Record, context: &Context<'_>) {
        let due_ms = push.time.due_ms(record.now_up());
        let near = due_ms <= record.now() + REPEAT_MS;
        match verdict {
            Pushed::Created => {
                let until_ms = if near { push.until_ms } else { 0 };
                let stepped = context.epoch.stepped(self.remembered_seq, record.seq());
                // What is remembered still is remembered on.
                let (least, most) = if stepped { (0, self.remembered_ms.1) } else { self.remembered_ms };
                let (used, hidden, swept) = (self.used, self.hidden, self.swept);
                *self = Self { now_ms: self.now_ms, used, hidden, swept, ..Self::NONE };
                self.remember(until_ms.max(least), until_ms.max(most), record.seq());
                self.pushed(push, due_ms);
            }
            Pushed::Moved => {
                (self.put_off, self.due_ms) = (true, Some(due_ms));
                if push.conflict == Conflict::Replace {
                    self.pushed(push, due_ms);
                } else {
                    self.wait_until(due_ms);
                }
                if near {
                    let until_ms = record.now_up() + REPEAT_MS;
                    self.remember(until_ms, until_ms, record.seq());
                }
            }
            _ => return,
        }
        self.changed_by(record);
        self.put_floor(push.time, record);
    }

    /// As it is from the first.
    pub(super) fn pushed(&mut self, push: &Push, due_ms: u64) {
        self.wait_until(due_ms);
        self.count_anew(None);
        (self.max_attempts, self.version) = (push.max_attempts, push.version);
    }

    /// A delay counts from when it was asked for at the earliest.
    pub(super) fn put_floor(&mut self, time: Time, record: &Record) {
        if let Some(delay_ms) = time.delay_ms() {
            self.floor_us = (record.asked_us, record.asked_us + delay_ms * 1_000);
        }
    }

    fn after_settle(&mut self, verb: Verb, verdict: Settled, time: Time, told_ms: u64, record: &Record) {
        match (verb, verdict) {
            (_, Settled::Gone) if self.is_there() => return self.leave(Gone::Vanished),
            (_, Settled::Dead) => {
                (self.place, self.token, self.failures) = (Place::Dead, None, self.failures + 1);
            }
            (_, Settled::Gone | Settled::Lost | Settled::Refused | Settled::Unknown) => return,
            (Verb::Extend, _) => {
                self.deadline_ms = self.deadline_ms.max(told_ms);
            }
            (Verb::Ack, _) => self.leave(Gone::Acked),
            (Verb::Bury, _) => (self.place, self.token) = (Place::Dead, None),
            (Verb::Again, _) => {
                self.wait_until(told_ms);
                self.count_anew(Some(Cause::Again));
                self.put_off = true;
            }
            (Verb::Retry, _) => {
                self.wait_until(told_ms);
                (self.failures, self.again, self.put_off) = (self.failures + 1, Some(Cause::Retry), true);
            }
            _ => {
                // Its due is past, unless the clock went back.
                let due_ms = self.due_ms.unwrap_or(0);
                if due_ms <= record.now() {
                    self.wait_until(due_ms)
                } else {
                    self.wait_at_least(0)
                }
                (self.again, self.put_off) = (Some(Cause::Release), false);
            }
        }
        self.changed_by(record);
        self.put_floor(time, record);
    }

    fn after_change(&mut self, verb: Verb, verdict: Changed, time: Time, told_ms: u64, record: &Record) {
        let until_ms = record.now_up() + REPEAT_MS;
        match (verb, verdict) {
            (_, Changed::Absent) if self.is_there() => return self.leave(Gone::Vanished),
            // A repetition of it: nothing changes.
            (Verb::Cancel, Changed::Done) if !self.is_there() => return,
            (Verb::Cancel, Changed::Done) => {
                self.leave(Gone::Cancelled);
                self.remember(until_ms, until_ms, record.seq());
            }
            (Verb::Requeue, Changed::Done) => {
                self.wait_until(record.now());
                self.count_anew(Some(Cause::Requeue));
            }
            // It had that due already; nothing changed.
            (Verb::Reschedule, Changed::Done) if self.not_before_ms == told_ms && self.due_ms == Some(told_ms) => {
                return;
            }
            (Verb::Reschedule | Verb::RunNow, Changed::Done) => {
                // One that waits after a crash for a time that nobody told may have had that due already.
                let sure = self.due_ms == Some(self.not_before_ms);
                self.wait_until(told_ms);
                self.due_ms = self.due_ms.filter(|_| sure);
                self.put_off = true;
                if told_ms <= record.now() + REPEAT_MS {
                    let least = if sure { until_ms } else { self.remembered_ms.0 };
                    self.remember(least, until_ms, record.seq());
                }
            }
            _ => return,
        }
        self.changed_by(record);
        self.put_floor(time, record);
    }
}
