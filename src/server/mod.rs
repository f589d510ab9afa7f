//! Redis servers and the connections to them: choosing a server, calling its scripts, blocking
//! pops, subscriptions.

pub(crate) mod blocking;
pub(crate) mod clock;
pub(crate) mod cluster;
pub(crate) mod connect;
pub(crate) mod durable;
pub(crate) mod failure;
#[cfg(test)]
pub(crate) mod fake;
pub(crate) mod functions;
#[cfg(feature = "harness")]
pub(crate) mod harness;
pub(crate) mod info;
pub(crate) mod lane;
pub(crate) mod link;
pub(crate) mod new_queues;
pub(crate) mod patience;
mod query;
pub(crate) mod queue_scan;
pub(crate) mod rounds;
pub(crate) mod route;
pub(crate) mod scan;
pub(crate) mod sentinel;
pub(crate) mod servers;
pub(crate) mod stores;
pub(crate) mod subscription;
