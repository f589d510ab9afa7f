//! `dueq work` and `dueq dev` as an operator uses them, on private servers.

mod batch;
mod collector;
mod dev;
mod exec;
mod hostile;
mod http;
mod log;
mod metrics;
mod print;
mod queues;
pub(crate) mod service;
mod signals;
mod support;
mod throttle;
mod traces;
