//! The part of the model for push and upsert.

use anyhow::Result;

use crate::model::client::operation::{Attempt, Hold, Item};
use crate::model::memory::{Earlier, Verdict};
use crate::model::message::{Due, Message, Place};
use crate::model::schedules::schedule::is_timer;
use crate::model::windows::WINDOW_MOST;
use crate::model::world::{CENTURY_MS, Now, REPEAT_MS, World};
use crate::reply::{Reply, Text};
use crate::state::State;

const MEBIBYTE: u64 = 1_048_576;

/// What a call of push or upsert has done so far.
pub(crate) struct Pushing<'a> {
    pub(crate) attempt: Option<&'a Attempt>,
    pub(crate) earlier: Earlier,
    /// The ids by which a repetition is recognised.
    pub(crate) noted: Vec<Text>,
    /// How many other names `recent` gets.
    pub(crate) names: usize,
    /// Whether `recent` may remember the call as a whole.
    pub(crate) whole: bool,
    pub(crate) created: usize,
    pub(crate) changed: bool,
    /// The ids whose message, or next message, the call stored.
    pub(crate) stored: Vec<Text>,
}

impl<'a> Pushing<'a> {
    pub(crate) fn new(attempt: Option<&'a Attempt>, earlier: Earlier) -> Self {
        Self {
            attempt,
            earlier,
            noted: Vec::new(),
            names: 0,
            whole: earlier == Earlier::None,
            created: 0,
            changed: false,
            stored: Vec::new(),
        }
    }

    fn exists(&mut self, id: &Text, state: &str) -> String {
        self.noted.push(id.clone());
        format!("EXISTS {state}")
    }
}

impl Item {
    /// Whether the item breaks a limit, whatever the state of its message is.
    fn is_invalid(&self, world: &World, now: Now, due: u64) -> bool {
        let longest = world.limit("max_payload_bytes").unwrap_or(MEBIBYTE);
        let conflict = self.on_conflict.unwrap_or("keep");
        let is_out = |value: Option<u64>, most| value.is_some_and(|ms| ms < 1 || ms > most);
        !(1..=200).contains(&self.id.0.len())
            || self.payload.0.len() as u64 > longest
            || self.expires == Some(Due::In(0))
            || self.on_expire.is_some() && self.expires.is_none()
            || self.cost.is_some_and(|cost| cost > world.most_cost())
            || !["keep", "reschedule", "replace", "next"].contains(&conflict)
            || is_out(self.window, WINDOW_MOST)
            || is_out(self.max_wait, CENTURY_MS)
            || self.max_wait.is_some() && conflict == "keep"
            || self.max_wait.is_some_and(|wait| due > now.ceil() + wait)
            || self.revive && !["replace", "next"].contains(&conflict)
            || conflict == "next" && !world.has_layout_3
    }

    /// Whether the expiry has passed, or is earlier than the due time.
    fn has_expired(&self, now: Now, due: u64) -> bool {
        matches!(self.expires, Some(Due::At(ms)) if ms <= now.ceil() || ms < due)
    }
}

impl World {
    pub(crate) fn push(
        &mut self,
        now: Now,
        upsert: bool,
        attempt: Option<&Attempt>,
        items: &[Item],
        after: &State,
    ) -> Result<Reply> {
        self.remembered_names = self.names(now);
        let mut call = Pushing::new(attempt, self.earlier(now, attempt));
        let replies = self.push_all(now, upsert, items, &mut call);
        if call.changed {
            self.create(after)?;
        }
        let (whole, noted) = (call.whole, &call.noted);
        call.names += attempt.map_or(0, |attempt| {
            self.note_call(attempt, whole, call.earlier, noted)
        });
        if call.names > 0 {
            self.forget(now, 2 * call.names);
        }
        let replies = replies.into_iter().map(Reply::from).collect();
        Ok(Reply::List(vec![
            self.finish(now, call.changed, false),
            Reply::List(replies),
        ]))
    }

    /// Pushes the items one after another. `remembered_names` must be set.
    pub(crate) fn push_all(
        &mut self,
        now: Now,
        upsert: bool,
        items: &[Item],
        call: &mut Pushing,
    ) -> Vec<String> {
        let mut replies = Vec::new();
        for item in items {
            let reply = match item.moves() == upsert {
                true => self.push_one(now, item, call),
                false => "INVALID".to_owned(),
            };
            call.created += usize::from(reply == "CREATED");
            call.whole &= reply == "CREATED" || reply.starts_with("EXISTS");
            replies.push(reply);
        }
        self.count("pushed", call.created);
        let expires = |id: &Text| {
            self.messages.get(id).is_some_and(|message| {
                let next = message.next.as_ref();
                message.expires.is_some() || next.is_some_and(|next| next.expires.is_some())
            })
        };
        if call.stored.iter().any(expires) {
            (self.is_expiring, self.is_selective) = (true, true);
        }
        replies
    }

