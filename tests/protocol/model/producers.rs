//! The verbs of producers and operators in the model.

use anyhow::{Context, Result, ensure};

use crate::model::memory::{Earlier, Verdict};
use crate::model::operation::{Attempt, Item};
use crate::model::world::{Due, Message, Now, Place, REPEAT_MS, World};
use crate::reply::{Reply, Text};
use crate::state::State;

const MEBIBYTE: u64 = 1_048_576;

impl World {
    /// Creates the queue, at the first call that stores something. The script chooses its
    /// `incarnation`, once.
    pub(super) fn create(&mut self, after: &State) -> Result<()> {
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

    pub(super) fn push(
        &mut self,
        now: Now,
        upsert: bool,
        attempt: Option<&Attempt>,
        items: &[Item],
        after: &State,
    ) -> Result<Reply> {
        let earlier = self.earlier(now, attempt);
        let (mut replies, mut created, mut changed, mut names) = (Vec::new(), 0, false, 0);
        let (mut noted, mut whole) = (Vec::new(), earlier == Earlier::None);
        let mut stored = Vec::new();
        for item in items {
            let reply = if item.moves() == upsert {
                self.push_one(now, attempt, earlier, item, &mut noted, &mut names)
            } else {
                "INVALID".to_owned()
            };
            if reply == "CREATED" || reply == "MOVED" && item.on_conflict == Some("replace") {
                stored.push(&item.id);
            }
            created += usize::from(reply == "CREATED");
            changed |= reply == "CREATED" || reply == "MOVED";
            whole &= reply == "CREATED" || reply.starts_with("EXISTS");
            replies.push(Reply::from(reply));
        }
        if changed {
            self.create(after)?;
        }
        let expires = |id: &&Text| {
            self.messages
                .get(*id)
                .is_some_and(|it| it.expires.is_some())
        };
        if stored.iter().any(expires) {
            (self.is_expiring, self.is_selective) = (true, true);
        }
        self.count("pushed", created);
        names += attempt.map_or(0, |attempt| self.note_call(attempt, whole, earlier, &noted));
        if names > 0 {
            self.forget(now, 2 * names);
        }
        Ok(Reply::List(vec![
            self.finish(now, changed, false),
            Reply::List(replies),
        ]))
    }

    /// Pushes one item. Adds to `noted` the id by which a repetition is recognised, and to `names`
    /// the number of other names that `recent` gets.
    fn push_one(
        &mut self,
        now: Now,
        attempt: Option<&Attempt>,
        earlier: Earlier,
        item: &Item,
        noted: &mut Vec<Text>,
        names: &mut usize,
    ) -> String {
        let id = &item.id;
        let Some(due) = item.due.at(now) else {
            return "INVALID".to_owned();
        };
        let too_long =
            item.payload.0.len() as u64 > self.limit("max_payload_bytes").unwrap_or(MEBIBYTE);
        let conflict = item.on_conflict.unwrap_or("keep");
        let absolute = match &item.expires {
            Some(Due::At(ms)) => Some(*ms),
            _ => None,
        };
        let expired = absolute.is_some_and(|ms| ms <= now.ceil() || ms < due);
        let is_nonsense = item.expires == Some(Due::In(0))
            || item.on_expire.is_some() && item.expires.is_none()
            || item.cost.is_some_and(|cost| cost > self.most_cost());
        if !(1..=200).contains(&id.0.len())
            || too_long
            || is_nonsense
            || !["keep", "reschedule", "replace"].contains(&conflict)
        {
            return "INVALID".to_owned();
        }
        if attempt.is_some_and(|attempt| attempt.is_too_late(now)) {
            return "EXPIRED".to_owned();
        }
        let near = due <= now.floor() + REPEAT_MS;
        if let Some(message) = self.messages.get_mut(id) {
            let movable = matches!(message.place, Place::Scheduled { .. } | Place::Ready { .. });
            if conflict == "keep" || !movable {
                noted.push(id.clone());
                return format!("EXISTS {}", message.place.name());
            }
            if conflict == "replace" && expired {
                return "INVALID".to_owned();
            }
            let is_frozen = self.is_frozen;
            if conflict == "reschedule" && !is_frozen {
                message.drop_added("expires_by");
            }
            if conflict == "replace" {
                (message.expires, message.on_expire) = (item.expires.clone(), item.on_expire);
                (message.cost, message.added) = (item.cost, Vec::new());
                (message.payload, message.max_attempts) = (item.payload.clone(), item.max_attempts);
                message.trace_parent.clone_from(&item.trace_parent);
                (message.failures, message.crashes, message.error) = (0, 0, Text::default());
                self.grow(&item.payload);
            }
            if let Some(message) = self.messages.get_mut(id) {
                (message.original, message.place) = (None, Place::Scheduled { due });
            }
            self.unready(id);
            if near {
                self.note_end(now, id);
                *names += 1;
            }
            return "MOVED".to_owned();
        }
        if let Verdict::Finished(reply) = self.judge(now, attempt, earlier, id) {
            return reply;
        }
        if expired {
            return "INVALID".to_owned();
        }
        if self
            .limit("max_messages")
            .is_some_and(|most| self.messages.len() as u64 >= most)
        {
            return "FULL".to_owned();
        }
        *names += self.pushed_again(now, id);
        if near {
            noted.push(id.clone());
        }
        self.grow(&item.payload);
        let message = Message {
            payload: item.payload.clone(),
            max_attempts: item.max_attempts,
            trace_parent: item.trace_parent.clone(),
            expires: item.expires.clone(),
            on_expire: item.on_expire,
            cost: item.cost,
            added: Vec::new(),
            failures: 0,
            crashes: 0,
            error: Text::default(),
            original: None,
            place: Place::Scheduled { due },
        };
        self.messages.insert(id.clone(), message);
        "CREATED".to_owned()
    }

    /// Stores a payload's length. The queue knows the longest one, rounded up to a power of two.
    fn grow(&mut self, payload: &Text) {
        if payload.0.len() > 4_096 {
            self.largest = self.largest.max(payload.0.len().next_power_of_two() as u64);
        }
    }

    /// Removes a message for good: a late repetition of its push must not restore it.
    fn erase(&mut self, now: Now, id: &Text) {
        self.messages.remove(id);
        self.unready(id);
        self.note_cancel(now, id);
    }

    pub(super) fn cancel(
        &mut self,
        now: Now,
        dead: bool,
        since: Option<u64>,
        ids: &[Text],
    ) -> Reply {
        let (mut replies, mut gone) = (Vec::new(), 0);
        for id in ids {
            let earlier =
                since.is_some_and(|since| self.was_cancelled_before_this_one(now, id, since));
            let cancelled = self.was_cancelled(now, id);
            replies.push(Reply::from(match self.place(id) {
                _ if earlier => "CANCELLED earlier",
                Some(Place::Leased { .. }) => "LEASED",
                Some(Place::Dead { .. }) if !dead => "DEAD",
                Some(_) => {
                    self.erase(now, id);
                    gone += 1;
                    "CANCELLED"
                }
                None if cancelled => "CANCELLED",
                None => "ABSENT",
            }));
        }
        self.count("cancelled", gone);
        self.forget(now, 4 * gone);
        Reply::List(vec![
            self.finish(now, gone > 0, false),
            Reply::List(replies),
        ])
    }

    /// Gives the message this due time and no other. Returns whether it is near.
    fn move_to(&mut self, now: Now, id: &Text, due: u64) -> bool {
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

    pub(super) fn reschedule(&mut self, now: Now, items: &[(Text, Due, Option<u64>)]) -> Reply {
        let (mut replies, mut changed, mut near) = (Vec::new(), 0, 0);
        for (id, due, expected) in items {
            let reply = match (due.at(now), self.place(id)) {
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
                        message.drop_added("expires_by");
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

    pub(super) fn run_now(&mut self, now: Now, ids: &[Text]) -> Reply {
        let (mut replies, mut changed) = (Vec::new(), 0);
        for id in ids {
            let reply = match self.place(id) {
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

    pub(super) fn requeue_ids(&mut self, now: Now, ids: &[Text]) -> Reply {
        let (mut replies, mut changed) = (Vec::new(), 0);
        for id in ids {
            replies.push(Reply::from(match self.place(id) {
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

    pub(super) fn requeue_oldest(&mut self, now: Now, limit: usize, before: Option<u64>) -> Reply {
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

    pub(super) fn purge(&mut self, now: Now, state: &str, limit: usize) -> Reply {
        let all = self.listed(state);
        let purged = all.len().min(limit);
        for (_, id) in &all[..purged] {
            self.erase(now, id);
        }
        self.count("purged", purged);
        self.forget(now, 4 * purged);
        Reply::List(vec![
            self.finish(now, purged > 0, false),
            purged.into(),
            (all.len() - purged).into(),
        ])
    }

    pub(super) fn configure(
        &mut self,
        now: Now,
        pairs: &[(&'static str, Text)],
        after: &State,
    ) -> Result<Reply> {
        self.create(after)?;
        for (name, value) in pairs {
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
