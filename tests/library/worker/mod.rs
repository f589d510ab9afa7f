//! Workers: sharing a queue, keeping leases, start and stop, many queues, kinds of handlers.

mod batches;
mod broken;
mod drained;
mod fairness;
mod handlers;
#[cfg(feature = "harness")]
mod injected;
mod leases;
mod limits;
mod many;
mod patterns;
mod shares;
mod sharing;
mod stopping;
mod typed;
