//! Checks the guarantees of pushes over a whole run, from their replies.

use anyhow::{Result, ensure};

use crate::model::client::operation::{Attempt, Item};
use crate::model::history::{History, Life};
use crate::model::schedules::fields::Declaration;
use crate::model::windows::WINDOW_MOST;
use crate::model::world::Now;
use crate::reply::{Reply, Text};
use crate::state::State;

/// The message of an item, as its push described it.
pub(crate) struct Told<'a> {
    /// Number of the call, and position in it.
    pub(crate) call: (usize, usize),
    pub(crate) attempt: Option<&'a Attempt>,
    pub(crate) item: &'a Item,
    pub(crate) answer: &'a str,
}

impl History {
    pub(crate) fn pushed(&mut self, now: Now, told: &Told, after: &State) -> Result<()> {
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
            "MOVED" | "NEXT" if is_repeated => {} // a repetition changes nothing
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
                // A step back of the clock can break this guarantee, so such runs are excepted:
                // after a step back beyond `until` the memory is gone, and after one between push
                // and end, the end seems to precede the push.
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
        // A window that ends too far ahead was stored before the clock went back.
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

impl History {
    /// Records that a claim granted a tick that nobody triggered: the claim made it.
    pub(crate) fn fired(&mut self, id: &Text, payload: &Text, due: u64) -> Result<()> {
        ensure!(
            self.fired.insert(id.clone()),
            "{id:?}: a fire made two ticks"
        );
        let nominal = id
            .text()
            .split_once('@')
            .and_then(|(_, at)| at.parse().ok());
        ensure!(
            nominal.is_some_and(|nominal: u64| due >= nominal),
            "{id:?}: due at {due}, before its fire"
        );
        self.begin(id.clone(), payload.clone(), due);
        Ok(())
    }

    fn begin(&mut self, id: Text, payload: Text, due: u64) {
        let life = Life {
            payload,
            due,
            claim: None,
            next: None,
        };
        self.lives.insert(id, life);
    }

    pub(crate) fn triggered(&mut self, now: Now, reply: &Reply, after: &State) -> Result<()> {
        // The new tick may have replaced other ticks.
        self.lives.retain(|id, _| after.messages.contains_key(id));
        let Ok(answers) = reply.items() else {
            return Ok(());
        };
        let created = answers
            .iter()
            .filter_map(|text| text.strip_prefix("CREATED "));
        for id in created.map(Text::from) {
            ensure!(
                !self.lives.contains_key(&id),
                "{id:?}: triggered while it existed"
            );
            let payload = after.messages.get(&id).cloned().unwrap_or_default();
            self.begin(id, payload, now.floor());
        }
        Ok(())
    }

    pub(crate) fn declared(
        &mut self,
        now: Now,
        call: &Declaration,
        reply: &Reply,
        after: &State,
    ) -> Result<()> {
        if call.dry_run || reply.part(1)?.text()? != "OK" {
            return Ok(());
        }
        for (schedule, answer) in call.schedules.iter().zip(reply.part(2)?.list()?) {
            let id = Text::from(schedule.tick(now.floor()));
            let is_created = answer.text()?.starts_with("CREATED");
            if call.now && is_created && !self.lives.contains_key(&id) {
                ensure!(after.messages.contains_key(&id), "{id:?}: no tick at once");
                self.begin(id, schedule.payload.clone(), now.floor());
            }
        }
        for name in reply.part(3)?.list()? {
            self.forget_fires(&name.text()?);
        }
        Ok(())
    }

    /// Forgets the fires of a schedule. A new schedule of the name starts without them.
    pub(crate) fn forget_fires(&mut self, name: &str) {
        let of_it = format!("{name}@");
        self.fired.retain(|id| !id.text().starts_with(&of_it));
    }
}
