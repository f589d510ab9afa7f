//! Tests of the contract of the Lua scripts. Each test starts a server of its own. The tests call
//! the scripts of `lua/dist/` and the Functions library directly, without dueq's client.
//!
//! The tests give each call its time in `ARGV[1]`, which their queues allow by the field `test` in
//! meta. So no test sleeps, and 48 hours pass in a millisecond.

mod frozen;
mod migration;
mod model;
mod queue;
mod reply;
mod scripts;
mod state;
mod table;
mod vectors;
