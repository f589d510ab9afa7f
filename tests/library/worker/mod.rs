//! Workers: sharing a queue, keeping leases, start and stop.

mod leases;
mod panics;
mod sharing;
mod starting;
mod stopping;
