//! `dueq serve`, and what a program may not tell.

pub(crate) mod killed;
pub(crate) mod secrets;
pub(crate) mod serve;
pub(crate) mod tls;
