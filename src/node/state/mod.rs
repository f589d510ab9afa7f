//! What a node knows, and what follows from it: its partitions and queues, their timers, and who gets
//! the free handlers. Pure: no file here reads a clock or does I/O; each gets the time as an argument.

pub(crate) mod beat_mode;
pub(crate) mod claim_state;
pub(crate) mod health;
pub(crate) mod leases;
pub(crate) mod lost_claim;
pub(crate) mod newest_reply;
pub(crate) mod oldest_due;
pub(crate) mod partition;
pub(crate) mod queue;
pub(crate) mod ranking;
pub(crate) mod refills;
pub(crate) mod reporting;
pub(crate) mod roster_watch;
pub(crate) mod shares;
pub(crate) mod timers;
pub(crate) mod wake_lists;
