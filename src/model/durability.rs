//! How durable a change must be before its caller gets a result.

use std::time::Duration;

use crate::error::Error;

/// The longest wait for replicas or disks.
const MAX_TIMEOUT: Duration = Duration::from_secs(60);

/// What must confirm a push before it is acknowledged: chosen per message
/// ([`Message::durability`](crate::Message::durability)), per queue
/// ([`Queue::durability`](crate::Queue::durability)) or per client
/// ([`Client::durability`](crate::Client::durability)).
///
/// It applies to pushes, cancels, reschedules, [`run_now`](crate::Queue::run_now) and requeues of
/// one id. It does not apply to settlements and leases: a failover that undoes a settlement
/// delivers a handled message again, and consumers must tolerate that anyway.
///
/// If fewer replicas or disks confirm within `timeout`, the call fails with
/// [`ErrorKind::Unconfirmed`](crate::ErrorKind::Unconfirmed): the master has made the change, and
/// may lose it. If the caller repeats the call, it waits for confirmations again. A repeated cancel
/// does so only within 12 s of the first.
///
/// Use few different durabilities: each durability of a queue, its timeout included, has a
/// connection of its own. A queue keeps four such connections open, and has at most 16 while more
/// are in use. A call that needs a further one waits up to 10 s for another to end, and then fails
/// with [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable), not applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Durability {
    /// The change is in the master's memory. A failover loses changes that the new master had not
    /// received. A crash loses changes that were not on disk.
    #[default]
    Memory,
    /// The change is in the memory of the master and of this number of replicas (WAIT). If
    /// `replicas` is the number of all replicas, a promoted replica has the change. With fewer, a
    /// replica without the change may be promoted.
    Replicated {
        /// How many replicas must confirm: 1 or more.
        replicas: u32,
        /// How long to wait for the replicas: 1 ms to a minute.
        timeout: Duration,
    },
    /// The change is on disk (WAITAOF, in Redis from 7.2 and in Valkey): in the append-only file of
    /// the master if `local`, and of this number of replicas.
    Fsynced {
        /// Whether the master's own disk must confirm. If so, the master must keep an append-only
        /// file.
        local: bool,
        /// How many replicas' disks must confirm; may be 0 if `local`.
        replicas: u32,
        /// How long to wait for the disks: 1 ms to a minute.
        timeout: Duration,
    },
}

impl Durability {
    pub(crate) fn check(self) -> Result<(), Error> {
        match self {
            Self::Memory => return Ok(()),
            Self::Replicated { replicas: 0, .. } => {
                return Err(Error::invalid(
                    "Replicated with 0 replicas waits for no replica: use Memory",
                ));
            }
            Self::Fsynced {
                local: false,
                replicas: 0,
                ..
            } => {
                return Err(Error::invalid(
                    "Fsynced without `local` and with 0 replicas waits for no disk: use Memory",
                ));
            }
            Self::Replicated { .. } | Self::Fsynced { .. } => {}
        }
        if !(Duration::from_millis(1)..=MAX_TIMEOUT).contains(&self.timeout()) {
            return Err(Error::invalid(format!(
                "the timeout of {:?} for replicas or disks is not within 1 ms and {MAX_TIMEOUT:?}",
                self.timeout()
            )));
        }
        Ok(())
    }

    /// By how much the wait for replicas or disks may lengthen the call.
    pub(crate) fn timeout(self) -> Duration {
        match self {
            Self::Memory => Duration::ZERO,
            Self::Replicated { timeout, .. } | Self::Fsynced { timeout, .. } => timeout,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durability_without_replicas_or_time_limit_is_refused() {
        let timeout = Duration::from_secs(1);
        for good in [
            Durability::Memory,
            Durability::Replicated {
                replicas: 1,
                timeout,
            },
            Durability::Replicated {
                replicas: 2,
                timeout: MAX_TIMEOUT,
            },
            Durability::Fsynced {
                local: true,
                replicas: 0,
                timeout: Duration::from_millis(1),
            },
            Durability::Fsynced {
                local: false,
                replicas: 1,
                timeout,
            },
        ] {
            assert!(good.check().is_ok(), "{good:?}");
        }
        for bad in [
            Durability::Replicated {
                replicas: 0,
                timeout,
            },
            Durability::Fsynced {
                local: false,
                replicas: 0,
                timeout,
            },
            // For Redis a timeout of 0 means to wait for ever.
            Durability::Replicated {
                replicas: 1,
                timeout: Duration::ZERO,
            },
            Durability::Fsynced {
                local: true,
                replicas: 0,
                timeout: MAX_TIMEOUT + timeout,
            },
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }
}
