#![doc = include_str!("lib.md")]

mod acl;
mod batch;
#[cfg(any(test, feature = "harness"))]
#[doc(hidden)] // What must hold for any bytes: for `fuzz/`.
pub mod checks;
mod client;
mod delivery;
mod doctor;
mod error;
mod functions;
mod model;
mod node;
mod partition;
mod protocol;
mod queue;
mod router;
mod server;
mod telemetry;
pub mod timers;
pub mod wheel;
mod worker;

pub use acl::{Role, acl_rules};
pub use client::Client;
pub use delivery::{Delivery, DeliveryHandle};
pub use doctor::{AuditProgress, AuditSteps, Checkup, Finding, ServerTime, Unchecked, shell_word};
pub use error::{Applied, Error, ErrorKind};
pub use functions::{Functions, functions_code, functions_version, queue_keys};
#[cfg(any(test, feature = "business-hours"))]
pub use model::business_hours::BusinessHours;
pub use model::codec::{BoxError, Bytes, Codec, Json};
pub use model::due::Due;
pub use model::durability::Durability;
pub use model::expiry::OnExpire;
pub use model::history::{History, HistoryPoint, Resolution, Times};
pub use model::lease_token::LeaseToken;
pub use model::limits::Limits;
pub use model::message::{Message, OnConflict};
pub use model::outcomes::{
    Cancelled, Deleted, Extended, Followed, Kept, Pushed, Requeued, Rescheduled, Retried, RunNow,
    Settled, Snoozed, State, Throttled, Unused,
};
pub use model::outcomes::{Ended, Outcome, Waited};
pub use model::rate::Rate;
pub use model::reached::{Reached, Unread};
pub use model::receipt::Receipt;
pub use model::retry::Retry;
pub use model::schedule::{
    Backfilled, Declared, Fire, Fires, Missed, Overlap, Refilled, Schedule, ScheduleChanges,
    ScheduleCursor, ScheduleInfo, SchedulePage, ScheduleState, Tick, Triggered,
};
pub use model::settlement::{IntoSettlement, Settlement};
pub use model::stats::Dues;
pub use model::stats::NodeInfo;
pub use model::stats::PartitionInfo;
pub use model::stats::Stats;
pub use model::stats::{BulkEnd, BulkProgress};
pub use model::stored::{Cursor, Lease, Listed, Page, Stored};
pub use queue::{BulkSteps, Held, Push, Queue, RemoteDelivery, ScheduleHandle, ScheduleSet};
pub use server::connect::options::ClientOptions;
pub use server::new_queues::NewQueue;
pub use server::queue_scan::QueueScan;
pub use telemetry::metrics::{Bucket, Count, Histogram, Metrics};
pub use worker::{
    Batch, Handler, HandlerFuture, HandlerService, Health, InBatches, IntoHandler, IntoSettlements,
    Puller, Pullers, QueueHealth, QueuePattern, QueueSettings, QueueWorker, Share, Worker,
    WorkerHandle, in_batches,
};

/// For programs that test dueq: they observe every script call, may replace scripts by broken ones,
/// may shorten the lists of crons, and may make internal tasks panic.
#[cfg(feature = "harness")]
pub mod harness {
    pub use crate::node::runtime::inject::{internal_tasks, limit_end, panic_in};
    pub use crate::server::harness::*;
}

/// The Rust examples of these pages compile.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../README.md")]
    struct Readme;
    #[doc = include_str!("../docs/telemetry.md")]
    struct Telemetry;
    #[doc = include_str!("../docs/guide/quick-start.md")]
    struct QuickStart;
    #[doc = include_str!("../docs/guide/retries.md")]
    struct Retries;
    #[cfg(feature = "schedules")]
    #[doc = include_str!("../docs/guide/schedules.md")]
    struct Schedules;
    #[cfg(feature = "business-hours")]
    #[doc = include_str!("../docs/guide/business-hours.md")]
    struct BusinessHours;
    #[doc = include_str!("../docs/guide/durability.md")]
    struct Durability;
    #[doc = include_str!("../docs/guide/workers.md")]
    struct Workers;
    #[doc = include_str!("../docs/guide/pulls.md")]
    struct Pulls;
    #[doc = include_str!("../docs/guide/follow-ups.md")]
    struct FollowUps;
    #[doc = include_str!("../docs/guide/deployment.md")]
    struct Deployment;
}
