//! The handler time that a queue has used.
//!
//! Each queue has a virtual time: the seconds that its handlers ran, divided by its weight. A
//! handler that waits for the reply to a claim is free of charge, but a queue is charged with at
//! least a third of the time for which it has handlers. Without this minimum, a queue whose claims
//! take much longer than its handlers would hold nearly all handlers.

use std::time::Instant;

use crate::node::consumers::slots::Ended;

/// The assumed run time of a handler, in seconds, until one of the queue's handlers has ended.
const FIRST_MEAN: f64 = 0.1;
/// Over about how many of the last handlers the mean run time is taken; earlier times fade by
/// halving.
const MEAN_OVER: f64 = 32.0;
/// The smallest part of the time with handlers that a queue is charged with.
const LEAST_CHARGED: f64 = 1.0 / 3.0;

/// The handler time that a queue has used. Times are in seconds.
#[derive(Default)]
pub(super) struct Usage {
    /// The virtual time: handler time divided by the weight. In 100 years of 1,000 handlers a sum
    /// of handler times of 1 ms is off by less than a hundredth, so it needs no new origin.
    pub(super) virtual_time: f64,
    /// The handlers that have started and not ended.
    pub(super) running: usize,
    /// Until when the running handlers are charged; `None` before the first handler.
    settled: Option<Instant>,
    /// The decayed sums of handler times, of the times for which the queue had handlers, and of how
    /// many handlers that ended.
    sum: f64,
    held: f64,
    ended: f64,
}

impl Usage {
    /// Charges the running handlers until now. The queue has `held` handlers, including running
    /// ones.
    pub(super) fn settle(&mut self, held: usize, weight: u32, now: Instant) {
        let since = self.settled.unwrap_or(now);
        let seconds = now.saturating_duration_since(since).as_secs_f64();
        self.settled = Some(now.max(since));
        let used = seconds * self.running as f64;
        self.sum += used;
        self.held += seconds * held as f64;
        if used > 0.0 {
            let price = LEAST_CHARGED * self.held / self.sum.max(used);
            self.virtual_time += used * price.max(1.0) / f64::from(weight);
        }
    }

    /// Records that handlers have ended, some time before the last `settle`.
    pub(super) fn end(&mut self, ended: Ended, weight: u32) {
        self.running = self.running.saturating_sub(ended.ran);
        self.virtual_time -= ended.ago / f64::from(weight);
        self.sum -= ended.ago;
        self.held -= ended.ago;
        self.ended += ended.ran as f64;
        while self.ended > MEAN_OVER {
            self.sum /= 2.0;
            self.held /= 2.0;
            self.ended /= 2.0;
        }
    }

    /// The mean run time of a handler. It grows while no handler ends.
    pub(super) fn mean(&self) -> f64 {
        (self.sum.max(0.0) + FIRST_MEAN) / (self.ended + 1.0)
    }
}
