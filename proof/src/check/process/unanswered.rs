//! Calls that were refused, and calls without an answer.

use super::{Open, Process};
use crate::check::calls::{token_of, what_of};
use crate::check::context::Lost;
use crate::check::excuses::UNDER_WAY_US;
use crate::check::record::{Record, What};
use crate::history::{Call, Verb};

impl Process<'_> {
    pub(super) fn refused(&mut self, open: &Open) {
        if let Call::Push { items, .. } = &open.call {
            for item in items {
                let id = self.all.id(open.queue, &item.0);
                self.all.refused.insert(id);
            }
        }
    }

    pub(super) fn unknown(&mut self, open: &Open) {
        if self.is_ticks(open.queue) {
            self.all.ticks.unknown(open.asked_us, &open.call);
        }
        let queue = &mut self.all.queues[usize::from(open.queue)];
        match &open.call {
            Call::Other { verb, .. }
                if matches!(verb.as_str(), "peek" | "stats" | "schedules" | "held") =>
            {
                return;
            }
            Call::Change {
                verb: Verb::Get, ..
            } => return,
            _ => {}
        }
        queue.operators.unknown(open.asked_us, &open.call);
        let (asked_us, until_us) = (open.asked_us, open.asked_us + UNDER_WAY_US);
        let (most, lease_ms, token) = match &open.call {
            Call::Claim {
                n, lease_ms, token, ..
            } => (u64::from(*n), *lease_ms, token_of(token)),
            _ => (0, 0, 0),
        };
        queue.lost.push(Lost {
            asked_us,
            until_us,
            most,
            lease_ms,
            token,
            given_up: false,
        });
        for (id, what) in what_of(&open.call) {
            let id = self.all.id(open.queue, id);
            if matches!(
                what,
                What::Change {
                    verb: Verb::Cancel,
                    ..
                }
            ) {
                *self.all.cancels.entry(id).or_default() += 1;
            }
            self.all.unknown.push(Record {
                id,
                epoch: u16::MAX,
                process: self.number,
                order: 0,
                now_us: 0,
                asked_us,
                answered_us: until_us,
                what,
            });
        }
    }
}
