//! Examines a server or a queue: finds faults, names their consequences, and says how to repair
//! them.

mod audit;
mod changing;
mod checkup;
mod cluster_findings;
mod deliveries;
mod findings;
mod leases;
mod limits;
mod orphans;
mod partitions;
mod queue;
mod schedules;
mod server;
mod server_findings;
mod shell;
mod spread;

pub use audit::{AuditProgress, AuditSteps};
pub use checkup::{Checkup, Finding, UncheckedPart};
#[cfg(any(test, feature = "harness"))]
pub(crate) use findings::raw_findings;
pub use server::ServerTime;
pub use shell::shell_word;
