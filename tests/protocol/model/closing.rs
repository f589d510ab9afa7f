//! Pauses and closed queues in the model.

use anyhow::Result;

use crate::model::schedule::NEVER_MS;
use crate::model::world::{Now, World};
use crate::reply::Reply;
use crate::state::State;

impl World {
    /// Until when the queue is closed, if it is; the largest number if it is full. Release 0.1 does
    /// not know it.
    pub(crate) fn closed(&self, now: Now) -> Option<u64> {
        match self.was_full && !self.is_frozen {
            true => Some(u64::MAX),
            false => self.opens(now),
        }
    }

    /// The head in the header: when a client should next look for due messages.
    pub(super) fn head(&self, now: Now) -> Option<u64> {
        let first = self.listed("scheduled").first().map(|(due, _)| *due);
        let head = match self.closed(now) {
            Some(until) if !self.ready.is_empty() => Some(until),
            Some(until) => first.map(|due| due.max(until)),
            None => first,
        };
        head.filter(|head| *head < NEVER_MS)
    }

    pub(super) fn pause(
        &mut self,
        now: Now,
        period_ms: Option<u64>,
        after: &State,
    ) -> Result<Reply> {
        self.create(after)?;
        let (changed, result) = match period_ms {
            None => {
                let was_paused = std::mem::replace(&mut self.paused, true);
                (!was_paused, "OK".to_owned())
            }
            Some(period_ms) => {
                let (until, is_longer) = self.close_until(now, now.ceil() + period_ms);
                (is_longer, format!("OK {until}"))
            }
        };
        let header = self.finish(now, changed, false);
        Ok(Reply::List(vec![header, result.into()]))
    }

    pub(super) fn resume(&mut self, now: Now) -> Reply {
        let mut changed = std::mem::take(&mut self.paused);
        if !self.is_frozen {
            // Also times that have passed: the clock may go back.
            changed |= self.closed_until.take().is_some() | self.break_until.take().is_some();
            (self.is_full, self.was_full) = (false, false);
        }
        let header = self.finish(now, changed, false);
        Reply::List(vec![header, "OK".into()])
    }
}
