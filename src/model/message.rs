//! A message to push: its payload, its id, when it is due, and its options.

use serde::Serialize;
use uuid::Uuid;

use crate::error::Error;
use crate::model::due::Due;
use crate::model::durability::Durability;
use crate::model::options::push_options;
use crate::model::push_rules::{Expires, OnConflict, OnExpire, Uniqueness};

/// A message to push: payload bytes, an id, a due time and options.
///
/// Without [`id`](Message::id) or [`new_id`](Message::new_id) the id is private: each push of the
/// message makes a UUIDv7 in 22 characters before its first try, so that its repetitions are
/// recognised. The [`Receipt`](crate::Receipt) has it. Without a due time the message is due at
/// once.
///
/// ```
/// use dueq::{Message, OnConflict};
/// use std::time::Duration;
///
/// let message = Message::new("rate it").id("order:42").due(Duration::from_secs(48 * 3600)).max_attempts(5);
/// assert_eq!(message.id_bytes(), Some(&b"order:42"[..]));
///
/// // A heartbeat: each push of the same id moves the one message that waits.
/// let idle = Message::new("close").id("conn:7").due(Duration::from_secs(30)).on_conflict(OnConflict::Reschedule);
/// # let _ = idle;
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a message does nothing until it is pushed"]
pub struct Message {
    /// The id that the producer set. `None`: each push of the message makes a private id.
    pub(crate) id: Option<Vec<u8>>,
    pub(crate) payload: Vec<u8>,
    pub(crate) due: Due,
    /// The longest delay that the spread may add to `due`; 0 for no spread.
    pub(crate) spread_ms: u64,
    pub(crate) max_attempts: Option<u32>,
    pub(crate) on_conflict: OnConflict,
    pub(crate) durability: Option<Durability>,
    pub(crate) trace_parent: Option<String>,
    pub(crate) expires: Option<Expires>,
    pub(crate) on_expire: OnExpire,
    pub(crate) cost: Option<u32>,
    pub(crate) unique: Uniqueness,
}

/// The methods that set options. A [`Push`](crate::Push) has the same methods.
impl Message {
    push_options!();
}

impl Message {
    /// A message with these payload bytes: at most as many as the queue's limit (1 MiB unless
    /// configured, never more than 16 MiB).
    ///
    /// ```
    /// use dueq::Message;
    /// use std::time::Duration;
    ///
    /// let message = Message::new("rate it").id("order:42").due(Duration::from_secs(48 * 3600));
    /// # let _ = message;
    /// ```
    pub fn new(payload: impl Into<Vec<u8>>) -> Self {
        Self {
            id: None,
            payload: payload.into(),
            due: Due::AfterMs(0),
            spread_ms: 0,
            max_attempts: None,
            on_conflict: OnConflict::Keep,
            durability: None,
            trace_parent: None,
            expires: None,
            on_expire: OnExpire::Dead,
            cost: None,
            unique: Uniqueness::default(),
        }
    }

    /// A message with this value as JSON. Fails if the value has no JSON form.
    ///
    /// ```
    /// use dueq::Message;
    ///
    /// let message = Message::json(&42)?.id("order:42");
    /// # let _ = message;
    /// # Ok::<(), dueq::Error>(())
    /// ```
    pub fn json<T: Serialize + ?Sized>(value: &T) -> Result<Self, Error> {
        let payload = serde_json::to_vec(value).map_err(|error| {
            Error::invalid(format!("the payload cannot be written as JSON: {error}"))
        })?;
        Ok(Self::new(payload))
    }

    /// Gives the message a new id now: a UUIDv7 in 22 characters. For callers who must know the id
    /// before the push. Clones have the same id.
    ///
    /// ```
    /// use dueq::Message;
    ///
    /// let message = Message::new("rate it").new_id();
    /// assert_eq!(message.id_bytes(), message.clone().id_bytes());
    /// assert!(message.id_bytes().is_some());
    /// ```
    pub fn new_id(mut self) -> Self {
        self.id = Some(new_id());
        self
    }

    /// Stores the message only to undo a cancel: if nothing has happened to its id since, neither a
    /// push nor another caller's cancel. `cancelled_ms` is the time from
    /// [`Queue::cancel_to_undo`](crate::Queue::cancel_to_undo), at most 12 s ago.
    ///
    /// Otherwise the push returns
    /// [`PushOutcome::Finished`](crate::outcomes::PushOutcome::Finished), or `Exists` if the queue
    /// has a message of the id. The message starts with no attempts. Clients of release
    /// 0.1 that repeat its cancel are not noticed.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use dueq::Message;
    /// use std::time::Duration;
    ///
    /// let rating = Message::new("rate it").id("order:42").due(Duration::from_secs(60));
    /// assert!(orders.push_message(rating.clone()).await?.is_created());
    /// let (_cancelled, ms) = orders.cancel_to_undo("order:42").await?;
    /// assert!(orders.push_message(rating.undo(ms)).await?.is_created());
    /// # });
    /// ```
    pub fn undo(mut self, cancelled_ms: u64) -> Self {
        self.unique.undo_ms = Some(cancelled_ms);
        self
    }

    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// The payload bytes of the message.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// The id that was set. `None` if it is private: then each push of the message makes one, and
    /// [`Receipt::id`](crate::Receipt::id) returns it.
    ///
    /// ```
    /// use dueq::Message;
    ///
    /// assert_eq!(Message::new("rate it").id_bytes(), None);
    /// assert_eq!(Message::new("rate it").id("order:42").id_bytes(), Some(&b"order:42"[..]));
    /// ```
    pub fn id_bytes(&self) -> Option<&[u8]> {
        self.id.as_deref()
    }

