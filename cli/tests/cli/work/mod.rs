//! `dueq work` and `dueq dev` as an operator uses them, on private servers.

mod batch;
mod collector;
mod dev;
mod exec;
mod hostile;
mod http;
mod log;
pub(crate) mod metrics;
mod print;
mod queues;
pub(crate) mod service;
mod signals;
pub(crate) mod support;
mod throttle;
mod traces;
