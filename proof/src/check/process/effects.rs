//! The effects of a call when it is sent, and of the end of a process.

use super::Process;
use crate::check::callers::Asking;
use crate::check::verdict::Kind;
use crate::history::{Call, Role};

impl Process<'_> {
    /// The effects of a call from when it is sent.
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

    /// Unless it was killed, the process must have started or returned its grants, and its callers
    /// have their outcomes.
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
        // A handler dropped at its time limit gets no outcome.
        if ended && matches!(self.role, Role::Producer | Role::Canceller) {
            for words in self.asking.iter().flat_map(Asking::never_told) {
                all.verdict
                    .found(Kind::ApiLies, || format!("process {number}: {words}"));
            }
        }
    }
}
