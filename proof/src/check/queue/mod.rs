//! Rules about a whole queue: I20 to I22 and U1 of docs/protocol/guarantees.md, the order of
//! changes, moves between partitions, pauses, calls of operators, and what a failover may undo.

pub(super) mod batches;
pub(super) mod copies;
pub(super) mod limits;
pub(super) mod moves;
pub(super) mod operators;
pub(super) mod order;
pub(super) mod partitions;
pub(super) mod pauses;
pub(super) mod rollback;
pub(super) mod windows;