    fn push_one(&mut self, now: Now, item: &Item, call: &mut Pushing) -> String {
        let id = &item.id;
        let Some(due) = item.due.at(now) else {
            return "INVALID".to_owned();
        };
        if item.is_invalid(self, now, due) {
            return "INVALID".to_owned();
        }
        if call.attempt.is_some_and(|attempt| attempt.is_too_late(now)) {
            return "EXPIRED".to_owned();
        }
        if self.messages.contains_key(id) {
            return self.push_existing(now, item, due, call);
        }
        if let Verdict::Finished(reply) = self.judge(now, call.attempt, call.earlier, id) {
            return reply;
        }
        if let Some(ms) = item.undo {
            if !self.was_cancelled_at(now, id, ms) {
                return "USED".to_owned();
            }
            self.meet("undone");
        }
        match self.remembered(now, id) {
            Some(end) if !item.reuse => return format!("REMEMBERED {end}"),
            Some(_) => self.meet("window reused"),
            None => {}
        }
        if item.has_expired(now, due) {
            return "INVALID".to_owned();
        }
        let is_timer = |id: &&Text| is_timer(id) && !self.is_frozen;
        let timers = self.messages.keys().filter(is_timer).count();
        let count = (self.messages.len() - timers) as u64;
        if self.limit("max_messages").is_some_and(|most| count >= most) {
            return "FULL".to_owned();
        }
        if let Some(window) = item.window {
            if self.remembered_names >= self.limit("max_remembered").unwrap_or(1_000_000) {
                self.meet("full of names");
                return "FULL".to_owned();
            }
            self.begin_window(now, id, window);
            call.names += 1;
        }
        call.names += self.pushed_again(now, id);
        if due <= now.floor() + REPEAT_MS || item.on_conflict == Some("next") {
            call.noted.push(id.clone());
        }
        self.grow(&item.payload);
        let due_by = item.max_wait.map(|wait| now.ceil() + wait);
        self.messages
            .insert(id.clone(), Message::new(item, due, due_by));
        call.stored.push(id.clone());
        call.changed = true;
        "CREATED".to_owned()
    }

    /// Pushes an item whose id is in use.
    fn push_existing(&mut self, now: Now, item: &Item, due: u64, call: &mut Pushing) -> String {
        let id = &item.id;
        let (follows, place) = (
            item.on_conflict == Some("next"),
            self.messages[id].place.clone(),
        );
        if !item.moves() {
            return call.exists(id, place.name());
        }
        if follows && self.was_applied(call.attempt, call.earlier, id) {
            // A repetition of the push changes nothing.
            self.meet(format!("repeated next, {}", place.name()));
            return match place {
                Place::Leased { .. } => "NEXT".to_owned(),
                Place::Dead { .. } => "EXISTS dead".to_owned(),
                _ => "MOVED".to_owned(),
            };
        }
        match place {
            Place::Dead { .. } if !item.revive && follows => {
                // Not noted: the item was not applied, and after a requeue a repetition may be.
                call.whole = false;
                return "EXISTS dead".to_owned();
            }
            Place::Dead { .. } if !item.revive => return call.exists(id, "dead"),
            Place::Dead { .. } => {
                // The message may have died again since the first try.
                if let Verdict::Finished(_) = self.judge(now, call.attempt, call.earlier, id) {
                    self.meet("repeated revive");
                    return call.exists(id, "dead");
                }
            }
            Place::Leased { .. } if !follows => return call.exists(id, "leased"),
            _ => {}
        }
        if item.on_conflict != Some("reschedule") && item.has_expired(now, due) {
            return "INVALID".to_owned();
        }
        if follows {
            call.noted.push(id.clone());
        }
        call.changed = true;
        if let Place::Leased { .. } = place {
            self.follow(now, item, due);
            call.stored.push(id.clone());
            return "NEXT".to_owned();
        }
        self.replace_or_reschedule(now, item, due, call);
        if let Place::Dead { .. } = place {
            self.meet("revived");
        }
        "MOVED".to_owned()
    }

