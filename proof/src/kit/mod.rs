//! What the proofs share: their processes, the proxy, scenarios and the law of schedules.

pub(crate) mod crew;
pub mod law;
pub mod place;
pub(crate) mod process;
pub mod proxy;
pub(crate) mod scenarios;
pub mod server;
