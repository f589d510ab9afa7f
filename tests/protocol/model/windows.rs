//! Windows: for some time after a push its id creates no other message. Also what the queue
//! remembers about an id whose message has ended.

use crate::model::world::{Now, REPEAT_MS, World};
use crate::reply::{Reply, Text};

/// The longest window: 30 days.
pub(crate) const WINDOW_MOST: u64 = 2_592_000_000;

/// The name under which `recent` remembers the window of an id.
fn window_of(id: &Text) -> Text {
    Text([&b"\x05"[..], &id.0].concat())
}

/// The name under which `recent` remembers how a message ended. Its score is that time + 2^k ms.
fn outcome_of(k: u8, id: &Text) -> Text {
    Text([&[6, 64 + k][..], &id.0].concat())
}

impl World {
    /// The end of the id's window, if it still lasts. One too far ahead was stored before the clock
    /// went back.
    pub(crate) fn window(&self, now: Now, id: &Text) -> Option<u64> {
        let end = self.recent.get(&window_of(id)).map(|score| *score as u64)?;
        (end > now.floor() && end <= now.ceil() + WINDOW_MOST).then_some(end)
    }

    /// The window that makes a push answer REMEMBERED. Release 0.1 does not know windows.
    pub(crate) fn remembered(&self, now: Now, id: &Text) -> Option<u64> {
        self.window(now, id).filter(|_| !self.is_frozen)
    }

    /// The names that count against `max_remembered`.
    pub(crate) fn names(&self, now: Now) -> u64 {
        let lasting = |score: &&f64| **score > now.floor() as f64;
        self.recent.values().filter(lasting).count() as u64
    }

    pub(crate) fn begin_window(&mut self, now: Now, id: &Text, window: u64) {
        let end = now.ceil() + window;
        self.recent.insert(window_of(id), end as f64);
        self.windows_until = self.windows_until.max(end);
        self.remembered_names += 1;
    }

    /// Ends the window of a cancelled or purged id. Release 0.1 leaves it.
    pub(crate) fn end_window(&mut self, id: &Text) {
        if self.is_frozen {
            return;
        }
        if let Some(score) = self.recent.get_mut(&window_of(id)) {
            *score = 0.0;
            self.meet("window ended early");
        }
    }

    /// Remembers how a message with a window ended, for at least the rest of the window. Returns the
    /// number of added names. Release 0.1 remembers nothing.
    pub(crate) fn note_outcome(&mut self, now: Now, id: &Text, expired: bool) -> usize {
        let Some(end) = self.window(now, id).filter(|_| !self.is_frozen) else {
            return 0;
        };
        let rest = end - now.floor();
        // The scripts count from the floor of now, but a window counts from the ceiling. So a
        // window of 30 days leaves no outcome if the message ends in the millisecond of its push.
        if rest > WINDOW_MOST {
            return 0;
        }
        let k = (0..).find(|k| 1 << k >= rest).unwrap_or(63_u8);
        let score = (now.floor() + (1 << k)) as f64 + if expired { 0.5 } else { 0.0 };
        self.recent.insert(outcome_of(k, id), score);
        1
    }

    /// The elements that `get` adds for an ended message: how and when it ended, and the end of its
    /// window. Release 0.1 adds nothing.
    pub(crate) fn outcome(&self, now: Now, id: &Text) -> Vec<Reply> {
        if self.is_frozen {
            return Vec::new();
        }
        let mut last: Option<(u64, &str)> = None;
        for k in 0..33 {
            let Some(score) = self.recent.get(&outcome_of(k, id)) else {
                continue;
            };
            let ended = score.trunc() as u64 - (1 << k);
            let lasts = *score > now.floor() as f64 && ended <= now.floor();
            if lasts && last.is_none_or(|(at, _)| ended > at) {
                let expired = score.fract() == 0.5;
                last = Some((ended, if expired { "expired" } else { "finished" }));
            }
        }
        let cancelled = self.recent.get(id).filter(|_| self.was_cancelled(now, id));
        if let Some(at) = cancelled.map(|score| score.trunc() as u64 - REPEAT_MS) {
            // If both happened in one millisecond, the cancel counts as the later one.
            if last.is_none_or(|(ended, _)| ended <= at) {
                last = Some((at, "cancelled"));
            }
        }
        let Some((at, how)) = last else {
            return Vec::new();
        };
        let until = self.window(now, id).unwrap_or(0);
        vec![how.into(), at.into(), until.into()]
    }
}
