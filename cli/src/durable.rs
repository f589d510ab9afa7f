//! The flags for durability: which servers must confirm a change before the call returns.

use std::time::Duration;

use clap::Args;
use dueq::Durability;

use crate::time;

#[derive(Args)]
pub(crate) struct Durable {
    /// Succeed only when N replicas have the change too; the change stays even if this fails
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    replicas: Option<u32>,
    /// Succeed only when the change is on the server's disk, and with --replicas on the disks of N
    /// replicas (Redis 7.2 or newer, or Valkey)
    #[arg(long)]
    fsync: bool,
    /// How long to wait for replicas and disks; 1m at most
    #[arg(long, value_name = "TIME", value_parser = time::delay, default_value = "1s")]
    durability_timeout: Duration,
}

impl Durable {
    pub(crate) fn durability(&self) -> Durability {
        let timeout = self.durability_timeout;
        match (self.fsync, self.replicas) {
            (false, None) => Durability::Memory,
            (false, Some(replicas)) => Durability::Replicated { replicas, timeout },
            (true, replicas) => Durability::Fsynced {
                local: true,
                replicas: replicas.unwrap_or(0),
                timeout,
            },
        }
    }
}
