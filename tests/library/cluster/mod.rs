//! Queues on the masters of a Redis Cluster.

mod connecting;
mod failover;
mod moving;
mod rights;
mod serving;
