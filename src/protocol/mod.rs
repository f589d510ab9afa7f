//! The contract with Redis: key names, limits, verbs, and how requests and replies are written.

pub(crate) mod counts;
pub(crate) mod keys;
pub(crate) mod limits;
pub(crate) mod partition_map;
pub(crate) mod pattern;
pub(crate) mod placement;
pub(crate) mod replies;
pub(crate) mod results;
pub(crate) mod spread;
pub(crate) mod verbs;
