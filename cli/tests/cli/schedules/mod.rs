//! `dueq schedule`.

pub(crate) mod changes;
pub(crate) mod files;
pub(crate) mod schedule;
