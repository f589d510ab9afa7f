//! The contract with Redis: key names, scripts, replies, and the connections that carry them.
//!
//! Nothing outside this module and `client` names the Redis crates.

#[cfg(any(test, feature = "harness"))]
pub(crate) mod checks;
pub(crate) mod clock;
pub(crate) mod connect;
pub(crate) mod durable;
pub(crate) mod failure;
#[cfg(test)]
mod fake;
pub(crate) mod functions;
#[cfg(feature = "harness")]
pub mod harness;
pub(crate) mod keys;
pub(crate) mod lane;
pub(crate) mod limits;
pub(crate) mod listening;
mod master;
pub(crate) mod options;
pub(crate) mod replies;
pub(crate) mod scripts;
pub(crate) mod sentinel;
pub(crate) mod server;
pub(crate) mod target;
pub(crate) mod waiting;
