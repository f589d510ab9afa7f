#![doc = include_str!("lib.md")]

pub mod admin;
pub mod claims;
pub mod handlers;
pub mod inspect;
pub mod metrics;
pub mod outcomes;
pub mod schedules;
pub mod timers;
pub mod wheel;

mod acl;
mod batch;
#[cfg(any(test, feature = "harness"))]
#[doc(hidden)] // Checks of decoders for any bytes, for `fuzz/`.
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
mod worker;

pub use client::Client;
pub use delivery::Delivery;
pub use error::{Applied, Error, ErrorKind};
#[cfg(any(test, feature = "business-hours"))]
pub use model::business_hours::BusinessHours;
pub use model::codec::{Codec, Json, RawBytes};
pub use model::due::Due;
pub use model::durability::Durability;
pub use model::limits::QueueLimits;
pub use model::message::Message;
pub use model::outcomes::MessageState;
pub use model::push_rules::{OnConflict, OnExpire};
pub use model::rate::Rate;
pub use model::receipt::Receipt;
pub use model::retry::Retry;
pub use model::settlement::Settlement;
pub use model::stats::QueueStats;
pub use model::stored::StoredMessage;
pub use queue::{Push, Queue};
pub use server::connect::options::ClientOptions;
pub use worker::{
    Batch, Handler, QueueHealth, QueuePattern, QueueSettings, QueueWorker, Share, Worker,
    WorkerHandle, WorkerHealth, in_batches,
};

/// Hooks for programs that test dueq: to observe every script call, to replace scripts by broken
/// ones, to shorten the lists of crons, and to make internal tasks panic.
#[cfg(feature = "harness")]
pub mod harness {
    pub use crate::node::runtime::inject::{internal_tasks, limit_end, panic_in};
    pub use crate::server::harness::*;
}

/// Makes the Rust examples of these pages compile in tests.
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
