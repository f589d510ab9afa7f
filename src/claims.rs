//! Deliveries without handlers: claim, pull, and settle in any process.
//!
//! A [`Worker`](crate::Worker) is what nearly every program needs. This module is the level below
//! it, for programs that hand deliveries on: to another process, over HTTP, or to a job system.
//!
//! - [`Queue::claim`](crate::Queue::claim) takes due messages at once, or none.
//! - A [`Puller`] waits for due messages of one queue. [`Pullers`], from
//!   [`Client::pullers`](crate::Client::pullers), serve many queues over the same connections.
//! - A [`LeaseToken`] that the caller chooses makes a claim repeatable: after a crash
//!   [`Queue::held`](crate::Queue::held) returns the messages that the claim granted, as a
//!   [`HeldClaim`].
//! - A [`DeliveryHandle`] is the right to settle a delivery, as text. A [`RemoteDelivery`], from
//!   [`Queue::delivery`](crate::Queue::delivery), settles by it from any process.
//!
//! Only the caller extends these leases. Only workers and pullers take expired leases back. The
//! [guide](https://github.com/dueq/dueq/blob/main/docs/guide/pulls.md) has the details.
//!
//! ```
//! # dueq_testkit::doctest!(|orders| {
//! use dueq::claims::DeliveryHandle;
//! use std::time::Duration;
//!
//! orders.push("rate it").await?;
//! for delivery in orders.claim(10, Duration::from_secs(30)).await? {
//!     let text = delivery.into_handle().to_string();
//!     // In another process, within 30 s:
//!     let handle: DeliveryHandle = text.parse()?;
//!     let _acked = orders.delivery(handle).ack().await?;
//! }
//! # });
//! ```

pub use crate::delivery::DeliveryHandle;
pub use crate::model::lease_token::LeaseToken;
pub use crate::queue::{HeldClaim, RemoteDelivery};
pub use crate::worker::{Puller, Pullers};
