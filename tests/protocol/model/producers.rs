//! What producers and operators do to the world.

use anyhow::{Context, Result, ensure};

use crate::model::operation::Item;
use crate::model::world::{Due, Fate, Memory, Message, Now, Place, REPEAT_MS, World};
use crate::reply::{Reply, Text};
use crate::state::State;

const MEBIBYTE: u64 = 1_048_576;

/// What a push reckons with.
#[derive(Clone, Copy)]
enum Known {
    /// This is the first attempt of a call whose ids nobody knows.
    Nothing,
    /// What is remembered of each of its ids.
    EachId,
    /// The call was made before, and all was new.
    All(Memory),
}

/// What `recent` calls a call.
fn call(items: &[Item]) -> Text {
    let ids: Vec<_> = items.iter().map(|item| item.id.text()).collect();
    let json = serde_json::json!(ids).to_string().replace('/', "\\/"); // as Redis's Lua writes it
    format!("\u{3}{}", redis::Script::new(&json).get_hash()).into()
}

/// Whether any of them may be gone before `until`, which is the same in each attempt.
fn soon(items: &[Item], until: u64) -> bool {
    items.iter().any(|item| match item.due {
        Due::At(due) => due <= until,
        Due::In(delay) => delay <= REPEAT_MS,
        // What Lua takes for a small number.
        Due::Nonsense(text) => ["-5", "1.5", "1e3", "0x10", " 5"].contains(&text),
    })
}

impl World {
    /// A queue begins with the first call that has something to keep. Its `born` is Redis's to choose, once.
    fn create(&mut self, after: &State) -> Result<()> {
        if self.born.is_none() {
            let born = after.meta.get(&Text::from("born")).context("the queue was not created")?;
            ensure!(born.0.len() == 16, "born is {born:?}");
            self.born = Some(born.clone());
        }
        Ok(())
    }

    fn remember(&mut self, id: &Text, until: u64, fate: Fate) {
        self.recent.insert(id.clone(), Memory { until, fate });
    }

    /// Forgets up to so many whose time is over, the oldest first: at least twice as many as a call remembered, so that
    /// `recent` cannot grow for ever.
    pub(super) fn forget(&mut self, now: Now, count: usize) {
        let mut over: Vec<_> = self.recent.iter().filter(|(_, memory)| !memory.lasts(now)).collect();
        over.sort_by(|(one, first), (other, second)| first.score().total_cmp(&second.score()).then(one.cmp(other)));
        let forgotten: Vec<Text> = over.into_iter().take(count).map(|(id, _)| id.clone()).collect();
        self.recent.retain(|id, _| !forgotten.contains(id));
    }

    pub(super) fn push(
        &mut self,
        now: Now,
        until: Option<u64>,
        fresh: bool,
        items: &[Item],
        after: &State,
    ) -> Result<Reply> {
        let call =
            until.filter(|until| fresh && items.len() > 4 && soon(items, *until)).map(|until| (call(items), until));
        let known = call.as_ref().map_or(Known::EachId, |(call, _)| self.known(now, call));
        let mut trial = self.clone();
        let mut made_at_once =
            |item: &Item| item.options().is_empty() && trial.push_one(now, until, item, known, &mut None) == "CREATED";
        let all_new = call.is_some() && items.iter().all(&mut made_at_once);
        let (mut replies, mut created, mut changed, mut ids_remembered) =
            (Vec::new(), 0, false, (!all_new).then_some(0));
        for item in items {
            let reply = self.push_one(now, until, item, known, &mut ids_remembered);
            created += usize::from(reply == "CREATED");
            changed |= reply == "CREATED" || reply == "MOVED";
            replies.push(Reply::from(reply));
        }
        if changed {
            self.create(after)?;
        }
        self.count("pushed", created);
        let mut remembered = ids_remembered.unwrap_or(0);
        if let Some((call, until)) = call.filter(|_| changed) {
            self.remember(&call, until, if all_new { Fate::Delivered } else { Fate::OneByOne });
            remembered += 1;
        }
        if remembered > 0 {
            self.forget(now, 2 * items.len());
        }
        Ok(Reply::List(vec![self.finish(now, changed, false), Reply::List(replies)]))
    }

