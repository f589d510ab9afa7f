//! The consumer of a queue: a handler of the worker, or pulls.

use std::sync::Arc;

use crate::delivery::Delivery;
use crate::node::PartitionId;
use crate::node::consumers::guard::HandlerGuard;
use crate::node::consumers::handling::{HandlerContext, Handling};
use crate::node::consumers::pulls::{Grant, Pulls};
use crate::node::consumers::slots::HandlerPermits;

/// What takes the messages of a queue. All partitions of the queue share it.
#[derive(Clone)]
pub(crate) enum Consumer {
    Handler(Arc<dyn Handling>),
    /// Pulls, which the queue has instead of a handler.
    Pulls(Arc<Pulls>),
}

impl Consumer {
    pub(crate) fn pulls(&self) -> Option<&Arc<Pulls>> {
        match self {
            Self::Handler(_) => None,
            Self::Pulls(pulls) => Some(pulls),
        }
    }

    /// How many handlers the node has: none for pulls, whose callers handle the messages.
    pub(crate) fn handlers(&self, concurrency: usize) -> usize {
        match self {
            Self::Handler(_) => concurrency,
            Self::Pulls(_) => 0,
        }
    }

    /// How many deliveries the consumer can take now if it gets this many more permits.
    pub(crate) fn capacity(&self, handlers: usize) -> usize {
        match self {
            Self::Handler(handler) => handler.capacity(handlers),
            Self::Pulls(pulls) => pulls.capacity(handlers),
        }
    }

    /// For how many messages the next claim asks, given this many permits.
    pub(crate) fn asks(&self, handlers: usize) -> usize {
        match self {
            Self::Handler(handler) => handler.asks(handlers),
            Self::Pulls(pulls) => pulls.capacity(handlers),
        }
    }

    /// Starts handlers for the deliveries of one claim. `permits` has one permit for each handler
    /// that may start. Returns the permits that are left.
    pub(crate) fn start(
        &self,
        deliveries: Vec<(Delivery, HandlerGuard)>,
        permits: HandlerPermits,
        context: &Arc<HandlerContext>,
    ) -> HandlerPermits {
        match self {
            Self::Handler(handler) => Arc::clone(handler).start(deliveries, permits, context),
            // Claims for pulls are bound to these pulls, and their grants take another way.
            // Anything that arrives here is released.
            Self::Pulls(_) => {
                let deliveries = deliveries.into_iter().map(|(delivery, _)| delivery);
                drop(Grant::new(deliveries.collect(), context));
                permits
            }
        }
    }

    /// How many more handlers could start for deliveries that the consumer already has.
    pub(crate) fn waiting(&self) -> usize {
        match self {
            Self::Handler(handler) => handler.waiting(),
            Self::Pulls(_) => 0,
        }
    }

    /// Whether the consumer waits for messages. If not, the node claims none and takes no wake-up
    /// token.
    pub(crate) fn is_needed(&self) -> bool {
        self.pulls().is_none_or(|pulls| pulls.is_needed())
    }

    /// Whether this partition must be claimed from for a pull.
    pub(crate) fn must_ask(&self, partition: PartitionId) -> bool {
        self.pulls().is_some_and(|pulls| pulls.must_ask(partition))
    }

    /// Tells the consumer that the node makes no more claims. Claims in flight may still grant
    /// messages.
    pub(crate) fn stop(&self) {
        if let Self::Pulls(pulls) = self {
            pulls.close();
        }
    }

    /// Called when no further delivery comes: a batch handler gets its incomplete batch at once.
    pub(crate) fn close(&self) {
        match self {
            Self::Handler(handler) => handler.close(),
            Self::Pulls(pulls) => pulls.close(),
        }
    }
}
