//! The outcomes of calls as values: expected results, which are not errors.
//!
//! Each enum is named after its call: [`Queue::cancel`](crate::Queue::cancel) returns a
//! [`CancelOutcome`]. A `match` needs an arm `_`: later releases may add variants.
//!
//! | call | outcome |
//! |---|---|
//! | a push | [`PushOutcome`], in its [`Receipt`](crate::Receipt) |
//! | changes of a message by its id | [`CancelOutcome`], [`RescheduleOutcome`], [`RunNowOutcome`], [`RequeueOutcome`], [`BuryOutcome`] |
//! | settlements of a delivery | [`SettleOutcome`]; [`RetryOutcome`], [`SnoozeOutcome`], [`ThrottleOutcome`], [`AckPushOutcome`] |
//! | an extension of a lease | [`ExtendOutcome`] |
//! | a wait for the end of a message | [`WaitOutcome`] |
//! | a drain of nodes, and its end | [`DrainOutcome`] |
//! | a deletion of a queue | [`DeleteOutcome`]; [`UnusedOutcome`], with a [`KeepReason`] |
//!
//! The outcomes of calls on schedules are in [`schedules`](crate::schedules). What a handler
//! returns is a [`Settlement`](crate::Settlement), and how a message ended is a
//! [`MessageEnd`](crate::inspect::MessageEnd).
//!
//! ```
//! # dueq_testkit::doctest!(|orders| {
//! use dueq::outcomes::{CancelOutcome, PushOutcome};
//!
//! match orders.push("rate it").id("order:42").await?.outcome() {
//!     PushOutcome::Created => println!("stored"),
//!     PushOutcome::Exists(state) => println!("stored before, and {state} now"),
//!     other => println!("{other:?}"),
//! }
//! match orders.cancel("order:42").await? {
//!     CancelOutcome::Cancelled => println!("it will never be delivered"),
//!     CancelOutcome::Leased => println!("too late: a handler has the message"),
//!     other => println!("nothing to cancel: {other:?}"),
//! }
//! # });
//! ```

pub use crate::model::outcomes::{
    AckPushOutcome, BuryOutcome, CancelOutcome, DeleteOutcome, ExtendOutcome, KeepReason,
    PushOutcome, RequeueOutcome, RescheduleOutcome, RetryOutcome, RunNowOutcome, SettleOutcome,
    SnoozeOutcome, ThrottleOutcome, UnusedOutcome, WaitOutcome,
};
pub use crate::model::process::DrainOutcome;
