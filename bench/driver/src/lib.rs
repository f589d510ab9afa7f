//! A delay queue as `dueq-bench` sees it: a program that is told what to do in JSON lines on its standard input and
//! answers each on its standard output.
//!
//! Every system that is measured is such a program, dueq among them, so that all are timed the same way and none shares
//! a process with another. This crate has the protocol and, for those in Rust, everything but the queue itself.
//! `bench/README.md` describes the protocol for other languages.

mod message;
mod protocol;
mod run;
mod sink;

pub use message::{Message, due_of, unix_us};
pub use protocol::{Dues, Order, Reply, Request};
pub use run::{Queue, run};
pub use sink::Sink;
