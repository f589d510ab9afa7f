//! The leases of all claims of a node, and when to check each. Pure.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use crate::node::PartitionId;
use crate::node::consumers::lease::{ClaimLease, LeaseCheck, ToExtend};
use crate::node::state::timers::{Action, Due, NodeTimers};
use crate::wheel::Key;

/// The node's claims by number, each with the timer of its next check.
#[derive(Default)]
pub(crate) struct Leases {
    claims: HashMap<u64, TrackedClaim>,
    /// The number of the last claim that granted messages.
    last: u64,
}

struct TrackedClaim {
    lease: Arc<ClaimLease>,
    timer: Option<Key>,
}

impl Leases {
    /// The number for the next claim that grants messages.
    pub(crate) fn next_number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Adds a claim that granted messages; their handlers are about to start.
    pub(crate) fn add(
        &mut self,
        partition: PartitionId,
        lease: Arc<ClaimLease>,
        timers: &mut NodeTimers,
    ) {
        let number = lease.number;
        let check = Due::Act(partition, Action::CheckLeases(number));
        let timer = timers.schedule(check, lease.first_check());
        self.claims.insert(number, TrackedClaim { lease, timer });
    }

    /// Removes a claim of which every delivery has been settled or given up.
    pub(crate) fn ended(&mut self, claim: u64, timers: &mut NodeTimers) {
        if let Some(claim) = self.claims.remove(&claim) {
            timers.cancel(claim.timer);
        }
    }

    /// Checks the leases of a claim. Returns the extensions to make.
    pub(crate) fn check(
        &mut self,
        partition: PartitionId,
        claim: u64,
        timers: &mut NodeTimers,
        now: Instant,
    ) -> Vec<(Arc<ClaimLease>, ToExtend)> {
        let Some(tracked) = self.claims.get_mut(&claim) else {
            return Vec::new();
        };
        let LeaseCheck { extend, next } = tracked.lease.check(now);
        let check = Due::Act(partition, Action::CheckLeases(claim));
        tracked.timer = next.and_then(|at| timers.schedule(check, at));
        let lease = &tracked.lease;
        let extension = |one| (Arc::clone(lease), one);
        extend.into_iter().map(extension).collect()
    }
}
