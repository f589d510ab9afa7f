//! Workers: sharing a queue, keeping leases, start and stop, many queues, kinds of handlers.

mod attempts;
mod batches;
mod broken;
mod fairness;
mod handlers;
#[cfg(feature = "harness")]
mod injected;
mod leases;
mod limits;
mod many;
mod new_queues;
mod patterns;
mod shares;
mod sharing;
mod starting;
mod stopping;
mod typed;
