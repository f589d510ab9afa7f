//! `dueq serve`; and secrets that the program must not reveal.

pub(crate) mod killed;
pub(crate) mod secrets;
pub(crate) mod serve;
pub(crate) mod tls;
