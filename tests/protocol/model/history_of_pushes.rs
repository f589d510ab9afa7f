//! What the replies to pushes promise, over a whole run.

use anyhow::{Result, ensure};

use crate::model::history::{History, Life};
use crate::model::operation::{Attempt, Item};
use crate::model::windows::WINDOW_MOST;
use crate::model::world::Now;
use crate::reply::Text;
use crate::state::State;

/// The message of an item, as a push told it.
pub(super) struct Told<'a> {
    /// Number of the call, and position in it.
    pub(super) call: (usize, usize),
    pub(super) attempt: Option<&'a Attempt>,
    pub(super) item: &'a Item,
    pub(super) answer: &'a str,
}

impl History {
    pub(super) fn pushed(&mut self, now: Now, told: &Told, after: &State) -> Result<()> {
        let Told {
            call,
            attempt,
            item,
            answer,
        } = *told;
        let Some(due) = item.due.at(now) else {
            return Ok(());
        };
        // A debounce may choose an earlier due time.
        let scheduled = State::score(&after.scheduled, &item.id).map(|score| score as u64);
        let due = due.min(scheduled.unwrap_or(due));
        let follows = item.on_conflict == Some("next");
        let is_noted = ["CREATED", "MOVED", "NEXT"].contains(&answer);
        let is_repeated = follows
            && is_noted
            && !self.followed.insert(call)
            && attempt.is_some_and(|attempt| self.clock < attempt.until_us / 1_000);
        match answer {
            "MOVED" | "NEXT" if is_repeated => {} // it changes nothing
            "NEXT" => {
                let kept = after.attrs.get(&Text([b"\x03", &item.id.0[..]].concat()));
                let kept_due = kept.and_then(|kept| kept.text().split_once(' ')?.0.parse().ok());
                let due = due.min(kept_due.unwrap_or(due));
                let life = self.lives.get_mut(&item.id);
                ensure!(
                    life.as_ref().is_some_and(|life| life.claim.is_some()),
                    "{:?}: a next message without a delivery",
                    item.id
                );
                if let Some(life) = life {
                    life.next = Some((item.payload.clone(), due));
                }
            }
            "CREATED" => {
                let first = match attempt {
                    Some(_) => self.created.insert(call, now),
                    None => None,
                };
                let repeated = first.is_some();
                // The guarantee excludes two steps back of the clock. After `until` has passed, the
                // memory is gone. Between push and end, the end seems to precede the push.
                let ended = self
                    .ended
                    .get(&item.id)
                    .is_none_or(|ended| first.is_none_or(|first| *ended > first));
                let promised =
                    ended && attempt.is_some_and(|attempt| self.clock < attempt.until_us / 1_000);
                ensure!(
                    !(repeated && promised),
                    "{:?}: one push made two messages",
                    item.id
                );
                self.one_per_window(now, item)?;
                self.ended.remove(&item.id);
                let life = Life {
                    payload: item.payload.clone(),
                    due,
                    claim: None,
                    next: None,
                };
                ensure!(
                    self.lives.insert(item.id.clone(), life).is_none(),
                    "{:?}: created while it existed",
                    item.id
                );
            }
            "MOVED" => {
                if let Some(life) = self.lives.get_mut(&item.id) {
                    life.due = due;
                    if item.on_conflict != Some("reschedule") {
                        life.payload = item.payload.clone();
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Within a window an id gets one message, unless a cancel ended the window.
    fn one_per_window(&mut self, now: Now, item: &Item) -> Result<()> {
        let before = self.windows.get(&item.id).copied().unwrap_or(0);
        // A window too far ahead is from before the clock went back.
        let lasts = before > self.clock && before <= now.ceil() + WINDOW_MOST;
        ensure!(
            !lasts || item.reuse || self.is_mixed,
            "{:?}: two messages within a window",
            item.id
        );
        if let Some(window) = item.window {
            self.windows.insert(item.id.clone(), now.ceil() + window);
        }
        Ok(())
    }
}
