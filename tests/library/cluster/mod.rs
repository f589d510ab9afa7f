//! Queues on the masters of a Redis Cluster.

mod away;
mod connecting;
mod connections;
mod doctor;
mod failover;
mod moving;
mod partitions;
mod reached;
mod rights;
mod serving;