    /// What the push does if a message with this id waits already, as
    /// [`on_conflict`](Message::on_conflict) sets it.
    ///
    /// ```
    /// use dueq::{Message, OnConflict};
    ///
    /// assert_eq!(Message::new("rate it").conflict(), OnConflict::Keep);
    /// ```
    pub fn conflict(&self) -> OnConflict {
        self.on_conflict
    }

    /// Whether pushing the message twice has the effect of pushing it once.
    pub(crate) fn is_repeatable(&self) -> bool {
        // A repeated push with `Next` changes nothing if the first one was applied.
        matches!(self.on_conflict, OnConflict::Keep | OnConflict::Next)
    }

    /// The options as the push script reads them.
    pub(crate) fn options(&self) -> String {
        let mut words = Vec::new();
        if let Some(limit) = self.max_attempts {
            words.push(format!("max_attempts={limit}"));
        }
        match self.on_conflict {
            OnConflict::Keep => {}
            OnConflict::Reschedule => words.push("on_conflict=reschedule".to_owned()),
            OnConflict::Replace => words.push("on_conflict=replace".to_owned()),
            OnConflict::Next => words.push("on_conflict=next".to_owned()),
        }
        if let Some(trace_parent) = &self.trace_parent {
            words.push(format!("traceparent={trace_parent}"));
        }
        match self.expires {
            None => {}
            Some(Expires::AfterMs(ms)) => words.push(format!("expires=+{ms}")),
            Some(Expires::AtMs(ms)) => words.push(format!("expires={ms}")),
        }
        if self.on_expire == OnExpire::Drop {
            words.push("on_expire=drop".to_owned());
        }
        // The default 1 is left out: a stored option takes memory.
        if let Some(cost) = self.cost.filter(|&cost| cost != 1) {
            words.push(format!("cost={cost}"));
        }
        words.extend(self.unique.words());
        words.join(" ")
    }
}

/// The digits of base 62, in ascending order of their bytes.
pub(crate) const DIGITS: &[u8; 62] =
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The id of a message that its producer did not name: a UUIDv7 in 22 characters.
pub(crate) fn new_id() -> Vec<u8> {
    compact(Uuid::now_v7()).into_bytes()
}

/// A UUID in 22 characters of base 62, in the order of the UUIDs.
pub(crate) fn compact(uuid: Uuid) -> String {
    /// Ten digits at a time: 62^10 fits 64 bits, and divisions of 64 bits are many times as fast as
    /// those of 128.
    const TEN: u128 = 62_u128.pow(10);
    let mut rest = uuid.as_u128();
    let mut text = vec![b'0'; 22];
    for part in text.rchunks_mut(10) {
        let mut digits = (rest % TEN) as u64;
        rest /= TEN;
        for place in part.iter_mut().rev() {
            *place = DIGITS[(digits % 62) as usize];
            digits /= 62;
        }
    }
    String::from_utf8(text).unwrap_or_default() // always ASCII
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn options_are_the_words_of_the_script() {
        assert_eq!(Message::new("").options(), "");
        let message = Message::new("")
            .max_attempts(3)
            .on_conflict(OnConflict::Replace);
        assert_eq!(message.options(), "max_attempts=3 on_conflict=replace");
        assert!(!message.is_repeatable());
        let message = Message::new("").trace_parent("00-x").max_attempts(3);
        assert_eq!(message.options(), "max_attempts=3 traceparent=00-x");
        assert!(message.is_repeatable());
        let message = Message::new("")
            .cost(1)
            .expires_after(Duration::from_micros(1));
        assert_eq!(message.options(), "expires=+1");
        let message = message.cost(2).expires_at(7).on_expire(OnExpire::Drop);
        assert_eq!(message.options(), "expires=7 on_expire=drop cost=2");
    }

    #[test]
    fn uniqueness_options_are_words_of_the_script() {
        let message = Message::new("")
            .window(Duration::from_micros(1))
            .reuse()
            .debounce(Duration::from_secs(5))
            .max_wait(Duration::from_secs(60))
            .revive()
            .undo(7);
        assert_eq!(
            message.options(),
            "on_conflict=replace window=1 max_wait=60000 reuse revive undo=7"
        );
        assert!(!message.is_repeatable());
        let next = Message::new("").on_conflict(OnConflict::Next);
        assert_eq!(next.options(), "on_conflict=next");
        assert!(next.is_repeatable());
    }
}

#[cfg(test)]
mod id_tests {
    use super::*;

    #[test]
    fn compact_ids_keep_the_order_of_their_uuids() {
        let ordered = [0, 1, 61, 62, u128::from(u64::MAX), u128::MAX - 1, u128::MAX]
            .map(|n| compact(Uuid::from_u128(n)));
        assert!(ordered.is_sorted(), "{ordered:?}");
        assert!(ordered.iter().all(|id| id.len() == 22));
    }
}
