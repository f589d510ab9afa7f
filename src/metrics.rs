//! What this process has done with a queue: counters and histograms, for an exporter.
//!
//! [`Queue::metrics`](crate::Queue::metrics) returns a snapshot, [`Metrics`], and makes no call. It
//! covers this process and this client only; [`Queue::stats`](crate::Queue::stats) returns the
//! counts of all processes, from Redis.
//!
//! - [`Counter`] lists the counters, with the names and help texts that Prometheus expects.
//!   [`Metrics::counts`] has all of them, including any that later releases add.
//! - [`Histogram`] has the lateness of handlers and their run times, in [`Bucket`]s.
//! - [`PrometheusText`] writes both as a page for Prometheus.
//!
//! `examples/metrics.rs` serves such a page, and
//! [telemetry](https://github.com/dueq/dueq/blob/main/docs/telemetry.md) lists each with the spans
//! and events of `tracing`.
//!
//! ```
//! # dueq_testkit::doctest!(|orders| {
//! use dueq::metrics::Counter;
//!
//! orders.push("rate it").await?;
//! let metrics = orders.metrics();
//! assert_eq!(metrics.count(Counter::PushCreated), 1);
//! for (counter, value) in metrics.counts() {
//!     println!("dueq_{}_total {value}", counter.name());
//! }
//! if let Some(late_us) = metrics.lateness.quantile_us(0.99) {
//!     println!("99 of 100 handlers began at most {late_us} us late");
//! }
//! # });
//! ```

pub use crate::telemetry::metrics::text::PrometheusText;
pub use crate::telemetry::metrics::{Bucket, Counter, Histogram, Metrics};
