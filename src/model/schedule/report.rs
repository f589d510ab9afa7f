//! What calls about schedules have done.

/// A schedule that an apply declares, and when it fires next.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Declared {
    /// The schedule's name.
    pub name: String,
    /// The nominal time of its next fire, in Unix milliseconds; `None` if it has ended or is paused.
    pub next_ms: Option<u64>,
}

/// What an [`apply`](crate::ScheduleSet::apply) has changed; with
/// [`dry_run`](crate::ScheduleSet::dry_run), what it would change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScheduleChanges {
    /// New schedules.
    pub created: Vec<Declared>,
    /// Schedules that differ from the stored ones. Their next fire is after the last one and after
    /// now, and their counts begin again.
    pub changed: Vec<Declared>,
    /// Schedules that are stored with the same spec: they stay as they are.
    pub kept: Vec<Declared>,
    /// The names of schedules that were removed, as the set no longer has them.
    pub removed: Vec<String>,
}

/// What a [`trigger`](crate::ScheduleHandle::trigger) has done.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub enum Triggered {
    /// It made the tick with this id.
    Created(String),
    /// A message with this id was there already.
    Exists(String),
    /// An earlier tick waits or is with a handler, and the schedule says
    /// [`Overlap::Skip`](crate::Overlap::Skip).
    Overlaps,
    /// There is no such schedule.
    Gone,
}

/// What a [`backfill`](crate::ScheduleHandle::backfill) has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Backfilled {
    /// How many ticks it made.
    pub created: u64,
    /// How many messages of these ids were there already.
    pub existing: u64,
}

/// What a [refill](crate::Queue::refill_schedules) has done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refilled {
    /// How many lists got fires.
    pub lists: u64,
    /// How many fires these lists have now, together.
    pub fires: u64,
    /// The names of schedules whose list was dry.
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
    /// The nominal time of the fire, in Unix milliseconds: the time for which the work is, however
    /// late the handler starts.
    pub nominal_ms: u64,
}
