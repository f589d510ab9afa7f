//! A Redis Cluster: which master serves each slot, and how a client learns it.

pub(crate) mod refresher;
pub(crate) mod slots;
pub(crate) mod topology;
pub(super) mod url;
pub(crate) mod view;
