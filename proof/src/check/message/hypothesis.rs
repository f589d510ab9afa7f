//! A hypothesis: one possible state of one id; and the changes that a queue makes without a call
//! that names the id.

use crate::check::context::Context;
use crate::check::message::options::Expiry;
use crate::check::missing::MissingChange;
use crate::check::record::Record;
use crate::check::verdict::Cause;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    Absent(Gone),
    /// Scheduled or ready.
    Waiting,
    Leased,
    Dead,
}

/// Why a message does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gone {
    NeverPushed,
    Acked,
    Cancelled,
    /// A purge or a trim took the message.
    Purged,
    /// The message was dropped because it expired.
    Expired,
    /// It is on its way to another partition, or there.
    Departed,
    /// The message should exist. The violation is already counted.
    Vanished,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Hypothesis {
    pub(crate) status: Status,
    /// The token of the current claim, if a process knows it.
    pub(crate) token: Option<u64>,
    pub(crate) deadline_ms: u64,
    /// No claim can come before this time of the server's clock.
    pub(crate) not_before_ms: u64,
    /// The due time that a claim returns, if it is certain.
    pub(crate) due_ms: Option<u64>,
    /// A claim returns no later due time than this.
    pub(crate) latest_due_ms: u64,
    /// The score by which the message waits, if it is certain. After a second crash it differs from
    /// the due time.
    pub(crate) score_ms: Option<u64>,
    /// Whether its due time was moved after its push.
    pub(crate) put_off: bool,
    /// By the clock of the processes: no claim can come before this time; and the time from which
    /// on that holds.
    pub(crate) floor_us: (u64, u64),
    pub(crate) failures: u32,
    pub(crate) crashes: u32,
    /// The message's own limit; 0: it has the queue's.
    pub(crate) max_attempts: u32,
    pub(crate) version: u16,
    pub(crate) bytes: u32,
    pub(crate) options: u32,
    pub(crate) expiry: Expiry,
    /// The deadline that a retry or snooze has fixed; 0 if none has.
    pub(crate) expires_by_ms: u64,
    /// The number of messages with this id that expired.
    pub(crate) expired: u32,
    /// Why the message may be delivered once more.
    pub(crate) again: Option<Cause>,
    /// When an answer reported the end of the message, by the clock of the processes.
    pub(crate) gone_us: Option<u64>,
    /// The id is remembered at least until the first time, and at most until the second, in ms.
    pub(crate) remembered_ms: (u64, u64),
    /// The `seq` from which on the id is remembered; below, that of the last change.
    pub(crate) remembered_seq: u64,
    pub(crate) seq: u64,
    /// The least time of the server at which this state began; below, the time of that answer by
    /// the clock of the processes.
    pub(crate) now_ms: u64,
    pub(crate) answered_us: u64,
    /// The unanswered calls that this hypothesis uses, one bit each; below, the number of hidden
    /// claims and their list.
    pub(crate) used: u64,
    pub(crate) hidden: u32,
    pub(crate) chain: u32,
    /// The number of messages with this id that purges took.
    pub(crate) swept: u32,
    /// The most further crashes that may have been charged since this `seq`, by leases that no
    /// process knows.
    pub(crate) slack: u32,
    pub(crate) slack_seq: u64,
    /// The batch in which it departed, arrived or came back last, 0 if no answer has shown it;
    /// below, the last batch that arrived or came back.
    pub(crate) batch: u64,
    pub(crate) arrived: u64,
}

