//! Tests of the contract of the Lua scripts. Each test starts a server of its own.
//! They call the files in `lua/dist/` and the Functions library, without dueq's client.
//!
//! The tests pass the time in `ARGV[1]`: their queues have the field `test` in meta.
//! No test sleeps, and 48 hours pass in a millisecond.

mod frozen;
mod migration;
mod model;
mod queue;
mod reply;
mod scripts;
mod state;
mod table;
mod vectors;
