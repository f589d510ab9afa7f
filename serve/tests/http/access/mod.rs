//! Access: what each caller may do, and what the audit log records.

mod audit;
mod bypass;
mod proxies;
mod proxy;
mod session;
mod tokens;
