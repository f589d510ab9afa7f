//! The flags that say what must hold a change before the program calls it done.

use std::time::Duration;

use clap::Args;
use dueq::Durability;

use crate::time;

#[derive(Args)]
pub(crate) struct Durable {
    /// Done once so many replicas have it too; else it fails, though it may have been done
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    replicas: Option<u32>,
    /// Done once it is on the server's disk, and with --replicas on so many replicas' (Redis 7.2 or newer, or Valkey)
    #[arg(long)]
    fsync: bool,
    /// How long to wait for replicas and disks, a minute at most
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
