//! What an operator does with queues and their messages.

pub(crate) mod counts;
pub(crate) mod ended_leases;
pub(crate) mod foreign;
pub(crate) mod limits;
pub(crate) mod moves;
pub(crate) mod operator;
pub(crate) mod partitions;
pub(crate) mod selections;
