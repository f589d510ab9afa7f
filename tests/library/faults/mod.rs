//! Failures around the library, and their effects on messages.

mod connections;
mod durability;
mod emptied;
mod failover;
mod failover_load;
mod full;
mod full_durable;
mod lost_next;
mod lost_replies;
mod notices;
mod proxied;
mod restarts;
mod same_id;
mod tls;
mod unreachable;

pub(crate) use restarts::signal;
