//! Building a schedule: its ticks, and its policies.

use std::time::Duration;

use serde::Serialize;

use crate::error::Error;
use crate::model::due::ceil_ms;
use crate::model::expiry::OnExpire;
use crate::model::schedule::{Missed, Overlap, Schedule};

impl Schedule {
    /// The payload of its ticks, byte for byte; empty unless set.
    ///
    /// ```
    /// use dueq::Schedule;
    /// use std::time::Duration;
    ///
    /// let sync = Schedule::every(Duration::from_secs(60)).name("sync").payload("all");
    /// # let _ = sync;
    /// ```
    #[must_use]
    pub fn payload(mut self, payload: impl Into<Vec<u8>>) -> Self {
        self.payload = payload.into();
        self
    }

    /// The payload of its ticks: this value as JSON. Fails if the value has no JSON form.
    ///
    /// ```
    /// use dueq::Schedule;
    /// use std::time::Duration;
    ///
    /// let daily = Schedule::every(Duration::from_secs(86_400)).name("prune").json(&42)?;
    /// # let _ = daily;
    /// # Ok::<(), dueq::Error>(())
    /// ```
    pub fn json<T: Serialize + ?Sized>(self, value: &T) -> Result<Self, Error> {
        let payload = serde_json::to_vec(value).map_err(|error| {
            Error::invalid(format!("the payload cannot be written as JSON: {error}"))
        })?;
        Ok(self.payload(payload))
    }

    /// What becomes of fires that were missed; [`Missed::One`] unless set.
    ///
    /// ```
    /// use dueq::{Missed, Schedule};
    /// use std::time::Duration;
    ///
    /// let sync = Schedule::every(Duration::from_secs(60)).name("sync").missed(Missed::All { max: 1_000 });
    /// # let _ = sync;
    /// ```
    #[must_use]
    pub fn missed(mut self, missed: Missed) -> Self {
        self.missed = missed;
        self
    }

    /// A fire that is later than this makes no tick: whole milliseconds, 1 ms to 100 years. Unless
    /// set, [`Missed`] says it.
    ///
    /// ```
    /// use dueq::Schedule;
    /// use std::time::Duration;
    ///
    /// let sync = Schedule::every(Duration::from_secs(60)).name("sync").within(Duration::from_secs(600));
    /// # let _ = sync;
    /// ```
    #[must_use]
    pub fn within(mut self, time: Duration) -> Self {
        self.within = Some(time);
        self
    }

    /// What becomes of a fire while an earlier tick waits or is with a handler; [`Overlap::Allow`]
    /// unless set.
    ///
    /// ```
    /// use dueq::{Overlap, Schedule};
    /// use std::time::Duration;
    ///
    /// let sync = Schedule::every(Duration::from_secs(60)).name("sync").overlap(Overlap::Skip);
    /// # let _ = sync;
    /// ```
    #[must_use]
    pub fn overlap(mut self, overlap: Overlap) -> Self {
        self.overlap = overlap;
        self
    }

    /// The limit of attempts of its ticks, as [`Message::max_attempts`](crate::Message::max_attempts).
    ///
    /// ```
    /// use dueq::Schedule;
    /// use std::time::Duration;
    ///
    /// let sync = Schedule::every(Duration::from_secs(60)).name("sync").max_attempts(3);
    /// # let _ = sync;
    /// ```
    #[must_use]
    pub fn max_attempts(mut self, limit: u32) -> Self {
        self.max_attempts = Some(limit);
        self
    }

    /// When its ticks expire, as [`Message::expires_after`](crate::Message::expires_after). A fire
    /// that is found later than that makes no tick.
    ///
    /// ```
    /// use dueq::Schedule;
    /// use std::time::Duration;
    ///
    /// let sync = Schedule::every(Duration::from_secs(60)).name("sync").expires_after(Duration::from_secs(30));
    /// # let _ = sync;
    /// ```
    #[must_use]
    pub fn expires_after(mut self, time: Duration) -> Self {
        self.expires_after_ms = Some(ceil_ms(time));
        self
    }

    /// What becomes of its ticks that expire, as [`Message::on_expire`](crate::Message::on_expire).
    ///
    /// ```
    /// use dueq::{OnExpire, Schedule};
    /// use std::time::Duration;
    ///
    /// let sync = Schedule::every(Duration::from_secs(60)).name("sync").expires_after(Duration::from_secs(30)).on_expire(OnExpire::Drop);
    /// # let _ = sync;
    /// ```
    #[must_use]
    pub fn on_expire(mut self, on_expire: OnExpire) -> Self {
        self.on_expire = on_expire;
        self
    }
}
