//! Recurring work: schedules, whose fires become messages.
//!
//! A [`Schedule`] is a period or a cron pattern with a name, a payload and policies. At each fire
//! Redis makes a *tick*: a message with an id of its own, which a worker gets as any other.
//! [`Delivery::tick`](crate::Delivery::tick) tells the handler the schedule and the time of the
//! tick.
//!
//! - A [`ScheduleSet`], from [`Queue::schedules`](crate::Queue::schedules), declares all schedules
//!   of one owner, such as those of a service. An `apply` changes schedules that differ, and can
//!   remove schedules that are no longer declared: [`ScheduleChanges`].
//! - A [`ScheduleHandle`], from [`Queue::schedule`](crate::Queue::schedule), reads, previews,
//!   triggers, backfills, pauses and removes one schedule.
//! - [`MissedPolicy`] says what becomes of fires while no worker ran, [`OverlapPolicy`] what
//!   becomes of a fire while an earlier tick is there.
//! - [`Queue::list_schedules`](crate::Queue::list_schedules) pages through the schedules of a
//!   queue.
//!
//! `Schedule::cron` needs the feature `schedules`; [`Schedule::every`] needs none. The
//! [guide](https://github.com/dueq/dueq/blob/main/docs/guide/schedules.md) has the details.
//!
//! ```
//! # dueq_testkit::doctest!(|orders| {
//! use dueq::schedules::{MissedPolicy, OverlapPolicy, Schedule};
//! use std::time::Duration;
//!
//! let sync = Schedule::every(Duration::from_secs(900))
//!     .name("sync")
//!     .missed(MissedPolicy::One)
//!     .overlap(OverlapPolicy::Skip);
//! // The set as it is at revision 1 of the program: an older program changes nothing any more.
//! let changes = orders.schedules("billing").revision(1).prune(true).apply([sync]).await?;
//! assert_eq!(changes.created.len(), 1);
//! for fire in orders.schedule("sync").next(3).await? {
//!     println!("{} ms after 1970", fire.nominal_ms);
//! }
//! # });
//! ```

pub use crate::model::schedule::{
    BackfillOutcome, Fire, Fires, MissedPolicy, OverlapPolicy, RefillOutcome, Schedule,
    ScheduleChange, ScheduleChanges, ScheduleCursor, ScheduleInfo, SchedulePage, ScheduleState,
    Tick, TriggerOutcome,
};
pub use crate::queue::{ScheduleHandle, ScheduleSet};
