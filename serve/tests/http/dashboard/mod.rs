//! The dashboard pages, as a browser without JavaScript receives them.

mod audit;
mod basics;
mod dead;
pub(crate) mod look;
mod message;
mod messages;
mod operations;
mod push;
mod queue;
mod queues;
mod schedules;
mod search;
mod server;
mod traffic;
mod truth;
mod undo;
mod workers;
