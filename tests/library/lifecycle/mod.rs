//! The life of a message from its push to its end.

mod changing;
mod contents;
mod due;
mod follow_ups;
mod handlers;
mod held;
mod limits;
mod lives;
mod outcome;
mod overview;
mod pushing;
pub(crate) mod rights;
mod selections;
mod settling;
mod steps;
mod uniqueness;
mod unused;
