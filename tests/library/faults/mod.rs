//! Failures around the library, and their effects on messages.

mod blips;
mod connections;
mod durability;
mod emptied;
mod failover;
mod failover_load;
mod full_durable;
mod lost_claims;
mod lost_next;
mod lost_replies;
mod notices;
mod proxied;
mod refused_settlements;
mod restarts;
mod tls;
mod unreachable;

pub(crate) use restarts::signal;
