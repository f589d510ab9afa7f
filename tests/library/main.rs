//! The library through its public API, on real servers: each test starts one of its own.
//!
//! Nothing here waits for a time to pass where it can wait for an event, and nothing fails because a machine is slow:
//! what is asserted is order, number, that nothing is early, and upper bounds of many seconds.

mod doctor;
mod faults;
mod functions;
mod input;
mod lifecycle;
mod peer_failures;
mod secrets;
mod support;
mod telemetry;
mod worker;
