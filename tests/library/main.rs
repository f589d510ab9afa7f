//! Tests of the library through its public API. Each test starts its own server.
//!
//! Tests wait for events instead of sleeping, and a slow machine fails none of them. They assert
//! order, counts, that nothing is early, and upper bounds of many seconds.

mod cluster;
mod doctor;
mod faults;
mod functions;
mod input;
mod lifecycle;
mod partitions;
mod peer_failures;
mod pulls;
mod schedules;
mod secrets;
mod support;
mod telemetry;
mod worker;
