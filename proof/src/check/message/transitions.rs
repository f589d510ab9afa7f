//! The state of an id after an answer.

use crate::check::context::Context;
use crate::check::message::hypothesis::{Gone, Hypothesis, Status};
use crate::check::record::{Changed, Conflict, Push, Pushed, Record, Settled, Time, What};
use crate::check::verdict::Cause;
use crate::history::Verb;

/// How long an id is remembered after its message ended before its due time.
const REPEAT_MS: u64 = 12_000;

impl Hypothesis {
    /// The state after this answer. The effect of a wrong answer counts as well: the checker goes
    /// on from it.
    pub(crate) fn after(&self, record: &Record, context: &Context<'_>) -> Self {
        let mut life = *self;
        life.slacken(record, context);
        match record.what {
            What::Push { push, verdict } => life.after_push(&push, verdict, record, context),
            What::Claim {
                token,
                due_ms,
                lease_ms,
                version,
                attempt,
                bytes,
                options,
                ..
            } => {
                if !life.is_there() {
                    life.failures = 0;
                }
                (life.status, life.token, life.due_ms) =
                    (Status::Leased, Some(token), Some(due_ms));
                life.deadline_ms = record.now_up() + u64::from(lease_ms);
                (life.version, life.bytes) = (u16::try_from(version).unwrap_or(u16::MAX), bytes);
                (life.options, life.score_ms) = (options, None);
                let crashes = attempt.saturating_sub(1 + life.failures);
                life.take_slack(crashes, record, context);
                (life.again, life.floor_us) = (None, (0, 0));
                life.changed_by(record);
            }
            What::Settle {
                verb,
                verdict,
                time,
                answered_ms,
                ..
            } => {
                life.after_settle(verb, verdict, time, answered_ms, record);
            }
            What::Change {
                verb,
                verdict,
                time,
                alone,
                answered_ms,
                ..
            } => {
                // The call certainly moved the message, if no other call can have made the change
                // that its answer shows.
                let sure = alone && !context.epoch.is_made_by_another(record.seq());
                life.after_change(verb, verdict, (time, answered_ms, sure), record);
            }
            What::Move { step, item } => {
                if let Some(moved) = context.moved(item) {
                    life.after_move(step, moved, record);
                }
            }
            What::ReadState(_) => {}
            // The reply to its claim was lost.
            What::Held {
                token,
                due_ms,
                deadline_ms,
                attempt,
                ..
            } => {
                (life.token, life.due_ms) = (Some(token), Some(due_ms));
                life.deadline_ms = deadline_ms;
                let crashes = attempt.saturating_sub(1 + life.failures);
                life.take_slack(crashes, record, context);
            }
            What::Left { crashes, .. } => life.take_slack(crashes, record, context),
        }
        // Between two answers without a change, count the same crashes only once.
        if life.now_ms == self.now_ms && life.seq == self.seq {
            life.slack = self.slack;
        }
        life
    }

    /// More leases that no process knows may have expired before this record.
    pub(crate) fn slacken(&mut self, record: &Record, context: &Context<'_>) {
        if self.slack == 0 {
            self.slack_seq = self.seq;
        }
        self.slack = self
            .slack
            .saturating_add(self.hidden_crashes(record, context));
    }

    /// Takes over the number of crashes in the answer: those beyond the known ones were such
    /// leases.
    fn take_slack(&mut self, crashes: u32, record: &Record, context: &Context<'_>) {
        self.hide(
            crashes.saturating_sub(self.crashes).min(self.slack),
            self.slack_seq,
            record.seq(),
            context,
        );
        (self.crashes, self.slack) = (crashes, 0);
    }

    /// Notes the last change. An answer about the state alone does not show since when the message
    /// had it: only changes count.
    pub(crate) fn changed_by(&mut self, record: &Record) {
        (self.seq, self.now_ms, self.answered_us) =
            (record.seq(), record.now(), record.answered_us);
        if !self.is_there() {
            self.gone_us = Some(record.answered_us);
        }
    }

