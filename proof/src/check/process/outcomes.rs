//! What callers were told of their pushes.

use super::Process;
use crate::check::record::{Held, Push, What};

impl Process<'_> {
    /// A push that replicas confirmed to its caller must survive any failover.
    pub(super) fn confirmed(&mut self, queue: u16, op: u64, outcomes: &[String]) {
        for (id, call) in self.asking[usize::from(queue)].confirmed(op, outcomes) {
            let calls = self.waiting.remove(&(queue, id)).unwrap_or_default();
            if let Some(push) = self.push_of(&calls, call) {
                push.held = Held::Replicas;
                self.all.verdict.replicated += 1;
            }
        }
    }

    /// A caller with the outcome `finished` will not push the message again.
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
