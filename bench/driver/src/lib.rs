//! A driver makes a delay queue measurable for `dueq-bench`: it is a program that reads requests as
//! JSON lines from its standard input, and answers each on its standard output.
//!
//! Every measured system, dueq among them, has such a program: so all are timed in one way, and
//! none shares a process with another. This crate has the protocol, and for systems in Rust
//! everything except the queue itself. `bench/README.md` describes the protocol for other
//! languages.

mod message;
mod protocol;
mod run;
mod sink;

pub use message::{Message, due_of, unix_us};
pub use protocol::{Dues, Order, Reply, Request};
pub use run::{Queue, run};
pub use sink::Sink;
