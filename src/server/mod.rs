//! Redis servers and the connections to them: which server to use, calling its scripts, blocking
//! pops, subscriptions.

pub(crate) mod blocking;
pub(crate) mod clock;
mod cluster_url;
pub(crate) mod cluster_view;
pub(crate) mod connector;
mod credentials;
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
mod master;
pub(crate) mod new_queues;
pub(crate) mod options;
pub(crate) mod patience;
pub(crate) mod pool;
pub(crate) mod probe;
mod query;
pub(crate) mod queue_scan;
pub(crate) mod refresher;
pub(crate) mod rounds;
pub(crate) mod route;
pub(crate) mod sentinel;
pub(crate) mod sentinel_url;
pub(crate) mod servers;
pub(crate) mod slots;
pub(crate) mod subscription;
mod target;
pub(crate) mod topology;
