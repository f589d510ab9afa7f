//! Queues on the masters of a Redis Cluster.

mod away;
mod connections;
mod doctor;
mod moving;
mod partitions;
mod serving;
