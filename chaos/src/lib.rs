//! Histories of the processes that use a queue under faults, and the checker that reads them.

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
pub mod leftovers;
pub mod payload;
pub mod proxy;
pub mod queues;
pub mod recorder;
pub mod recovery;
pub mod report;
pub mod roles;
pub mod run;
pub mod stored;
pub mod ticks;
pub mod workload;
