//! The life of a message from its push to its end.

mod changing;
mod contents;
mod due;
mod expiry;
mod follow_ups;
mod handlers;
mod inspecting;
mod limits;
mod outcome;
mod pushing;
mod receipts;
pub(crate) mod rights;
mod settling;
mod uniqueness;
