//! Queues on the masters of a Redis Cluster.

mod connecting;
mod moving;
mod serving;
