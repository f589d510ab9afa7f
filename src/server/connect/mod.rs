//! New connections: to which server, with which certificates and password, and whether they are
//! alive.

pub(crate) mod connector;
pub(super) mod credentials;
pub(crate) mod options;
pub(crate) mod pool;
pub(crate) mod probe;
pub(super) mod target;
