//! Expiry: a message ends at a claim, or at a retry or snooze beyond its deadline.

use crate::check::context::Context;
use crate::check::message::hypothesis::{Gone, Hypothesis, Status};
use crate::check::message::options::Expiry;
use crate::check::record::{Record, Time};
use crate::history::Verb;

impl Hypothesis {
    /// The last ms at which an attempt may start, if the message has this due time.
    pub(crate) fn deadline_for(&self, due_ms: u64) -> Option<u64> {
        match self.expires_by_ms {
            0 => self.expiry.deadline_ms(due_ms),
            fixed_ms => Some(fixed_ms),
        }
    }

    /// The earliest possible deadline.
    fn earliest_deadline_ms(&self) -> Option<u64> {
        self.deadline_for(self.due_ms.unwrap_or(0))
    }

    /// Fixes the deadline: the due time that a retry or snooze gives does not move it.
    pub(crate) fn fix_deadline(&mut self) {
        if self.expiry.is_relative() {
            self.expires_by_ms = self.earliest_deadline_ms().unwrap_or(0);
        }
    }

    /// Whether a retry or snooze asks for a due time beyond the deadline, at this time of the
    /// server.
    pub(crate) fn exceeds(&self, verb: Verb, time: Time, now_up: u64) -> bool {
        matches!(verb, Verb::Retry | Verb::Snooze)
            && self
                .earliest_deadline_ms()
                .is_some_and(|deadline_ms| time.due_ms(now_up) > deadline_ms)
    }

    /// Expires the message: it is dropped, or becomes dead.
    pub(crate) fn expire(&mut self) {
        self.expired += 1;
        if self.expiry.drops() {
            self.leave(Gone::Expired);
        } else {
            (self.status, self.token, self.score_ms) = (Status::Dead, None, None);
        }
    }

    /// If the deadline has passed before this record, a claim may have expired the message: adds
    /// that state.
    pub(crate) fn expired_before(
        &self,
        record: &Record,
        context: &Context<'_>,
        lives: &mut Vec<Self>,
    ) {
        let Some(deadline_ms) = self.earliest_deadline_ms().filter(|_| self.is_waiting()) else {
            return;
        };
        // Records of remaining messages have no time of their own: use the epoch's latest one.
        let now_ms = record.now().min(context.epoch.latest_ms);
        if now_ms > deadline_ms || context.epoch.stepped(self.seq, record.seq()) {
            let mut life = *self;
            life.expire();
            life.now_ms = self.now_ms.max(deadline_ms + 1);
            lives.push(life);
        }
    }

    /// A requeue restarts a relative deadline, and removes a fixed one that has passed. `now_ms` is
    /// the time of the requeue, if it is known.
    pub(crate) fn requeued(mut self, now_ms: Option<u64>, lives: &mut Vec<Self>) {
        self.expires_by_ms = 0;
        let at_ms = self.expiry.deadline_ms(0);
        let at_ms = at_ms.filter(|_| !self.expiry.is_relative());
        let without = Self {
            expiry: Expiry::NONE,
            ..self
        };
        match (at_ms, now_ms) {
            (None, _) => lives.push(self),
            (Some(at_ms), Some(now_ms)) if at_ms < now_ms => lives.push(without),
            (Some(_), Some(_)) => lives.push(self),
            (Some(_), None) => lives.extend([self, without]),
        }
    }

    /// Whether an unanswered retry or snooze, applied before `next`, certainly asked for a due time
    /// beyond the deadline. If it only may have, adds the resulting state.
    pub(crate) fn surely_exceeds(
        &self,
        verb: Verb,
        time: Time,
        next: &Record,
        context: &Context<'_>,
        lives: &mut Vec<Self>,
    ) -> bool {
        let stepped = context.epoch.stepped(self.seq, next.seq());
        let exceeds = |now_up| self.exceeds(verb, time, now_up);
        if self.expiry != Expiry::NONE && (stepped || exceeds(next.now_up())) {
            let mut life = *self;
            life.expire();
            lives.push(life);
        }
        !stepped && exceeds(self.now_ms)
    }
}