    /// What is known of a call that says that nobody else knows its ids.
    fn known(&self, now: Now, call: &Text) -> Known {
        match self.recent.get(call).filter(|memory| memory.lasts(now)) {
            None => Known::Nothing,
            Some(Memory { fate: Fate::OneByOne, .. }) => Known::EachId,
            Some(memory) => Known::All(*memory),
        }
    }

    /// Counts the ids that it remembers, if it is to remember ids.
    fn push_one(
        &mut self,
        now: Now,
        until: Option<u64>,
        item: &Item,
        known: Known,
        remembered: &mut Option<usize>,
    ) -> String {
        let id = &item.id;
        let Some(due) = item.due.at(now) else { return "INVALID".to_owned() };
        let too_long = item.payload.0.len() as u64 > self.limit("max_payload_bytes").unwrap_or(MEBIBYTE);
        let conflict = item.on_conflict.unwrap_or("keep");
        if !(1..=200).contains(&id.0.len()) || too_long || !["keep", "reschedule", "replace"].contains(&conflict) {
            return "INVALID".to_owned();
        }
        if until.is_some_and(|until| until <= now.floor() || until > now.floor() + REPEAT_MS) {
            return "EXPIRED".to_owned();
        }
        let near = due <= now.floor() + REPEAT_MS;
        if let Some(message) = self.messages.get_mut(id) {
            let movable = matches!(message.place, Place::Scheduled { .. } | Place::Ready { .. });
            if conflict == "keep" || !movable {
                return format!("EXISTS {}", message.place.name());
            }
            if conflict == "replace" {
                (message.payload, message.max_attempts) = (item.payload.clone(), item.max_attempts);
                message.trace_parent.clone_from(&item.trace_parent);
                (message.failures, message.crashes, message.error) = (0, 0, Text::default());
            }
            (message.original, message.place) = (None, Place::Scheduled { due });
            self.unready(id);
            if let Some(count) = remembered.as_mut().filter(|_| near) {
                self.remember(id, now.ceil() + REPEAT_MS, Fate::Delivered);
                *count += 1;
            }
            return "MOVED".to_owned();
        }
        let memory = match known {
            Known::Nothing => None,
            Known::EachId => self.recent.get(id).copied(),
            Known::All(memory) => Some(memory),
        };
        let lasts = memory.is_some_and(|memory| memory.lasts(now));
        if lasts && !item.reuse {
            return "FINISHED".to_owned();
        }
        if self.limit("max_messages").is_some_and(|most| self.messages.len() as u64 >= most) {
            return "FULL".to_owned();
        }
        let (past, ahead) = (memory.map_or(0, |memory| memory.until), until.filter(|_| near).unwrap_or(0));
        let until = past.max(ahead);
        if lasts || until > now.floor() {
            let fate = match memory.filter(|_| lasts).map(|memory| memory.fate) {
                Some(Fate::Cancelled) => Fate::CancelledAndReused,
                Some(Fate::CancelledAndReused) if ahead <= past => Fate::CancelledAndReused,
                _ => Fate::Delivered,
            };
            if let Some(count) = remembered {
                self.remember(id, until, fate);
                *count += 1;
            }
        }
        let message = Message {
            payload: item.payload.clone(),
            max_attempts: item.max_attempts,
            trace_parent: item.trace_parent.clone(),
            failures: 0,
            crashes: 0,
            error: Text::default(),
            original: None,
            place: Place::Scheduled { due },
        };
        self.messages.insert(id.clone(), message);
        "CREATED".to_owned()
    }

    /// A message leaves for good, and a late repetition of its push must not bring it back.
    fn erase(&mut self, now: Now, id: &Text) {
        self.messages.remove(id);
        self.unready(id);
        self.remember(id, now.ceil() + REPEAT_MS, Fate::Cancelled);
    }

