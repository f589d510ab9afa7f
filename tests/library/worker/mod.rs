//! Workers: sharing a queue, keeping leases, start and stop, many queues, kinds of handlers.

mod batches;
mod handlers;
mod leases;
mod many;
mod panics;
mod patterns;
mod sharing;
mod starting;
mod stopping;
