//! The effects of calls when they are sent, refused or never answered; what callers and consumers
//! were told; and the end of a process.

use super::{Open, Process};
use crate::check::calls::{token_of, what_of};
use crate::check::context::Lost;
use crate::check::excuses::UNDER_WAY_US;
use crate::check::message::reads::ReadState;
use crate::check::record::{Held, Push, Record, What};
use crate::check::verdict::Kind;
use crate::check::workers::callers::Asking;
use crate::history::{Call, ClaimedItem, Handed, Http, Role, Verb};

impl Process<'_> {
    /// The effects of a call from the moment at which it is sent.
    pub(super) fn invoked(&mut self, t_us: u64, queue: u16, call: &Call) {
        let queue = &mut self.all.queues[usize::from(queue)];
        queue.operators.asked(t_us, call);
        match call {
            Call::Push { items, .. } | Call::Follow { items, .. } => {
                queue.pushed = true;
                queue.expires |= items.iter().any(|item| item.4.contains("expires="));
            }
            Call::Other { verb, args } if verb == "configure" => {
                for pair in args.chunks_exact(2) {
                    let value = pair[1].parse().unwrap_or(0);
                    match pair[0].as_str() {
                        "max_attempts" => drop(queue.max_attempts.insert(value)),
                        "max_crashes" => drop(queue.max_crashes.insert(value)),
                        "dead_keep" => drop(queue.dead_keep.insert(value)),
                        "dead_keep_ms" => queue.ages = true,
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }

    /// Checks at the end of a process that was not killed: it has started or returned all its
    /// grants, and its callers have outcomes.
    pub(super) fn end(&mut self, ended: bool, last_us: u64) {
        let (number, all) = (self.number, &mut *self.all);
        all.served.ended(number, ended, last_us);
        for words in self.unseen.dropped(last_us) {
            all.verdict.found(Kind::SettlementDropped, || {
                format!("process {number}: {words}")
            });
        }
        for words in self
            .granted
            .iter()
            .flat_map(|of| of.forgotten(ended, last_us))
        {
            all.verdict
                .found(Kind::NeverStarted, || format!("process {number}: {words}"));
        }
        // A handler that was dropped at its time limit gets no outcome.
        if ended && matches!(self.role, Role::Producer | Role::Canceller) {
            for words in self.asking.iter().flat_map(Asking::never_told) {
                all.verdict
                    .found(Kind::ApiLies, || format!("process {number}: {words}"));
            }
        }
    }

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
        let template = Record {
            id: 0,
            epoch: u16::MAX,
            process: self.number,
            order: 0,
            now_us: 0,
            asked_us,
            answered_us: until_us,
            what: What::ReadState(ReadState::default()),
        };
        if matches!(open.call, Call::Depart { .. } | Call::Arrive { .. }) {
            let from = match &open.call {
                Call::Arrive { from, .. } => self.sibling(open.queue, from),
                _ => open.queue,
            };
            self.all
                .moves
                .unknown(open.queue, from, &open.call, template);
        }
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
                what,
                ..template
            });
        }
    }

    pub(super) fn consumed(&mut self, t_us: u64, event: Http) {
        // The consumer's handlers start the deliveries that it was handed.
        if let Http::Claimed {
            claim, deliveries, ..
        } = &event
            && let Some(queue) = self.all.served.queue_of((self.number, *claim))
        {
            for Handed(id, token, version, due_ms, attempt) in deliveries {
                let options = String::new();
                let item = ClaimedItem(id.clone(), *version, *due_ms, *attempt, 0, options);
                self.granted[usize::from(queue)].claimed(token, t_us, &[item], false);
            }
        }
        let number = match &event {
            Http::Claim { queue, .. } | Http::Settle { queue, .. } => self.queue(queue),
            _ => u16::MAX,
        };
        self.all.served.consumed(self.number, number, t_us, event);
    }

    /// A push that replicas confirmed to its caller must survive every failover.
    pub(super) fn confirmed(&mut self, queue: u16, op: u64, outcomes: &[String]) {
        for (id, call) in self.asking[usize::from(queue)].confirmed(op, outcomes) {
            let calls = self.waiting.remove(&(queue, id)).unwrap_or_default();
            if let Some(push) = self.push_of(&calls, call) {
                push.held = Held::Replicas;
                self.all.verdict.replicated += 1;
            }
        }
    }

    /// A caller that got `finished` will not push the message again.
    pub(super) fn believed(&mut self, queue: u16, op: u64, outcomes: &[String]) {
        for (id, call) in self.asking[usize::from(queue)].finished(op, outcomes) {
            let calls = self.finished.remove(&(queue, id)).unwrap_or_default();
            if let Some(push) = self.push_of(&calls, call) {
                push.believed = true;
            }
        }
    }

    /// The record of a push by this call, from (call, index of its record).
    fn push_of(&mut self, calls: &[(u64, usize)], call: Option<u64>) -> Option<&mut Push> {
        let (_, index) = calls.iter().find(|(number, _)| Some(*number) == call)?;
        match &mut self.all.records.get_mut(*index)?.what {
            What::Push { push, .. } => Some(push),
            _ => None,
        }
    }
}
