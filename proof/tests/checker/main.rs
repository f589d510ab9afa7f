//! Tests the checker on hand-made histories: for each violation a history that has it, and a near
//! miss that does not.

mod after_faults;
mod backfills;
mod counts;
mod excuses;
mod failovers;
mod follow_ups;
mod histories;
mod http;
mod late_ticks;
mod limits;
mod moves;
mod operators;
mod partitions;
mod repeats;
mod shares;
mod simulated;
mod simulation;
mod story;
mod ticks;
mod whole_queues;
mod wrong;