impl Hypothesis {
    pub(crate) const NONE: Self = Self {
        status: Status::Absent(Gone::NeverPushed),
        token: None,
        deadline_ms: 0,
        not_before_ms: 0,
        due_ms: None,
        latest_due_ms: u64::MAX,
        score_ms: None,
        put_off: false,
        floor_us: (0, 0),
        failures: 0,
        crashes: 0,
        max_attempts: 0,
        version: 0,
        bytes: 0,
        options: 0,
        expiry: Expiry::NONE,
        expires_by_ms: 0,
        expired: 0,
        again: None,
        gone_us: None,
        remembered_ms: (0, 0),
        remembered_seq: 0,
        seq: 0,
        now_ms: 0,
        answered_us: 0,
        used: 0,
        hidden: 0,
        chain: 0,
        swept: 0,
        slack: 0,
        slack_seq: 0,
        batch: 0,
        arrived: 0,
    };

    pub(crate) fn is_there(&self) -> bool {
        !matches!(self.status, Status::Absent(_))
    }

    pub(crate) fn is_waiting(&self) -> bool {
        self.status == Status::Waiting
    }

    /// Makes the message wait until a certain time.
    pub(crate) fn wait_until(&mut self, due_ms: u64) {
        (self.status, self.token) = (Status::Waiting, None);
        (self.not_before_ms, self.due_ms, self.score_ms) = (due_ms, Some(due_ms), Some(due_ms));
        (self.latest_due_ms, self.floor_us) = (u64::MAX, (0, 0));
    }

    /// Makes the message wait at least until this time.
    pub(crate) fn wait_at_least(&mut self, not_before_ms: u64) {
        self.wait_until(not_before_ms);
        (self.due_ms, self.score_ms) = (None, None);
    }

    pub(crate) fn remember(&mut self, at_least_ms: u64, at_most_ms: u64, seq: u64) {
        self.remembered_ms = (at_least_ms, at_most_ms);
        self.remembered_seq = seq;
    }

    pub(crate) fn leave(&mut self, why: Gone) {
        (self.status, self.token, self.again, self.gone_us) =
            (Status::Absent(why), None, None, None);
        (self.failures, self.crashes) = (0, 0);
    }

    pub(crate) fn count_anew(&mut self, again: Option<Cause>) {
        (self.failures, self.crashes, self.slack, self.again) = (0, 0, 0, again);
    }

