//! Which pushes are tries of one call, and which answers a later try may get.
//!
//! A push of an absent id stores a message, unless it is a repetition: its call was applied before,
//! or the earlier message of the id ended or moved after the call's first try. Two rules follow.
//! First, a call stores one message: a second try that gets `CREATED` has stored a second one.
//! Second, a call that began after the end was answered gets `CREATED`: if it gets `FINISHED`, a
//! new push is lost.

use crate::check::context::Context;
use crate::check::message::hypothesis::Hypothesis;
use crate::check::message::unknown::bit;
use crate::check::record::{Push, Pushed, Record, What};

/// The time from the first try of a call to its `until`. So `until` minus this is the time of the
/// first try, or a little earlier.
const PATIENCE_MS: u64 = 10_000;

fn push_of(record: &Record) -> Option<(&Push, Pushed)> {
    match &record.what {
        What::Push { push, verdict } => Some((push, *verdict)),
        _ => None,
    }
}

impl Hypothesis {
    /// Whether an earlier try of this call has already stored a message.
    pub(crate) fn has_made(&self, push: &Push, record: &Record, context: &Context<'_>) -> bool {
        let made = |verdict| matches!(verdict, Pushed::Created | Pushed::Unknown);
        self.attempts(push, record, context)
            .any(|(_, verdict)| made(verdict))
    }

    /// Earlier tries of this call that were answered, or that this hypothesis assumes as applied.
    fn attempts<'a>(
        &'a self,
        push: &'a Push,
        record: &'a Record,
        context: &'a Context<'_>,
    ) -> impl Iterator<Item = (&'a Record, Pushed)> {
        let earlier = context
            .records
            .iter()
            .take_while(|other| other.order < record.order);
        let lost = context
            .unknown
            .iter()
            .enumerate()
            .filter(|(place, _)| self.used & bit(*place) != 0);
        let same = |other: &Push, process| {
            push.call != 0 && (other.call, process) == (push.call, record.process)
        };
        earlier
            .chain(lost.map(|(_, call)| call))
            .filter_map(move |other| {
                push_of(other)
                    .filter(|(of, _)| same(of, other.process))
                    .map(|of| (other, of.1))
            })
    }

    /// Whether a push with the answer `FINISHED` is a repetition, as far as that can be known.
    pub(crate) fn is_repeated(&self, push: &Push, record: &Record, context: &Context<'_>) -> bool {
        // A message that a push found is remembered like one that it stored.
        let found = |verdict| {
            matches!(
                verdict,
                Pushed::Created | Pushed::Exists(_) | Pushed::Moved | Pushed::Unknown
            )
        };
        if self
            .attempts(push, record, context)
            .any(|(_, verdict)| found(verdict))
        {
            return true;
        }
        // An unanswered try may have found a message, which is not a change.
        let same = |call: &&Record| {
            push_of(call).is_some_and(|(of, _)| of.call == push.call)
                && call.process == record.process
        };
        let lost: Vec<_> = context.unknown.iter().filter(same).collect();
        let first_us = lost
            .iter()
            .map(|call| call.asked_us)
            .fold(record.asked_us, u64::min);
        let began_after = self.gone_us.is_some_and(|gone_us| gone_us < first_us);
        if push.ended_ms == 0 {
            // The answer proves that the queue remembers this call.
            return push.call != 0 && !lost.is_empty() && !began_after;
        }
        let stepped = context
            .epoch
            .stepped(self.seq.min(self.remembered_seq), record.seq());
        let in_time = push.ended_ms + 1 + PATIENCE_MS >= push.until_ms || stepped;
        // A call may assume an earlier first try than the real one: its client then sends a new
        // call.
        push.call != 0 && in_time && !(push.believed && (began_after || lost.is_empty()))
    }
}
