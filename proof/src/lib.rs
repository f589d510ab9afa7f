//! Proofs of dueq: runs under faults, whose histories a checker judges, and proofs that need long
//! runs.

// A fault is a future in a future of a run; in a release build they nest deeper than 128.
#![recursion_limit = "256"]
#![expect(
    missing_docs,
    reason = "not published; what is not plain from its name is said"
)]

pub mod broken;
pub mod check;
mod claims;
pub mod cluster;
pub mod drills;
pub mod faults;
pub mod history;
pub mod kit;
pub mod leftovers;
pub mod list;
pub mod payload;
pub mod queues;
pub mod recorder;
pub mod recovery;
pub mod report;
pub mod roles;
pub mod run;
pub mod runs;
pub mod stored;
pub mod ticks;
pub mod workload;