    fn after_push(&mut self, push: &Push, verdict: Pushed, record: &Record, context: &Context<'_>) {
        let due_ms = push.time.due_ms(record.now_up());
        let near = due_ms <= record.now() + REPEAT_MS;
        match verdict {
            Pushed::Created => {
                let until_ms = if near { push.until_ms } else { 0 };
                let stepped = context.epoch.stepped(self.remembered_seq, record.seq());
                // An id that is already remembered longer stays remembered.
                let (least, most) = if stepped {
                    (0, self.remembered_ms.1)
                } else {
                    self.remembered_ms
                };
                let Self {
                    now_ms,
                    used,
                    hidden,
                    chain,
                    swept,
                    expired,
                    arrived,
                    ..
                } = *self;
                *self = Self {
                    now_ms,
                    used,
                    hidden,
                    chain,
                    swept,
                    expired,
                    arrived,
                    ..Self::NONE
                };
                self.remember(until_ms.max(least), until_ms.max(most), record.seq());
                self.pushed(push, due_ms);
            }
            Pushed::Moved => {
                (self.put_off, self.due_ms) = (true, Some(due_ms));
                if push.conflict == Conflict::Replace {
                    self.pushed(push, due_ms);
                } else {
                    self.wait_until(due_ms);
                    self.expires_by_ms = 0;
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

    /// Sets the state before the first record of the id.
    pub(crate) fn pushed(&mut self, push: &Push, due_ms: u64) {
        self.wait_until(due_ms);
        self.count_anew(None);
        (self.max_attempts, self.version) = (push.max_attempts, push.version);
        (self.bytes, self.options) = (push.bytes, push.options);
        (self.expiry, self.expires_by_ms) = (push.expiry, 0);
    }

    /// Sets the earliest time of a claim: a delay counts at the earliest from when the call was
    /// sent.
    pub(crate) fn put_floor(&mut self, time: Time, record: &Record) {
        if let Some(delay_ms) = time.delay_ms() {
            self.floor_us = (record.asked_us, record.asked_us + delay_ms * 1_000);
        }
    }

    fn after_settle(
        &mut self,
        verb: Verb,
        verdict: Settled,
        time: Time,
        answered_ms: u64,
        record: &Record,
    ) {
        match (verb, verdict) {
            (_, Settled::Gone) if self.is_there() => return self.leave(Gone::Vanished),
            (_, Settled::Dead) => {
                self.expired += u32::from(self.exceeds(verb, time, record.now_up()));
                self.failures += u32::from(verb == Verb::Retry);
                (self.status, self.token, self.score_ms) = (Status::Dead, None, Some(record.now()));
            }
            (_, Settled::Dropped) => {
                self.expired += 1;
                self.leave(Gone::Expired);
            }
            (_, Settled::Gone | Settled::Lost | Settled::Refused | Settled::Unknown) => return,
            (Verb::Extend, _) => {
                self.deadline_ms = self.deadline_ms.max(answered_ms);
                return self.changed_by(record);
            }
            (Verb::Ack, _) => self.leave(Gone::Acked),
            (Verb::Bury, _) => {
                (self.status, self.token, self.score_ms) = (Status::Dead, None, Some(record.now()));
            }
            (Verb::Again, _) => {
                self.wait_until(answered_ms);
                self.expires_by_ms = 0;
                self.count_anew(Some(Cause::Again));
                self.put_off = true;
            }
            (Verb::Snooze, _) => {
                self.fix_deadline();
                self.wait_until(answered_ms);
                (self.again, self.put_off) = (Some(Cause::Snooze), true);
            }
            (Verb::Retry, _) => {
                self.fix_deadline();
                self.wait_until(answered_ms);
                (self.failures, self.again, self.put_off) =
                    (self.failures + 1, Some(Cause::Retry), true);
            }
            _ => {
                // The due time is past, unless the clock went back.
                let due_ms = self.due_ms.unwrap_or(0);
                if due_ms <= record.now() {
                    self.wait_until(due_ms)
                } else {
                    self.wait_at_least(0)
                }
                let cause = match verb {
                    Verb::Throttle => Cause::Throttle,
                    _ => Cause::Release,
                };
                (self.again, self.put_off) = (Some(cause), false);
            }
        }
        self.changed_by(record);
        self.put_floor(time, record);
    }

    /// The state after a cancel, a move or a requeue. `sure`: if the message was moved, its due
    /// time was another one before.
    fn after_change(
        &mut self,
        verb: Verb,
        verdict: Changed,
        what: (Time, u64, bool),
        record: &Record,
    ) {
        let (time, answered_ms, sure) = what;
        let until_ms = record.now_up() + REPEAT_MS;
        match (verb, verdict) {
            (_, Changed::Absent) if self.is_there() => return self.leave(Gone::Vanished),
            // A repeated cancel changes nothing.
            (Verb::Cancel, Changed::Done) if !self.is_there() => return,
            (Verb::Cancel, Changed::Done) => {
                self.leave(Gone::Cancelled);
                self.remember(until_ms, until_ms, record.seq());
            }
            (Verb::Requeue, Changed::Done) => {
                self.wait_until(record.now());
                self.count_anew(Some(Cause::Requeue));
                let mut lives = Vec::new();
                self.requeued(Some(record.now()), &mut lives);
                *self = lives.pop().unwrap_or(*self);
            }
            // The answer names the due time that the message already has.
            (_, Changed::Conflict) => {
                (self.score_ms, self.not_before_ms) = (Some(answered_ms), answered_ms);
                return;
            }
            // The message already had that due time: nothing changed.
            (Verb::Reschedule, Changed::Done) if self.score_ms == Some(answered_ms) => return,
            (Verb::Reschedule | Verb::RunNow, Changed::Done) => {
                // A message in back-off after a crash may already have had that due time.
                let sure = sure || verb == Verb::RunNow || self.score_ms.is_some();
                self.wait_until(answered_ms);
                self.due_ms = self.due_ms.filter(|_| sure);
                self.put_off = true;
                if verb == Verb::Reschedule {
                    self.expires_by_ms = 0;
                }
                if answered_ms <= record.now() + REPEAT_MS {
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
