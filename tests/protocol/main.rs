//! The contract of the Lua scripts, proved on private servers: nothing of the library is used, only the files in `lua/dist/`
//! and the text that wraps them as Functions.
//!
//! Time is what `ARGV[1]` says (queues here carry `meta.test`), so that nothing sleeps and 48 hours pass in a millisecond.

mod frozen;
mod migration;
mod model;
mod queue;
mod reply;
mod scripts;
mod state;
mod table;
mod vectors;
