//! What a node knows, and what follows from it: its partitions and queues, their timers, and who gets
//! the free handlers. Pure: no file here reads a clock or does I/O; each gets the time as an argument.

pub(in crate::node) mod beat_mode;
pub(in crate::node) mod claim_state;
pub(crate) mod health;
pub(in crate::node) mod leases;
pub(in crate::node) mod loss;
pub(in crate::node) mod lost_claim;
pub(in crate::node) mod newest_reply;
pub(in crate::node) mod oldest_due;
pub(in crate::node) mod partition;
pub(crate) mod queue;
pub(in crate::node) mod ranking;
pub(in crate::node) mod refills;
pub(in crate::node) mod reporting;
pub(in crate::node) mod roster_watch;
pub(crate) mod shares;
pub(in crate::node) mod stranded;
pub(in crate::node) mod timers;
pub(in crate::node) mod wake_lists;
