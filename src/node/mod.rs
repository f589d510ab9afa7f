//! A node: the machinery of one worker. It promotes due messages, claims them for the handlers,
//! extends their leases, settles them, and takes back leases of dead nodes.
//!
//! ```text
//!   notices, reply headers ─► NodeTimers ─┐
//!   wake-up lists ────────────────────────┴─► Coordinator ─► promote / reap / beat / extend
//!                                     Shares ─────┴────────► claim ─► handlers ─► settlements
//! ```
//!
//! A node attends any number of queues. The `Coordinator` task owns the state of each, and makes
//! all calls. `NodeTimers` decides what is due when, and `Shares` which queue gets the free
//! handlers; both are pure. The tasks of a node run on a thread of their own, so that a handler
//! that blocks threads of the caller's runtime delays no other queue. `run` starts and stops these
//! tasks.
//!
//! | room | what is in it |
//! |---|---|
//! | `coordinator` | the task that decides: events and timers in, calls out |
//! | `state` | pure: what the node knows of its partitions and queues, timers, shares, ranks |
//! | `consumers` | handlers and pulls, permits, leases |
//! | `hints` | notices, wake-up lists, the scanner |
//! | `runtime` | the thread, its tasks and their supervision, the precise timer |
//!
//! `coordinator` uses all other rooms. `state` and `hints` use only rooms below them in this table,
//! `consumers` uses only `runtime`, and `runtime` uses none.

pub(crate) mod consumers;
pub(crate) mod coordinator;
mod hints;
pub(crate) mod runtime;
pub(crate) mod state;

/// Identifies a queue within its node, which never uses an id again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct QueueId(pub(crate) u32);

/// Identifies an attended partition within its node. Even a queue with one partition has both kinds
/// of ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PartitionId(pub(crate) u32);

/// The last ids of each kind that a node has given out.
#[derive(Default)]
pub(crate) struct LastIds {
    queue: u32,
    partition: u32,
}

impl LastIds {
    pub(crate) fn next_queue(&mut self) -> QueueId {
        self.queue += 1;
        QueueId(self.queue)
    }

    pub(crate) fn next_partition(&mut self) -> PartitionId {
        self.partition += 1;
        PartitionId(self.partition)
    }
}
