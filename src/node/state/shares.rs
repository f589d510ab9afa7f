//! Which queue gets the next free handlers of a node. Pure: it reads no clock and does no I/O.
//!
//! All queues of a node share one limit of running handlers. A handler counts as running from the
//! `allot` that gives it until its `release`.
//!
//! - A queue never has more than its `max`.
//! - Within its reserve a queue may take any free handler. Beyond its reserve, it must leave enough
//!   handlers free for the unused reserves of all other queues.
//! - `Order` decides between the queues that may take a handler.
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
    /// The weight of the queue, at least 1. Only `Order::Weighted` uses it.
    pub(crate) weight: u32,
    /// The number of handlers that no other queue may take.
    pub(crate) reserve: usize,
    /// The most handlers of the queue; `usize::MAX` if it has no limit of its own.
    pub(crate) max: usize,
}

/// The order in which queues that may take a handler get one.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Order {
    /// The queue gets it that is furthest behind its part of the handler time, by weight.
    Weighted,
    /// The queue gets it that was added first. But a queue that has waited for `max_wait` is
    /// overdue: each overdue queue first gets one handler, the longest waiting queue first. Before
    /// it gets another one so, at least one handler goes by rank. So a long backlog cannot reverse
    /// the order.
    Strict { max_wait: Duration },
}

/// A queue or partition that could use handlers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Want<Id> {
    pub(crate) id: Id,
    /// How many handlers the queue or partition could use now.
    pub(crate) handlers: usize,
    /// How many more handlers it could use in a moment, when it can claim again. Its part of the
    /// free handlers is kept for it.
    pub(crate) soon: usize,
    /// For how long its oldest due message has waited, as far as the node knows.
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
    /// The reserves of all queues of the node, including the new one, exceed the concurrency.
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
    /// The rank of the queue: its number in the order of adding.
    rank: u64,
    running: usize,
    usage: Usage,
    /// The number of the `allot` in which the queue last competed for handlers.
    competed: u64,
    /// The number of the `allot` in which the queue last got a handler.
    served: u64,
    /// The era to which the queue's usage belongs: see [`Shares::era`].
    era: u64,
    paused: bool,
    removed: bool,
    /// The round in which the queue last had a turn as an overdue queue.
    overdue_turn: Option<u64>,
}

impl Share {
    fn settle(&mut self, now: Instant) {
        self.usage.settle(self.running, self.settings.weight, now);
    }

    fn may_take(&self) -> bool {
        !self.paused && !self.removed
    }

    /// How many handlers of the queue's reserve must stay free for it.
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
    /// The number of running handlers of all queues, including removed ones.
    running: usize,
    /// The sum of the reserves of `queues`, including paused ones.
    reserves: usize,
    /// The sum of the unused reserves of `queues`.
    unused_reserves: usize,
    /// The present round. It grows when a handler goes by rank, so that overdue queues may have
    /// their next turn.
    round: u64,
    /// The number of the last `allot`.
    allots: u64,
    /// The mean virtual time of the queues that compete, weighted.
    fair: f64,
    /// The present era. It grows when every queue has what it wants. Usage of an earlier era is
    /// forgotten.
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

    /// Adds a queue, ranked after all earlier ones. After an error nothing has changed.
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

    /// Removes the queue: it gets no more handlers. Its running handlers count until they are
    /// released.
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

    /// Gives free handlers to the queues of `wants`, at most as many as each asks for, and counts
    /// them as running. The first element of the result is the queue that got the first handler.
    /// `wants` must not have a queue twice. Costs O(wants + handlers given × log wants); other
    /// queues cost nothing.
    pub(crate) fn allot(&mut self, wants: &[Want<QueueId>], now: Instant) -> Vec<(QueueId, usize)> {
        if self.free() == 0 || wants.iter().all(|want| want.handlers == 0) {
            return Vec::new();
        }
        self.allot_in_turns(wants, now)
    }

    /// Records that handlers of the queue have started. From now on their time is charged.
    pub(crate) fn start(&mut self, queue: QueueId, handlers: usize, now: Instant) {
        if let Some(share) = self.queues.get_mut(&queue) {
            share.settle(now);
            share.usage.running += handlers;
        }
    }

    /// Takes back handlers of the queue that ended or were not needed.
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

    /// How many handlers all queues have.
    pub(crate) fn held(&self) -> usize {
        self.running
    }

    /// How many handlers the queue has.
    #[cfg(test)]
    pub(crate) fn running(&self, queue: QueueId) -> usize {
        self.queues.get(&queue).map_or(0, |share| share.running)
    }

    /// How many handlers no queue has, including reserved ones.
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
        // Other queues may use its reserve, if it was added or resumed while they did.
        let open = self.free().saturating_sub(of_others);
        let until_max = share.settings.max - share.running;
        open.max(own.min(self.free())).min(until_max)
    }

    /// Whether the free handlers are all reserved, so that only queues with an unused reserve can
    /// take one.
    fn only_reserves_are_free(&self) -> bool {
        self.free() <= self.unused_reserves
    }

    fn take(&mut self, queue: QueueId, handlers: usize) {
        self.change(queue, |share| share.running += handlers);
    }

    /// Changes the state of a queue and updates the sums. Drops a removed queue that runs nothing.
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