    pub(super) fn cancel(&mut self, now: Now, dead: bool, since: Option<u64>, ids: &[Text]) -> Reply {
        let (mut replies, mut gone) = (Vec::new(), 0);
        for id in ids {
            let memory = self.recent.get(id).filter(|memory| memory.lasts(now));
            let earlier = memory.is_some_and(|memory| {
                memory.fate == Fate::CancelledAndReused && since.is_some_and(|since| memory.until >= since + REPEAT_MS)
            });
            let cancelled = memory.is_some_and(|memory| memory.fate == Fate::Cancelled);
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
        self.forget(now, 2 * gone);
        Reply::List(vec![self.finish(now, gone > 0, false), Reply::List(replies)])
    }

    /// From here on only this due time counts.
    fn move_to(&mut self, now: Now, id: &Text, due: u64) {
        if let Some(message) = self.messages.get_mut(id) {
            (message.original, message.place) = (None, Place::Scheduled { due });
        }
        self.unready(id);
        if due <= now.floor() + REPEAT_MS {
            self.remember(id, now.ceil() + REPEAT_MS, Fate::Delivered);
        }
    }

    pub(super) fn reschedule(&mut self, now: Now, items: &[(Text, Due, Option<u64>)]) -> Reply {
        let (mut replies, mut changed) = (Vec::new(), 0);
        for (id, due, expected) in items {
            let reply = match (due.at(now), self.place(id)) {
                (None, _) => "INVALID".to_owned(),
                (_, None) => "ABSENT".to_owned(),
                (_, Some(place @ (Place::Leased { .. } | Place::Dead { .. }))) => place.name().to_uppercase(),
                (Some(due), Some(place)) if place.time() == due => format!("MOVED {due}"),
                (Some(_), Some(place)) if expected.is_some_and(|expected| expected != place.time()) => {
                    format!("CONFLICT {}", place.time())
                }
                (Some(due), Some(_)) => {
                    self.move_to(now, id, due);
                    changed += 1;
                    format!("MOVED {due}")
                }
            };
            replies.push(Reply::from(reply));
        }
        self.forget(now, 2 * changed);
        Reply::List(vec![self.finish(now, changed > 0, false), Reply::List(replies)])
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
        Reply::List(vec![self.finish(now, changed > 0, false), Reply::List(replies)])
    }

    fn revive(&mut self, now: Now, id: &Text) {
        if let Some(message) = self.messages.get_mut(id) {
            (message.failures, message.crashes, message.error, message.original) = (0, 0, Text::default(), None);
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
        Reply::List(vec![self.finish(now, changed > 0, false), Reply::List(replies)])
    }

    pub(super) fn requeue_oldest(&mut self, now: Now, limit: usize, before: Option<u64>) -> Reply {
        let mut old = self.listed("dead");
        old.retain(|(at, _)| before.is_none_or(|before| *at <= before));
        let changed = old.len().min(limit);
        for (_, id) in &old[..changed] {
            self.revive(now, id);
        }
        self.count("requeued", changed);
        Reply::List(vec![self.finish(now, changed > 0, false), changed.into(), (old.len() - changed).into()])
    }

    pub(super) fn purge(&mut self, now: Now, state: &str, limit: usize) -> Reply {
        let all = self.listed(state);
        let purged = all.len().min(limit);
        for (_, id) in &all[..purged] {
            self.erase(now, id);
        }
        self.count("purged", purged);
        self.forget(now, 2 * purged);
        Reply::List(vec![self.finish(now, purged > 0, false), purged.into(), (all.len() - purged).into()])
    }

    pub(super) fn pause(&mut self, now: Now, after: &State) -> Result<Reply> {
        self.create(after)?;
        let changed = !std::mem::replace(&mut self.paused, true);
        Ok(Reply::List(vec![self.finish(now, changed, false), "OK".into()]))
    }

    pub(super) fn resume(&mut self, now: Now) -> Reply {
        let changed = std::mem::take(&mut self.paused);
        Reply::List(vec![self.finish(now, changed, false), "OK".into()])
    }

    pub(super) fn configure(&mut self, now: Now, pairs: &[(&'static str, Text)], after: &State) -> Result<Reply> {
        self.create(after)?;
        for (name, value) in pairs {
            self.limits.remove(name);
            if !value.0.is_empty() {
                self.limits.insert(name, value.clone());
            }
        }
        Ok(Reply::List(vec![self.finish(now, true, false), "OK".into()]))
    }
}
