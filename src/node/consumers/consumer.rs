//! What takes the messages of a queue: a handler of the worker, or pulls.

use std::sync::Arc;

use crate::delivery::Delivery;
use crate::node::PartitionId;
use crate::node::consumers::guard::HandlerGuard;
use crate::node::consumers::handling::{HandlerContext, Handling};
use crate::node::consumers::pulls::{Grant, Pulls};
use crate::node::consumers::slots::HandlerPermits;

/// All partitions of a queue share it.
#[derive(Clone)]
pub(crate) enum Consumer {
    Handler(Arc<dyn Handling>),
    /// They take the place of a handler.
    Pulls(Arc<Pulls>),
}

impl Consumer {
    pub(crate) fn pulls(&self) -> Option<&Arc<Pulls>> {
        match self {
            Self::Handler(_) => None,
            Self::Pulls(pulls) => Some(pulls),
        }
    }

    /// How many deliveries it can take now, if it gets this many more handlers.
    pub(crate) fn capacity(&self, handlers: usize) -> usize {
        match self {
            Self::Handler(handler) => handler.capacity(handlers),
            Self::Pulls(pulls) => pulls.capacity(handlers),
        }
    }

    /// How many of these the next claim asks for.
    pub(crate) fn asks(&self, handlers: usize) -> usize {
        match self {
            Self::Handler(handler) => handler.asks(handlers),
            Self::Pulls(pulls) => pulls.capacity(handlers),
        }
    }

    /// Starts handlers for the deliveries of one claim. `permits` has one permit for each handler
    /// that may start. Returns those of the others.
    pub(crate) fn start(
        &self,
        deliveries: Vec<(Delivery, HandlerGuard)>,
        permits: HandlerPermits,
        context: &Arc<HandlerContext>,
    ) -> HandlerPermits {
        match self {
            Self::Handler(handler) => Arc::clone(handler).start(deliveries, permits, context),
            // No claim is for pulls without being bound to some: what came anyhow is released.
            Self::Pulls(_) => {
                let deliveries = deliveries.into_iter().map(|(delivery, _)| delivery);
                drop(Grant::new(deliveries.collect(), context));
                permits
            }
        }
    }

    /// How many more handlers could start for the deliveries that it has.
    pub(crate) fn waiting(&self) -> usize {
        match self {
            Self::Handler(handler) => handler.waiting(),
            Self::Pulls(_) => 0,
        }
    }

    /// Whether anything waits for messages. If not, the node claims none, and takes no wake-up token.
    pub(crate) fn is_needed(&self) -> bool {
        self.pulls().is_none_or(|pulls| pulls.is_needed())
    }

    /// Whether a claim of this partition is owed to a pull.
    pub(crate) fn must_ask(&self, partition: PartitionId) -> bool {
        self.pulls().is_some_and(|pulls| pulls.must_ask(partition))
    }

    /// The node claims no more. Claims in flight may still grant messages.
    pub(crate) fn stop(&self) {
        if let Self::Pulls(pulls) = self {
            pulls.close();
        }
    }

    /// Called after the last delivery: a batch handler gets its incomplete batch at once.
    pub(crate) fn close(&self) {
        match self {
            Self::Handler(handler) => handler.close(),
            Self::Pulls(pulls) => pulls.close(),
        }
    }
}
