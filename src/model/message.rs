//! A message to push: its payload, its id, when it is due, and its options.

use std::time::Duration;

use serde::Serialize;
use uuid::Uuid;

use crate::error::Error;
use crate::model::due::Due;
use crate::model::durability::Durability;
use crate::model::expiry::{Expires, OnExpire};
use crate::model::uniqueness::Uniqueness;

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
pub struct Message {
    /// `None`: private, made by the push.
    pub(crate) id: Option<Vec<u8>>,
    pub(crate) payload: Vec<u8>,
    pub(crate) due: Due,
    /// How much later than `due` the message may become due; 0 for not at all.
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

/// What a push does if its id is scheduled or ready already. It never changes a message that a
/// handler has, nor a dead one unless the push is told to [`revive`](Message::revive) it.
///
/// Pushes with `Keep` call the script `push`, the others call `upsert`, in batches of their own: no
/// order holds between the two, unless the caller awaits the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
#[non_exhaustive]
pub enum OnConflict {
    /// The waiting message stays as it is.
    #[default]
    Keep,
    /// The waiting message gets the new due time; payload and options stay.
    Reschedule,
    /// The waiting message is replaced: payload, due time and options.
    Replace,
    /// As `Replace`; and if a handler has the message, the queue keeps the new one for after it. The
    /// push returns [`PushOutcome::Next`](crate::outcomes::PushOutcome::Next).
    ///
    /// However that delivery ends, also by a crash, the kept message then waits under the id, with
    /// its own payload, options and due time, and no attempts. A delivery that fails is not retried:
    /// the kept message takes its place. The queue keeps one, the last that was pushed. A cancel
    /// removes it and returns [`Cancelled::Next`](crate::outcomes::CancelOutcome::Next).
    ///
    /// Needs layout 3: see [`Limits::layout3`](crate::QueueLimits::layout3). A push into another queue
    /// fails with [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) and says so. Unlike
    /// `Reschedule` and `Replace`, the library repeats such a push when its reply is lost.
    Next,
}

impl Message {
    /// A message with these payload bytes: at most the queue's limit (1 MiB unless configured,
    /// never more than 16 MiB).
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

