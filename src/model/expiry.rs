//! When a message expires, and what it costs of its queue's rate.

use std::time::Duration;

use crate::model::due::ceil_ms;
use crate::model::message::Message;

/// When a message expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expires {
    /// This number of milliseconds after the due time.
    AfterMs(u64),
    /// At this moment, in Unix milliseconds.
    AtMs(u64),
}

/// What becomes of a message that expires before a handler gets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
#[non_exhaustive]
pub enum OnExpire {
    /// The message is dead: it is listed with the reason, and can be requeued.
    #[default]
    Dead,
    /// The message is removed, and only [`Stats::expired`](crate::QueueStats::expired) counts it.
    Drop,
}

impl Message {
    /// No attempt starts later than this after the due time: 1 ms to 100 years, with fractions of a
    /// millisecond rounded up. Checked at the push.
    ///
    /// The deadline holds for retries too: a retry or snooze beyond it makes the message dead at
    /// once. A reschedule, `again` and a requeue give the message a new due time, from which it
    /// counts again. A running handler is not interrupted: see
    /// [`Delivery::expires_in`](crate::Delivery::expires_in). An expired message is found when it
    /// would be claimed; while no worker runs, it stays.
    ///
    /// ```
    /// use dueq::Message;
    /// use std::time::Duration;
    ///
    /// let (tomorrow, hour) = (Duration::from_secs(86_400), Duration::from_secs(3_600));
    /// let message = Message::new("your table is free").due(tomorrow).expires_after(2 * hour);
    /// # let _ = message;
    /// ```
    #[must_use]
    pub fn expires_after(mut self, time: Duration) -> Self {
        self.expires = Some(Expires::AfterMs(ceil_ms(time)));
        self
    }

    /// No attempt starts after this moment, in Unix milliseconds of the server: one that has not
    /// passed and is not before the due time, at most 100 years ahead. Checked at the push.
    ///
    /// It is as [`expires_after`](Message::expires_after), but a new due time does not move it. A
    /// requeue after it has passed forgets it.
    ///
    /// ```
    /// use dueq::Message;
    ///
    /// let until_22_h = 1_700_000_000_000;
    /// let message = Message::new("sale").expires_at(until_22_h);
    /// # let _ = message;
    /// ```
    #[must_use]
    pub fn expires_at(mut self, unix_ms: u64) -> Self {
        self.expires = Some(Expires::AtMs(unix_ms));
        self
    }

    /// What becomes of the message when it expires; [`OnExpire::Dead`] unless set. `Drop` needs
    /// `expires_after` or `expires_at`; checked at the push.
    ///
    /// ```
    /// use dueq::{Message, OnExpire};
    /// use std::time::Duration;
    ///
    /// let message = Message::new("tick").expires_after(Duration::from_secs(60)).on_expire(OnExpire::Drop);
    /// # let _ = message;
    /// ```
    #[must_use]
    pub fn on_expire(mut self, on_expire: OnExpire) -> Self {
        self.on_expire = on_expire;
        self
    }

    /// How many starts of the queue's [rate](crate::QueueLimits::rate) each attempt uses: 1 to
    /// 1,000,000, and at most the rate's burst; 1 unless set. Without a rate it has no effect.
    /// Checked at the push.
    ///
    /// If the burst is lowered later, the message costs a whole burst.
    ///
    /// ```
    /// use dueq::Message;
    ///
    /// let message = Message::new("export with 50 pages").cost(50);
    /// # let _ = message;
    /// ```
    #[must_use]
    pub fn cost(mut self, cost: u32) -> Self {
        self.cost = Some(cost);
        self
    }
}
