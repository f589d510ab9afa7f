//! Who may do what, and what is on record.

mod audit;
mod bypass;
mod proxies;
mod proxy;
mod session;
mod tokens;
