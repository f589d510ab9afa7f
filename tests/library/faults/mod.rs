//! Failures around the library, and their effects on messages.

mod connections;
mod durability;
mod emptied;
mod failover;
mod full;
mod full_durable;
mod notices;
mod proxied;
mod restarts;
mod same_id;
mod tls;
mod unreachable;
