//! What follows the end of a delivery in the model: a next message, and the messages of ack_push.

use crate::model::memory::Earlier;
use crate::model::message::Place;
use crate::model::operation::{Hold, Item};
use crate::model::pushes::Pushing;
use crate::model::world::{Now, World};
use crate::reply::{Reply, Text};

impl World {
    /// Ends a delivery that has a next message: that one is the message now. Returns its due time.
    pub(super) fn start_next(&mut self, id: &Text, verb: &str) -> Option<u64> {
        let message = self.messages.get_mut(id)?;
        let next = message.next.take()?;
        *message = *next;
        let due = message.place.time();
        self.meet(format!("next message started by {verb}"));
        Some(due)
    }

    /// The result of a settlement with this token. Acks the delivery if it is the current one, and
    /// returns the number of names that `recent` got.
    pub(super) fn ack_one(&mut self, now: Now, (id, token): &Hold, verb: &str) -> (String, usize) {
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

    /// All or nothing: it tries the call on a copy of the queue.
    pub(super) fn ack_push(&mut self, now: Now, hold: &Hold, items: &[Item]) -> Reply {
        let parts = |header, result: &str, replies: Vec<String>| {
            let replies = replies.into_iter().map(Reply::from).collect();
            Reply::List(vec![header, result.into(), Reply::List(replies)])
        };
        let mut tried = self.clone();
        // The names of the ack do not count against `max_remembered`.
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