    fn replace_or_reschedule(&mut self, now: Now, item: &Item, due: u64, call: &mut Pushing) {
        let (id, is_frozen) = (&item.id, self.is_frozen);
        let Some(message) = self.messages.get_mut(id) else {
            return;
        };
        let due_by = message.due_by().filter(|_| !is_frozen);
        let given_end = item.max_wait.map(|wait| now.ceil() + wait);
        let given = due;
        let due = due.min(due_by.unwrap_or(due));
        if item.on_conflict == Some("reschedule") {
            if !is_frozen {
                message.drop_word("expires_by");
            }
            if let (None, Some(end), false) = (due_by, given_end, message.has_run()) {
                message.added.push(("due_by", end));
            }
        } else {
            *message = Message::new(item, due, due_by.or(given_end));
            self.grow(&item.payload);
            call.stored.push(id.clone());
        }
        if due < given {
            self.meet("debounced");
        }
        call.names += usize::from(self.move_to(now, id, due));
    }

    /// Keeps the item as the next message of its id.
    fn follow(&mut self, now: Now, item: &Item, due: u64) {
        let Some(message) = self.messages.get_mut(&item.id) else {
            return;
        };
        let before = message.next.take();
        let due_by = before.as_ref().and_then(|before| before.due_by());
        let given_end = item.max_wait.map(|wait| now.ceil() + wait);
        let clamped = due.min(due_by.unwrap_or(due));
        message.next = Some(Box::new(Message::new(item, clamped, due_by.or(given_end))));
        self.grow(&item.payload);
        if before.is_some() {
            self.meet("next message replaced");
        }
        if clamped < due {
            self.meet("next message debounced");
        }
    }

    /// Records the length of a payload. The queue stores the longest one, rounded up to a power of
    /// two.
    pub(crate) fn grow(&mut self, payload: &Text) {
        if payload.0.len() > 4_096 {
            self.largest = self.largest.max(payload.0.len().next_power_of_two() as u64);
        }
    }
}

impl World {
    /// Ends a delivery that has a next message, which takes over. Returns its due time.
    pub(crate) fn start_next(&mut self, id: &Text, verb: &str) -> Option<u64> {
        let message = self.messages.get_mut(id)?;
        let next = message.next.take()?;
        *message = *next;
        let due = message.place.time();
        self.meet(format!("next message started by {verb}"));
        Some(due)
    }

    /// The result of a settlement with this token. Acks the delivery if it is the current one, and
    /// returns the number of names that `recent` got.
    pub(crate) fn ack_one(&mut self, now: Now, (id, token): &Hold, verb: &str) -> (String, usize) {
        let window = match self.place(id) {
            None => return ("GONE".to_owned(), 0),
            Some(Place::Leased {
                token: current,
                window,
                ..
            }) if current == token => *window,
            Some(_) => return ("LOST".to_owned(), 0),
        };
        let names = match window {
            true => self.note_outcome(now, id, false),
            false => 0,
        };
        if self.start_next(id, verb).is_none() {
            self.messages.remove(id);
        }
        ("OK".to_owned(), names)
    }

    /// Acks and pushes all follow-ups, or does nothing: it tries the call on a copy of the queue.
    pub(crate) fn ack_push(&mut self, now: Now, hold: &Hold, items: &[Item]) -> Reply {
        let parts = |header, result: &str, replies: Vec<String>| {
            let replies = replies.into_iter().map(Reply::from).collect();
            Reply::List(vec![header, result.into(), Reply::List(replies)])
        };
        let mut tried = self.clone();
        // The names that the ack adds do not count towards `max_remembered`.
        tried.remembered_names = tried.names(now);
        let (result, names) = tried.ack_one(now, hold, "ack_push");
        if result != "OK" {
            return parts(self.finish(now, false, false), &result, Vec::new());
        }
        let mut call = Pushing::new(None, Earlier::None);
        let replies = tried.push_all(now, false, items, &mut call);
        let is_own = |item: &Item| item.id == hold.0;
        let replies: Vec<String> = items
            .iter()
            .zip(replies)
            .map(|(item, reply)| {
                if is_own(item) {
                    "INVALID".to_owned()
                } else {
                    reply
                }
            })
            .collect();
        let refused = |reply: &String| ["INVALID", "FULL"].contains(&reply.as_str());
        if replies.iter().any(refused) {
            return parts(self.finish(now, false, false), "REFUSED", replies);
        }
        tried.count("acked", 1);
        if call.names + names > 0 {
            tried.forget(now, 2 * (call.names + names));
        }
        *self = tried;
        parts(self.finish(now, true, false), "OK", replies)
    }
}
