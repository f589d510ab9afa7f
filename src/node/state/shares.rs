//! Which queue gets the next free handlers of a node. Pure: it reads no clock and does no I/O.
//!
//! All queues of a node share one limit of running handlers. A handler counts as running from the
//! `allot` that gives it until its `release`.
//!
//! - A queue never has more than its `max`.
//! - Within its reserve a queue may take any free handler. Beyond it, the queue leaves enough
//!   handlers free for the unused reserves of all other queues.
//! - `Order` decides between the queues that may take.
//!
//! `Order::Weighted` compares the virtual times of the queues: see `usage`.

pub(crate) mod parts;
#[cfg(test)]
mod tests;
mod turns;
mod usage;

use std::collections::{HashMap, hash_map::Entry};
use std::fmt;
use std::time::{Duration, Instant};

use crate::node::QueueId;
use crate::node::consumers::slots::Ended;
use usage::Usage;

/// What one queue may have of the node's handlers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ShareSettings {
    /// At least 1. Only `Order::Weighted` uses it.
    pub(crate) weight: u32,
    /// Handlers that no other queue may take.
    pub(crate) reserve: usize,
    /// The most handlers that it may have. `usize::MAX`: no limit of its own.
    pub(crate) max: usize,
}

/// Which of the queues that may take a handler gets the next one.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Order {
    /// The queue that is the furthest behind its part of the handler time, by weight.
    Weighted,
    /// The queue added first. A queue that has waited for `max_wait` is overdue: each overdue queue
    /// gets one handler, the longest waiting first. Then at least one handler goes by rank before
    /// the same queue has another such turn, so a long backlog cannot reverse the order.
    Strict { max_wait: Duration },
}

/// A queue or partition that could use handlers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Want<Id> {
    pub(crate) id: Id,
    /// How many it could use now.
    pub(crate) handlers: usize,
    /// How many it could use besides these in a moment, when it can claim again. Its part of the
    /// free handlers is given to no other queue.
    pub(crate) soon: usize,
    /// How long its oldest due message has waited, as far as the node knows.
    pub(crate) waited: Duration,
}

/// Why a queue cannot be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShareError {
    ZeroWeight,
    ZeroMax,
    ReserveAboveMax {
        reserve: usize,
        max: usize,
    },
    /// `reserves` counts all queues of the node and the new one.
    ReservesAboveConcurrency {
        reserves: usize,
        concurrency: usize,
    },
    AddedTwice,
}

impl fmt::Display for ShareError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ZeroWeight => f.write_str("its weight is 0; give at least 1"),
            Self::ZeroMax => f.write_str("its max is 0; give at least 1, or pause the queue"),
            Self::ReserveAboveMax { reserve, max } => {
                write!(f, "its reserve of {reserve} is above its max of {max}")
            }
            Self::ReservesAboveConcurrency {
                reserves,
                concurrency,
            } => write!(
                f,
                "with it the reserves are {reserves} handlers, above the worker's concurrency of {concurrency}"
            ),
            Self::AddedTwice => f.write_str("the worker has this queue already"),
        }
    }
}

impl std::error::Error for ShareError {}

/// The state of one queue.
struct Share {
    settings: ShareSettings,
    /// The order of adding.
    rank: u64,
    running: usize,
    usage: Usage,
    /// The `allot` in which it last competed for handlers.
    competed: u64,
    /// The `allot` in which it last got one.
    served: u64,
    /// See [`Shares::era`].
    era: u64,
    paused: bool,
    removed: bool,
    /// The round in which it had its last turn as an overdue queue.
    overdue_turn: Option<u64>,
}

impl Share {
    fn settle(&mut self, now: Instant) {
        self.usage.settle(self.running, self.settings.weight, now);
    }

    fn may_take(&self) -> bool {
        !self.paused && !self.removed
    }

    /// The part of its reserve that must stay free for it.
    fn unused_reserve(&self) -> usize {
        if self.may_take() {
            self.settings.reserve.saturating_sub(self.running)
        } else {
            0
        }
    }
}

/// The running handlers of a node's queues.
pub(crate) struct Shares {
    concurrency: usize,
    order: Order,
    queues: HashMap<QueueId, Share>,
    added: u64,
    /// The sum over `queues`; also of those that were removed.
    running: usize,
    /// The sum over `queues`, paused ones included.
    reserves: usize,
    /// The sum over `queues`.
    unused_reserves: usize,
    /// Grows when a handler goes by rank: overdue queues may have their next turn.
    round: u64,
    /// The number of the last `allot`.
    allots: u64,
    /// The mean virtual time of the queues that compete, by weight.
    fair: f64,
    /// Grows when every queue has what it wants. What a queue used in a former era is forgotten.
    era: u64,
}

impl Shares {
    pub(crate) fn new(concurrency: usize, order: Order) -> Self {
        Self {
            concurrency,
            order,
            queues: HashMap::new(),
            added: 0,
            running: 0,
            reserves: 0,
            unused_reserves: 0,
            round: 0,
            allots: 0,
            fair: 0.0,
            era: 0,
        }
    }