    /// The gaps in `seq` in which an unanswered claim may have leased this message: between its
    /// last known change and this record.
    fn hidden_grants<'a>(
        &self,
        record: &Record,
        context: &'a Context<'_>,
    ) -> impl Iterator<Item = (&'a MissingChange, u64)> {
        let stepped = context.epoch.stepped(self.seq, record.seq());
        let not_before_ms = if stepped { 0 } else { self.not_before_ms };
        let gaps = if self.is_waiting() {
            context.epoch.gaps(self.seq, record.seq())
        } else {
            &[]
        };
        gaps.iter()
            .filter(move |gap| gap.before_ms >= not_before_ms)
            .filter_map(|gap| gap.lease_ms.map(|lease_ms| (gap, lease_ms)))
    }

    /// How often lost claims may have taken the waiting message before this record.
    pub(crate) fn hidden_crashes(&self, record: &Record, context: &Context<'_>) -> u32 {
        let stepped = context.epoch.stepped(self.seq, record.seq());
        let begun_ms = self.now_ms.max(self.not_before_ms);
        let (mut grants, mut free_ms) = (0, begun_ms);
        for (gap, lease_ms) in self.hidden_grants(record, context) {
            // The next hidden lease begins after the last one has expired.
            let over_ms = free_ms.max(gap.after_ms) + lease_ms;
            if stepped || over_ms <= record.now() && free_ms <= gap.before_ms {
                (grants, free_ms) = (grants + 1, over_ms);
            }
        }
        grants
    }

    /// Explains an answer by hidden claims between two changes.
    pub(crate) fn hide(&mut self, count: u32, after: u64, until: u64, context: &Context<'_>) {
        for _ in 0..count {
            self.chain = context.chains.add(self.chain, (after, until));
        }
        self.hidden += count;
    }

    /// Whether one more failure is the last one; `None` if the limit is not certain.
    pub(crate) fn last_failure(&self, context: &Context<'_>) -> Option<bool> {
        let limit = match self.max_attempts {
            0 => context.queue.max_attempts()?,
            own => u64::from(own),
        };
        Some(u64::from(self.failures) + 1 >= limit)
    }

    /// Adds the states that the queue itself, a purge or an unanswered call may have led to before
    /// this record.
    pub(crate) fn unasked(&self, record: &Record, context: &Context<'_>, lives: &mut Vec<Self>) {
        match self.status {
            Status::Leased => self.reaped(record, context, lives),
            Status::Waiting => {
                // If the clock went back, it gives no bound for that time.
                let stepped = context.epoch.stepped(self.seq, record.seq());
                let earliest_ms = self.now_ms.max(self.not_before_ms);
                let granted_ms = |gap: &MissingChange| {
                    if stepped {
                        0
                    } else {
                        earliest_ms.max(gap.after_ms)
                    }
                };
                // The first change that may be the hidden claim, and the first one whose lease can
                // have expired.
                let first = self.hidden_grants(record, context).next();
                let shortest = self
                    .hidden_grants(record, context)
                    .min_by_key(|(gap, lease_ms)| granted_ms(gap) + lease_ms);
                let shortest = shortest.filter(|shortest| Some(shortest) != first.as_ref());
                for (gap, lease_ms) in first.into_iter().chain(shortest) {
                    let mut life = *self;
                    (life.status, life.token, life.deadline_ms) =
                        (Status::Leased, None, granted_ms(gap) + lease_ms);
                    (life.again, life.now_ms, life.score_ms) =
                        (Some(Cause::UnknownOutcome), granted_ms(gap), None);
                    life.hide(1, self.seq, record.seq(), context);
                    life.seq = gap.seq;
                    lives.push(life);
                }
            }
            Status::Dead => context
                .queue
                .operators
                .revived(self, record, context, lives),
            Status::Absent(_) => lives.extend(self.made_again(record, context)),
        }
        self.expired_before(record, context, lives);
        if self.may_be_trimmed(context) || self.may_be_replaced(record, context) {
            lives.push(Self {
                swept: self.swept,
                ..self.purged(record)
            });
        } else if context.queue.operators.may_purge(self, record, context) {
            lives.push(self.purged(record));
        }
    }

    pub(crate) fn may_be_trimmed(&self, context: &Context<'_>) -> bool {
        self.status == Status::Dead && context.queue.may_trim()
    }

    /// Adds the state after the expiry of the lease, if the lease may have expired.
    pub(crate) fn reaped(&self, record: &Record, context: &Context<'_>, lives: &mut Vec<Self>) {
        let stepped = context.epoch.stepped(self.seq, record.seq());
        if self.status != Status::Leased || record.now() < self.deadline_ms && !stepped {
            return;
        }
        let mut life = *self;
        life.crashes += 1;
        life.now_ms = self.now_ms.max(self.deadline_ms);
        life.token = None;
        let limit = context.queue.max_crashes();
        if limit.is_none_or(|limit| u64::from(life.crashes) <= limit) {
            let mut life = life;
            life.status = Status::Waiting;
            life.again = Some(
                self.again
                    .filter(|_| self.token.is_none())
                    .unwrap_or(Cause::LeaseRanOut),
            );
            // The message keeps its due time, unless the clock has put that into the future again.
            // Its earliest time has passed.
            let due_ms = self.due_ms.filter(|_| !stepped);
            life.wait_until(due_ms.unwrap_or(0));
            (life.due_ms, life.score_ms) = (due_ms, due_ms);
            if life.crashes > 1 {
                life.score_ms = None;
                let factor = 1_u64 << (life.crashes - 1).min(20);
                (life.not_before_ms, life.put_off) = (self.deadline_ms + 500 * factor, true);
            }
            lives.push(life);
        }
        if limit.is_none_or(|limit| u64::from(life.crashes) > limit) {
            life.status = Status::Dead;
            lives.push(life);
        }
    }
}