    /// The id, unique within the queue: 1 to 200 bytes without control bytes. Checked at the push.
    ///
    /// The id makes a push safe to repeat. Cancel and reschedule take it.
    ///
    /// A dead message keeps its id: until it is removed, a push of the id returns
    /// [`PushOutcome::Exists`](crate::outcomes::PushOutcome::Exists) with [`State::Dead`](crate::MessageState::Dead). The
    /// queue keeps the newest 100,000 dead messages, for 30 days, unless [`Limits`](crate::QueueLimits)
    /// set other limits. To free the id earlier, call
    /// [`Queue::cancel_dead`](crate::Queue::cancel_dead). To deliver the dead message again, call
    /// [`Queue::requeue`](crate::Queue::requeue).
    #[must_use]
    pub fn id(mut self, id: impl AsRef<[u8]>) -> Self {
        self.id = Some(id.as_ref().to_vec());
        self
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
    #[must_use]
    pub fn new_id(mut self) -> Self {
        self.id = Some(new_id());
        self
    }

    /// When the message is due: a [`Duration`](std::time::Duration) from now, a
    /// [`SystemTime`](std::time::SystemTime), or a [`Due`].
    #[must_use]
    pub fn due(mut self, due: impl Into<Due>) -> Self {
        self.due = due.into();
        self
    }

    /// Makes the message due up to `window` later, never earlier: for many messages with one due
    /// time, such as a campaign, that would otherwise be due in one millisecond.
    ///
    /// How much later depends on the id alone, so that a repeated push asks for the same due time:
    /// `crc32("spread" + id) % (window in ms + 1)` milliseconds, with the CRC-32 of zlib. Windows
    /// above 49 days have the effect of 49 days. Due time and window together reach at most 100
    /// years ahead. Fractions of a millisecond do not count. Checked at the push.
    ///
    /// ```
    /// use dueq::Message;
    /// use std::time::Duration;
    ///
    /// let (tomorrow, minute) = (Duration::from_secs(86_400), Duration::from_secs(60));
    /// let mail = |customer: u32| Message::new("sale").id(format!("sale:{customer}"));
    /// let campaign = (0..10_000).map(|customer| mail(customer).due(tomorrow).spread(minute));
    /// # let _ = campaign.count();
    /// ```
    #[must_use]
    pub fn spread(mut self, window: Duration) -> Self {
        self.spread_ms = u64::try_from(window.as_millis()).unwrap_or(u64::MAX);
        self
    }

    /// After how many failed attempts the message is dead: 1 to 1,000,000. It replaces the queue's
    /// limit. Checked at the push.
    #[must_use]
    pub fn max_attempts(mut self, max_attempts: u32) -> Self {
        self.max_attempts = Some(max_attempts);
        self
    }

    /// What to do if a message with this id waits already; [`OnConflict::Keep`] unless set.
    ///
    /// If the id is not in the queue, the message is stored as by any push. If a handler has it,
    /// the push returns `Exists(Leased)` and changes nothing, except with [`OnConflict::Next`].
    /// Redis receives pushes that keep and pushes that move or replace in any order, unless the
    /// caller awaits the first one. A push with `Reschedule` or `Replace` is not repeated by the
    /// library when its reply is lost: the error says
    /// [`Applied::Unknown`](crate::Applied::Unknown).
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use dueq::{Message, OnConflict};
    /// use dueq::outcomes::PushOutcome;
    ///
    /// orders.push("remind").id("cart:7").await?;
    /// let newer = Message::new("remind twice").id("cart:7").on_conflict(OnConflict::Replace);
    /// assert_eq!(orders.push_message(newer).await?.outcome(), PushOutcome::Moved);
    /// # });
    /// ```
    #[must_use]
    pub fn on_conflict(mut self, on_conflict: OnConflict) -> Self {
        self.on_conflict = on_conflict;
        self
    }

    /// The durability of this push, instead of the queue's.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = Some(durability);
        self
    }

    /// The trace of the push, as [W3C Trace
    /// Context](https://www.w3.org/TR/trace-context/#traceparent-header) writes it in the header
    /// `traceparent`: `00-`, 32 hexadecimal digits of the trace, `-`, 16 of the span, `-`, 2 of
    /// flags, all lower case, trace and span not all zero. Checked at the push.
    ///
    /// The trace is stored with the message through every attempt, and the handler reads it with
    /// [`Delivery::trace_parent`](crate::Delivery::trace_parent). `OnConflict::Reschedule` keeps
    /// the trace of the waiting message. It takes about 120 bytes of Redis's memory. `tracestate`
    /// and baggage are not stored.
    ///
    /// ```
    /// use dueq::Message;
    ///
    /// let message = Message::new("42").trace_parent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    /// # let _ = message;
    /// ```
    #[must_use]
    pub fn trace_parent(mut self, trace_parent: impl Into<String>) -> Self {
        self.trace_parent = Some(trace_parent.into());
        self
    }

    /// Its payload.
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

    /// Whether pushing it twice has the effect of once.
    pub(crate) fn is_repeatable(&self) -> bool {
        // A repetition of a push with `Next` that was applied changes nothing.
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
        // A stored option takes memory, and 1 is what a message without it costs.
        if let Some(cost) = self.cost.filter(|&cost| cost != 1) {
            words.push(format!("cost={cost}"));
        }
        words.extend(self.unique.words());
        words.join(" ")
    }
}

/// The digits of base 62, in the order of their bytes.
pub(crate) const DIGITS: &[u8; 62] =
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The id of a message that its producer did not name: a UUIDv7 in 22 characters.
pub(crate) fn new_id() -> Vec<u8> {
    compact(Uuid::now_v7()).into_bytes()
}

/// A UUID in 22 characters of base 62, in the order of the UUIDs.
pub(crate) fn compact(uuid: Uuid) -> String {
    /// Ten digits at a time fit 64 bits, whose divisions are many times as fast.
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
    String::from_utf8(text).unwrap_or_default() // of ASCII: it is always
}

#[cfg(test)]
mod tests {
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
