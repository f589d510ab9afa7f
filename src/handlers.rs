//! What a handler can be, what it may return, and what a layer wraps.
//!
//! A first program needs none of these names: it passes a function to
//! [`Worker::queue`](crate::Worker::queue) and returns `()` or a `Result`. They are for generic
//! code, for layers, and for types that a handler returns.
//!
//! | you write | you need |
//! |---|---|
//! | a function that takes any handler, such as one that adds queues | [`IntoHandler`] |
//! | a handler whose own type is its result | [`IntoSettlement`]; for batches [`IntoSettlements`] |
//! | a function that returns a handler of batches | [`InBatches`] |
//! | a `tower` layer for [`Worker::layer`](crate::Worker::layer) | [`HandlerService`], [`HandlerFuture`], [`BoxError`] |
//! | a [`Codec`](crate::Codec) | [`BoxError`] |
//!
//! A handler with state is a type that implements [`Handler`](crate::Handler), and
//! [`in_batches`](crate::in_batches) makes a handler of many messages.
//!
//! ```
//! use dueq::handlers::IntoSettlement;
//! use dueq::{Delivery, Settlement};
//!
//! enum Charge {
//!     Paid,
//!     Declined,
//! }
//!
//! impl IntoSettlement for Charge {
//!     fn into_settlement(self) -> Settlement {
//!         match self {
//!             Charge::Paid => Settlement::Ack,
//!             Charge::Declined => Settlement::bury("the card was declined"),
//!         }
//!     }
//! }
//!
//! async fn charge(delivery: Delivery) -> Charge {
//!     match delivery.payload().is_empty() {
//!         true => Charge::Declined,
//!         false => Charge::Paid,
//!     }
//! }
//! # let _ = charge;
//! ```

pub use crate::model::codec::BoxError;
pub use crate::model::settlement::IntoSettlement;
pub use crate::worker::{HandlerFuture, HandlerService, InBatches, IntoHandler, IntoSettlements};
