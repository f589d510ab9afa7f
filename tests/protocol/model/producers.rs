//! The part of the model for producers and operators.

use anyhow::{Context, Result, ensure};

use crate::model::message::{Due, Place};
use crate::model::schedules::schedule::is_timer;
use crate::model::world::{Now, REPEAT_MS, World};
use crate::reply::{Reply, Text};
use crate::state::State;

impl World {
    /// Creates the queue at the first call that stores something. The script chooses the
    /// `incarnation` once.
    pub(crate) fn create(&mut self, after: &State) -> Result<()> {
        if self.incarnation.is_none() {
            let incarnation = after
                .meta
                .get(&Text::from("incarnation"))
                .context("the queue was not created")?;
            ensure!(incarnation.0.len() == 16, "incarnation is {incarnation:?}");
            self.incarnation = Some(incarnation.clone());
        }
        Ok(())
    }

    /// The place of a message; `None` for a timer, which these verbs do not find.
    fn place_of_message(&self, id: &Text) -> Option<&Place> {
        self.place(id).filter(|_| !is_timer(id))
    }

    /// Removes a message for good: a late repetition of its push must not store it again.
    fn erase(&mut self, now: Now, id: &Text) {
        self.messages.remove(id);
        self.unready(id);
        self.note_cancel(now, id);
        self.end_window(id);
    }

    pub(crate) fn cancel(
        &mut self,
        now: Now,
        dead: bool,
        since: Option<u64>,
        ids: &[Text],
    ) -> Reply {
        let (mut replies, mut gone, mut noted, mut unfollowed) = (Vec::new(), 0, 0, 0);
        for id in ids {
            let earlier =
                since.is_some_and(|since| self.was_cancelled_before_this_one(now, id, since));
            let cancelled = self.was_cancelled(now, id);
            let followed = self.messages.get_mut(id).filter(|_| !earlier);
            let unfollows = followed.is_some_and(|message| message.next.take().is_some());
            replies.push(Reply::from(match self.place_of_message(id) {
                _ if earlier => "CANCELLED earlier",
                Some(Place::Leased { .. }) if unfollows => {
                    unfollowed += 1;
                    "CANCELLED next"
                }
                Some(Place::Leased { .. }) => "LEASED",
                Some(Place::Dead { .. }) if !dead => "DEAD",
                Some(_) => {
                    self.erase(now, id);
                    gone += 1;
                    noted += 1;
                    "CANCELLED"
                }
                None if cancelled => {
                    if !self.is_frozen && self.note_later_cancel(now, id, since) {
                        self.end_window(id);
                        noted += 1;
                    }
                    "CANCELLED"
                }
                None => "ABSENT",
            }));
        }
        self.count("cancelled", gone);
        self.forget(now, 4 * noted);
        Reply::List(vec![
            self.finish(now, gone + unfollowed > 0, false),
            Reply::List(replies),
        ])
    }

    /// Gives the message this due time, and forgets its original one. Returns whether the time is
    /// so near that the queue remembers the change.
    pub(crate) fn move_to(&mut self, now: Now, id: &Text, due: u64) -> bool {
        if let Some(message) = self.messages.get_mut(id) {
            (message.original, message.place) = (None, Place::Scheduled { due });
        }
        self.unready(id);
        if due <= now.floor() + REPEAT_MS {
            self.note_end(now, id);
            return true;
        }
        false
    }

    pub(crate) fn reschedule(&mut self, now: Now, items: &[(Text, Due, Option<u64>)]) -> Reply {
        let (mut replies, mut changed, mut near) = (Vec::new(), 0, 0);
        for (id, due, expected) in items {
            let reply = match (due.at(now), self.place_of_message(id)) {
                (None, _) => "INVALID".to_owned(),
                (_, None) => "ABSENT".to_owned(),
                (_, Some(place @ (Place::Leased { .. } | Place::Dead { .. }))) => {
                    place.name().to_uppercase()
                }
                (Some(due), Some(place)) if place.time() == due => format!("MOVED {due}"),
                (Some(_), Some(place))
                    if expected.is_some_and(|expected| expected != place.time()) =>
                {
                    format!("CONFLICT {}", place.time())
                }
                (Some(due), Some(_)) => {
                    let is_frozen = self.is_frozen;
                    if let Some(message) = self.messages.get_mut(id).filter(|_| !is_frozen) {
                        message.drop_word("expires_by");
                    }
                    near += usize::from(self.move_to(now, id, due));
                    changed += 1;
                    format!("MOVED {due}")
                }
            };
            replies.push(Reply::from(reply));
        }
        self.forget(now, 2 * near);
        Reply::List(vec![
            self.finish(now, changed > 0, false),
            Reply::List(replies),
        ])
    }

