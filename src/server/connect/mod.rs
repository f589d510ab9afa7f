//! New connections: where to, with which certificates and password, and whether they live.

pub(crate) mod connector;
pub(super) mod credentials;
pub(crate) mod options;
pub(crate) mod pool;
pub(crate) mod probe;
pub(super) mod target;
