//! `dueq serve`; and secrets that the program must not reveal.

mod counters;
mod health;
pub(crate) mod killed;
pub(crate) mod secrets;
pub(crate) mod serve;
pub(crate) mod tls;
