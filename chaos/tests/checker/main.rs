//! The checker on histories made by hand: for each violation one that has it, and a near miss that has not.

mod counts;
mod excuses;
mod failovers;
mod histories;
mod operators;
mod repeats;
mod simulated;
mod simulation;
mod story;
mod whole_queues;
mod wrong;