    pub(crate) fn run_now(&mut self, now: Now, ids: &[Text]) -> Reply {
        let (mut replies, mut changed) = (Vec::new(), 0);
        for id in ids {
            let reply = match self.place_of_message(id) {
                None => "ABSENT".to_owned(),
                Some(Place::Ready { .. }) => "ALREADY".to_owned(),
                Some(Place::Scheduled { due }) if *due <= now.floor() => "ALREADY".to_owned(),
                Some(Place::Scheduled { .. }) => {
                    self.move_to(now, id, now.floor());
                    changed += 1;
                    format!("MOVED {}", now.floor())
                }
                Some(place) => place.name().to_uppercase(),
            };
            replies.push(Reply::from(reply));
        }
        self.forget(now, 2 * changed);
        Reply::List(vec![
            self.finish(now, changed > 0, false),
            Reply::List(replies),
        ])
    }

    fn revive(&mut self, now: Now, id: &Text) {
        let is_frozen = self.is_frozen;
        if let Some(message) = self.messages.get_mut(id) {
            if !is_frozen {
                message.added.clear();
                if matches!(message.expires, Some(Due::At(ms)) if ms < now.floor()) {
                    (message.expires, message.on_expire) = (None, None);
                }
            }
            (
                message.failures,
                message.crashes,
                message.error,
                message.original,
            ) = (0, 0, Text::default(), None);
            message.place = Place::Scheduled { due: now.floor() };
        }
    }

    pub(crate) fn requeue_ids(&mut self, now: Now, ids: &[Text]) -> Reply {
        let (mut replies, mut changed) = (Vec::new(), 0);
        for id in ids {
            replies.push(Reply::from(match self.place_of_message(id) {
                None => "ABSENT".to_owned(),
                Some(Place::Dead { .. }) => {
                    self.revive(now, id);
                    changed += 1;
                    "REQUEUED".to_owned()
                }
                Some(place) => format!("NOT_DEAD {}", place.name()),
            }));
        }
        self.count("requeued", changed);
        Reply::List(vec![
            self.finish(now, changed > 0, false),
            Reply::List(replies),
        ])
    }

    pub(crate) fn requeue_oldest(&mut self, now: Now, limit: usize, before: Option<u64>) -> Reply {
        let mut old = self.listed("dead");
        old.retain(|(at, _)| before.is_none_or(|before| *at <= before));
        let changed = old.len().min(limit);
        for (_, id) in &old[..changed] {
            self.revive(now, id);
        }
        self.count("requeued", changed);
        Reply::List(vec![
            self.finish(now, changed > 0, false),
            changed.into(),
            (old.len() - changed).into(),
        ])
    }

    pub(crate) fn purge(&mut self, now: Now, state: &str, limit: usize) -> Reply {
        let mut all = self.listed(state);
        all.retain(|(_, id)| state == "ready" || !is_timer(id));
        let looked = all.len().min(limit);
        let mut purged = 0;
        for (_, id) in &all[..looked] {
            if is_timer(id) {
                self.return_timer(now, id);
                self.unready(id);
                self.meet("a purge leaves a timer");
            } else {
                self.erase(now, id);
                purged += 1;
            }
        }
        self.count("purged", purged);
        self.forget(now, 4 * purged);
        Reply::List(vec![
            self.finish(now, looked > 0, false),
            purged.into(),
            (all.len() - looked).into(),
        ])
    }

    pub(crate) fn configure(
        &mut self,
        now: Now,
        pairs: &[(&'static str, Text)],
        after: &State,
    ) -> Result<Reply> {
        self.create(after)?;
        for (name, value) in pairs {
            if *name == "layout" {
                self.has_layout_3 = true;
                continue;
            }
            self.limits.remove(name);
            if !value.0.is_empty() {
                self.limits.insert(name, value.clone());
            }
        }
        if pairs.iter().any(|(name, _)| *name == "rate") {
            self.forget_rate_opening(now);
        }
        let is_limited = ["rate", "max_leased"].map(|name| self.limits.contains_key(name));
        self.is_selective |= is_limited.contains(&true) && !self.is_frozen;
        Ok(Reply::List(vec![
            self.finish(now, true, false),
            "OK".into(),
        ]))
    }
}
