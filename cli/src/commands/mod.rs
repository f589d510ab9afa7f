//! One file or folder for each command.

pub(crate) mod acl;
pub(crate) mod bench;
pub(crate) mod configure;
pub(crate) mod dev;
pub(crate) mod doctor;
pub(crate) mod functions;
pub(crate) mod healthcheck;
pub(crate) mod history;
pub(crate) mod ids;
pub(crate) mod import;
pub(crate) mod inspect;
pub(crate) mod keys;
pub(crate) mod limits;
pub(crate) mod ls;
pub(crate) mod nodes;
pub(crate) mod partitions;
pub(crate) mod push;
mod push_file;
pub(crate) mod queues;
pub(crate) mod reschedule;
pub(crate) mod schedule;
pub(crate) mod serve;
pub(crate) mod stats;
pub(crate) mod work;
pub(crate) mod workers;
