//! Traces of [dueq] in OpenTelemetry, by the [semantic conventions for
//! messaging](https://opentelemetry.io/docs/specs/semconv/messaging/messaging-spans/).
//!
//! | span | kind | made by | what it covers |
//! |---|---|---|---|
//! | `send QUEUE` | producer | [`send`], [`Sending`] | a push; a child of the current span. The message carries its context |
//! | `process QUEUE` | consumer | [`TraceLayer`], [`process`] | one run of a handler; the root of a trace, with a link to the push |
//! | `settle QUEUE` | client | both, by themselves | from the end of the handler to the answer of Redis; a child of `process` |
//!
//! The push may be days old, and one push may have many attempts: so `process` links to it instead
//! of continuing its trace.
//!
//! The spans go to the global tracer provider of the crate `opentelemetry`. Set it before you make
//! a [`TraceLayer`]. Without one nothing is recorded. The page docs/telemetry.md lists the
//! attributes and what is not promised.
//!
//! ```
//! # dueq_testkit::doctest!(|client| {
//! use dueq::{Delivery, Message};
//! use dueq_opentelemetry::{TraceLayer, send};
//!
//! async fn rate(delivery: Delivery) {
//!     println!("this run is {:?}", dueq_opentelemetry::trace_parent());
//! }
//!
//! let orders = client.queue("orders")?;
//! let worker = client.worker().layer(TraceLayer::new()).queue(&orders, rate).spawn()?;
//! send(&orders, Message::new("42").id("order:42")).await?;
//! # worker.shutdown().await?;
//! # });
//! ```

mod attributes;
mod context;
mod layer;
mod processing;
mod sending;

pub use context::trace_parent;
pub use layer::{TraceLayer, TraceService};
pub use processing::process;
pub use sending::{Sending, send};
