//! What proves dueq: runs under faults with the checker of their histories, and proofs of what only a
//! long run shows.

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
