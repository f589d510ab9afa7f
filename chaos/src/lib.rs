//! Histories of what processes did to a queue and what they were told, and the checker that reads them.

#![expect(missing_docs, reason = "not published; what is not plain from its name is said")]

pub mod broken;
pub mod check;
pub mod history;
pub mod leftovers;
pub mod payload;
pub mod recorder;
pub mod roles;
pub mod workload;
