//! What happens to a message between its push and its end.

mod changing;
mod contents;
mod due;
mod handlers;
mod limits;
mod looking;
mod pushing;
mod settling;
