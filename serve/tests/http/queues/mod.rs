//! Calls about whole queues.

mod cluster;
mod conditions;
mod delete;
mod history;
mod limits;
pub(crate) mod lists;
mod metrics;
mod observe;
