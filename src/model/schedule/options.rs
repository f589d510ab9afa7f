//! The methods that set the ticks and policies of a schedule, and the results of calls on
//! schedules.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::error::Error;
use crate::model::due::ceil_ms;
use crate::model::push_rules::OnExpire;
use crate::model::schedule::Schedule;

impl Schedule {
    /// Sets the payload of the schedule's ticks, byte for byte; empty unless set.
    ///
    /// ```
    /// use dueq::schedules::Schedule;
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

    /// Sets the payload of the schedule's ticks to this value as JSON. Fails if the value has no
    /// JSON form.
    ///
    /// ```
    /// use dueq::schedules::Schedule;
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

    /// What becomes of fires that were missed; [`MissedPolicy::One`] unless set.
    ///
    /// ```
    /// use dueq::schedules::{MissedPolicy, Schedule};
    /// use std::time::Duration;
    ///
    /// let sync = Schedule::every(Duration::from_secs(60)).name("sync").missed(MissedPolicy::All { max: 1_000 });
    /// # let _ = sync;
    /// ```
    #[must_use]
    pub fn missed(mut self, missed: MissedPolicy) -> Self {
        self.missed = missed;
        self
    }

    /// A fire that is handled later than this makes no tick: whole milliseconds, 1 ms to 100 years.
    /// The default depends on the [`MissedPolicy`].
    ///
    /// ```
    /// use dueq::schedules::Schedule;
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

    /// What becomes of a fire while an earlier tick waits or is with a handler;
    /// [`OverlapPolicy::Allow`] unless set.
    ///
    /// ```
    /// use dueq::schedules::{OverlapPolicy, Schedule};
    /// use std::time::Duration;
    ///
    /// let sync = Schedule::every(Duration::from_secs(60)).name("sync").overlap(OverlapPolicy::Skip);
    /// # let _ = sync;
    /// ```
    #[must_use]
    pub fn overlap(mut self, overlap: OverlapPolicy) -> Self {
        self.overlap = overlap;
        self
    }

    /// Sets the limit of attempts of each tick, as
    /// [`Message::max_attempts`](crate::Message::max_attempts).
    ///
    /// ```
    /// use dueq::schedules::Schedule;
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

    /// Sets when each tick expires, as [`Message::expires_after`](crate::Message::expires_after). A
    /// fire that is handled later than that makes no tick.
    ///
    /// ```
    /// use dueq::schedules::Schedule;
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

    /// Sets what becomes of ticks that expire, as
    /// [`Message::on_expire`](crate::Message::on_expire).
    ///
    /// ```
    /// use dueq::OnExpire;
    /// use dueq::schedules::Schedule;
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

/// What happens to fires that no worker took at once: Redis or all workers were away, the queue was
/// paused, or older messages waited before them.
///
/// [`ScheduleInfo::missed`](crate::schedules::ScheduleInfo::missed) counts the fires that are
/// dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum MissedPolicy {
    /// The newest missed fire makes a tick, however late.
    #[default]
    One,
    /// The newest missed fire makes a tick if it is at most 10 s late, or as late as
    /// [`within`](crate::schedules::Schedule::within) allows.
    Skip,
    /// Each missed fire of the last 24 h makes a tick, the oldest first, but only the newest `max`
    /// of them. [`within`](crate::schedules::Schedule::within) sets another time than 24 h.
    All {
        /// The most ticks: 1 to 100,000; 1,000 is a good number.
        max: u64,
    },
}

/// What becomes of a fire while an earlier tick of the schedule waits or is with a handler. Dead
/// ticks do not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum OverlapPolicy {
    /// The fire makes a tick: several ticks of the schedule may run at the same time.
    #[default]
    Allow,
    /// The fire makes no tick.
    /// [`ScheduleInfo::overlapped`](crate::schedules::ScheduleInfo::overlapped) counts it.
    Skip,
    /// The fire makes a tick, and earlier ticks that wait are removed. A tick that a handler has is
    /// not touched.
    Replace,
}

impl fmt::Display for MissedPolicy {
    /// Writes the policy as the program's files name it: `one`, `skip` or `all`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::One => "one",
            Self::Skip => "skip",
            Self::All { .. } => "all",
        })
    }
}

impl fmt::Display for OverlapPolicy {
    /// Writes the policy as the program's files name it: `allow`, `skip` or `replace`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Allow => "allow",
            Self::Skip => "skip",
            Self::Replace => "replace",
        })
    }
}

/// A schedule that an apply declares, and when it fires next.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScheduleChange {
    /// The schedule's name.
    pub name: String,
    /// The nominal time of the schedule's next fire, in Unix milliseconds; `None` if it has ended
    /// or is paused.
    pub next_ms: Option<u64>,
}

/// What an [`apply`](crate::schedules::ScheduleSet::apply) has changed; with
/// [`dry_run`](crate::schedules::ScheduleSet::dry_run), what it would change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScheduleChanges {
    /// New schedules.
    pub created: Vec<ScheduleChange>,
    /// Schedules that differ from the stored ones. Each fires next after its last fire and after
    /// now, and its counts are reset.
    pub changed: Vec<ScheduleChange>,
    /// Schedules that are stored with the same spec: they stay as they are.
    pub kept: Vec<ScheduleChange>,
    /// The names of schedules that were removed, as the set no longer has them.
    pub removed: Vec<String>,
}

/// What a [`trigger`](crate::schedules::ScheduleHandle::trigger) has done.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub enum TriggerOutcome {
    /// The trigger made the tick with this id.
    Created(String),
    /// The trigger made no tick: a message with this id was there already.
    Exists(String),
    /// An earlier tick waits or is with a handler, and the schedule says
    /// [`OverlapPolicy::Skip`](crate::schedules::OverlapPolicy::Skip).
    Overlaps,
    /// The queue has no such schedule.
    Gone,
}

/// What a [`backfill`](crate::schedules::ScheduleHandle::backfill) has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackfillOutcome {
    /// How many ticks the backfill made.
    pub created: u64,
    /// How many ticks it did not make because a message of the id was there already.
    pub existing: u64,
}

/// What a [refill](crate::Queue::refill_schedules) has done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RefillOutcome {
    /// How many lists of fires were refilled.
    pub lists: u64,
    /// How many fires the refilled lists have now, together.
    pub fires: u64,
    /// The names of schedules whose list of fires was empty.
    pub dry: Vec<String>,
    /// Lists that were not refilled because another process has just refilled, changed or removed
    /// the schedule.
    pub overtaken: u64,
    /// Schedules of which this program cannot compute the fires, each with the reason.
    pub failed: Vec<String>,
}

/// A fire that a message was made for: see [`Delivery::tick`](crate::Delivery::tick).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Tick {
    /// The name of the schedule.
    pub schedule: String,
    /// The nominal time of the fire, in Unix milliseconds. The work of the tick is for this time,
    /// however late the handler starts.
    pub nominal_ms: u64,
}
