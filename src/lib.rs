#![doc = include_str!("../README.md")]

mod acl;
mod batch;
#[cfg(any(test, feature = "harness"))]
#[doc(hidden)] // What must hold for any bytes: for `fuzz/`.
pub mod checks;
mod claiming;
mod client;
mod delivery;
mod doctor;
mod due;
mod durability;
mod error;
mod events;
mod functions;
mod id;
mod inspect;
mod message;
mod metrics;
mod node;
mod operating;
mod outcome;
mod producing;
mod protocol;
mod queue;
mod retry;
pub mod timers;
pub mod wheel;

pub use acl::{Role, acl_rules};
pub use client::Client;
pub use delivery::Delivery;
pub use doctor::{Checkup, Finding, ServerTime, Unchecked, shell_word};
pub use due::Due;
pub use durability::Durability;
pub use error::{Applied, Error, ErrorKind};
pub use functions::{Functions, functions_code, functions_version, queue_keys};
pub use inspect::{Cursor, Limits, Listed, Page, Stats, Stored};
pub use message::{Message, OnConflict};
pub use metrics::{Bucket, Count, Histogram, Metrics};
pub use node::settlement::{IntoSettlement, Settlement};
pub use node::worker::Worker;
pub use outcome::{
    Cancelled, Extended, Pushed, Requeued, Rescheduled, Retried, RunNow, Settled, State,
};
#[cfg(feature = "harness")]
pub use protocol::harness;
pub use protocol::options::ClientOptions;
pub use queue::Queue;
pub use retry::Retry;

/// The examples of that page compile.
#[cfg(doctest)]
#[doc = include_str!("../TELEMETRY.md")]
struct Telemetry;
