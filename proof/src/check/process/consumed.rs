//! What a consumer over HTTP wrote.

use super::Process;
use crate::history::{ClaimedItem, Handed, Http};

impl Process<'_> {
    pub(super) fn consumed(&mut self, t_us: u64, event: Http) {
        // Its handlers start with what it was handed.
        if let Http::Claimed {
            claim, deliveries, ..
        } = &event
            && let Some(queue) = self.all.served.queue_of((self.number, *claim))
        {
            for Handed(id, token, version, due_ms, attempt) in deliveries {
                let options = String::new();
                let item = ClaimedItem(id.clone(), *version, *due_ms, *attempt, 0, options);
                self.granted[usize::from(queue)].claimed(token, t_us, &[item]);
            }
        }
        let number = match &event {
            Http::Claim { queue, .. } | Http::Settle { queue, .. } => self.queue(queue),
            _ => u16::MAX,
        };
        self.all.served.consumed(self.number, number, t_us, event);
    }
}
