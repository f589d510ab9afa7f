//! Whether due messages are claimed in time, but for the faults of the run: L1 to L3 of
//! docs/protocol/guarantees.md.

pub(super) mod faults;
pub(super) mod lateness;
