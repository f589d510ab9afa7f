//! Rules about a whole queue: I20 to I22 and U1 of docs/protocol/guarantees.md, the order of
//! changes, pauses, calls of operators, and what a failover may undo.

pub(super) mod limits;
pub(super) mod operators;
pub(super) mod order;
pub(super) mod partitions;
pub(super) mod pauses;
pub(super) mod rollback;
pub(super) mod windows;