    /// Adds a queue behind those added before. After an error nothing has changed.
    pub(crate) fn add(
        &mut self,
        queue: QueueId,
        settings: ShareSettings,
    ) -> Result<(), ShareError> {
        let ShareSettings {
            weight,
            reserve,
            max,
        } = settings;
        if weight == 0 {
            return Err(ShareError::ZeroWeight);
        }
        if max == 0 {
            return Err(ShareError::ZeroMax);
        }
        if reserve > max {
            return Err(ShareError::ReserveAboveMax { reserve, max });
        }
        let reserves = self.reserves.saturating_add(reserve);
        if reserves > self.concurrency {
            return Err(ShareError::ReservesAboveConcurrency {
                reserves,
                concurrency: self.concurrency,
            });
        }
        let Entry::Vacant(entry) = self.queues.entry(queue) else {
            return Err(ShareError::AddedTwice);
        };
        entry.insert(Share {
            settings,
            rank: self.added,
            running: 0,
            usage: Usage::default(),
            competed: 0,
            served: 0,
            era: 0,
            paused: false,
            removed: false,
            overdue_turn: None,
        });
        self.added += 1;
        self.reserves = reserves;
        self.unused_reserves += reserve;
        Ok(())
    }

    /// Gives the queue nothing more. Its running handlers count until they are released.
    pub(crate) fn remove(&mut self, queue: QueueId) {
        let reserve = self.change(queue, |share| {
            let reserve = if share.removed {
                0
            } else {
                share.settings.reserve
            };
            share.removed = true;
            reserve
        });
        self.reserves -= reserve.unwrap_or(0);
    }

    /// While a queue is paused it gets nothing, and its share and reserve go to the others.
    pub(crate) fn set_paused(&mut self, queue: QueueId, paused: bool) {
        self.change(queue, |share| share.paused = paused);
    }

    /// Gives free handlers to the queues of `wants`, at most what each asks for, and counts them as
    /// running. The first of the reply is the queue that got the first handler. `wants` has a queue
    /// at most once. Costs O(wants + handlers given × log wants); other queues cost nothing.
    pub(crate) fn allot(&mut self, wants: &[Want<QueueId>], now: Instant) -> Vec<(QueueId, usize)> {
        if self.free() == 0 || wants.iter().all(|want| want.handlers == 0) {
            return Vec::new();
        }
        self.allot_in_turns(wants, now)
    }

    /// Handlers of the queue have started: from now on their time is charged.
    pub(crate) fn start(&mut self, queue: QueueId, handlers: usize, now: Instant) {
        if let Some(share) = self.queues.get_mut(&queue) {
            share.settle(now);
            share.usage.running += handlers;
        }
    }

    /// Handlers of the queue ended, or it did not need them.
    pub(crate) fn release(&mut self, queue: QueueId, ended: Ended, now: Instant) {
        let handlers = ended.unused + ended.ran;
        if handlers == 0 {
            return;
        }
        self.change(queue, |share| {
            debug_assert!(handlers <= share.running, "released more than it had");
            share.settle(now);
            share.usage.end(ended, share.settings.weight);
            share.running = share.running.saturating_sub(handlers);
        });
    }

    /// How many handlers the queues have.
    pub(crate) fn held(&self) -> usize {
        self.running
    }

    /// How many handlers the queue has.
    #[cfg(test)]
    pub(crate) fn running(&self, queue: QueueId) -> usize {
        self.queues.get(&queue).map_or(0, |share| share.running)
    }

    /// How many handlers no queue has, reserved ones included.
    pub(crate) fn free(&self) -> usize {
        self.concurrency - self.running
    }

    /// How many handlers the queue would get now if no other queue wanted any.
    pub(crate) fn free_for(&self, queue: QueueId) -> usize {
        self.queues
            .get(&queue)
            .map_or(0, |share| self.free_to(share))
    }

    fn free_to(&self, share: &Share) -> usize {
        if !share.may_take() {
            return 0;
        }
        let own = share.unused_reserve();
        let of_others = self.unused_reserves - own;
        // Others may run in its reserve if it was added or resumed while they did.
        let open = self.free().saturating_sub(of_others);
        let until_max = share.settings.max - share.running;
        open.max(own.min(self.free())).min(until_max)
    }

    /// Whether only queues with an unused reserve can take a free handler.
    fn only_reserves_are_free(&self) -> bool {
        self.free() <= self.unused_reserves
    }

    fn take(&mut self, queue: QueueId, handlers: usize) {
        self.change(queue, |share| share.running += handlers);
    }

    /// Changes the state of a queue and keeps the sums. Drops a removed queue that runs nothing.
    fn change<T>(&mut self, queue: QueueId, change: impl FnOnce(&mut Share) -> T) -> Option<T> {
        let share = self.queues.get_mut(&queue)?;
        self.running -= share.running;
        self.unused_reserves -= share.unused_reserve();
        let changed = change(share);
        self.running += share.running;
        self.unused_reserves += share.unused_reserve();
        if share.removed && share.running == 0 {
            self.queues.remove(&queue);
        }
        Some(changed)
    }
}
