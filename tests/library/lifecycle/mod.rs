//! The life of a message from its push to its end.

mod changing;
mod contents;
mod due;
mod expiry;
mod handlers;
mod inspecting;
mod limits;
mod pushing;
mod receipts;
mod settling;
