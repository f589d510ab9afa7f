//! Workers: how they share, hold on to what they have, start and stop.

mod leases;
mod panics;
mod sharing;
mod starting;
mod stopping;
