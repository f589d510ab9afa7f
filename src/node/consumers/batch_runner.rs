//! Gathers deliveries for a handler that takes many at a time, and runs it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tracing::Instrument;

use crate::delivery::Delivery;
use crate::model::settlement::Settlement;
use crate::node::consumers::guard::HandlerGuard;
use crate::node::consumers::handling::{HandleMany, HandlerContext, Handling};
use crate::node::consumers::runner::{attempt, closes_queue};
use crate::node::consumers::settling::end;
use crate::node::consumers::slots::HandlerPermits;
use crate::telemetry::events;

/// Runs a handler that takes batches.
pub(crate) struct BatchRunner<H> {
    handler: H,
    /// The most deliveries in a batch: at least 1.
    max: usize,
    linger: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Deliveries that each need a handler of their own: an earlier lease of the message expired,
    /// so it may be the message that crashes workers.
    alone: VecDeque<Guarded>,
    /// Deliveries that wait for a handler with which a batch can open.
    waiting: VecDeque<Guarded>,
    open: Option<Open>,
    /// Whether the last claim brought only messages that can share a batch. If not, the next claim
    /// asks for no more messages than there are free handlers: a message that waits for a handler
    /// of its own would be charged with a crash if another message crashed the worker meanwhile.
    claims_batches: bool,
    /// The number of the last batch.
    last: u64,
    /// Whether the worker stops: then no batch waits for further deliveries.
    is_closed: bool,
}

type Guarded = (Delivery, HandlerGuard);

/// A batch that waits for more deliveries.
struct Open {
    number: u64,
    batch: Closed,
    /// Sends the batch to its task, which awaits the end of the linger time.
    close: oneshot::Sender<Closed>,
}

/// A batch that gets no further deliveries and is handled now.
struct Closed {
    deliveries: Vec<Guarded>,
    permit: HandlerPermits,
}

impl<H: HandleMany> BatchRunner<H> {
    pub(crate) fn new(handler: H, max: usize, linger: Duration) -> Self {
        Self {
            handler,
            max,
            linger,
            state: Mutex::default(),
        }
    }

    /// Gives these permits to waiting deliveries. Returns the permits that are left.
    fn dispatch(
        self: &Arc<Self>,
        state: &mut State,
        mut permits: HandlerPermits,
        context: &Arc<HandlerContext>,
    ) -> HandlerPermits {
        self.fill(state);
        while !state.alone.is_empty() || !state.waiting.is_empty() {
            let Some(permit) = permits.split() else {
                break;
            };
            let now = state.is_closed || self.linger.is_zero();
            let deliveries = match state.alone.pop_front() {
                Some(one) => vec![one],
                None => {
                    let count = state.waiting.len().min(self.max);
                    state.waiting.drain(..count).collect()
                }
            };
            let is_alone = deliveries.len() == 1 && comes_alone(&deliveries[0].0);
            let batch = Closed { deliveries, permit };
            if now || is_alone || batch.deliveries.len() == self.max {
                self.spawn(batch, context);
            } else {
                self.open(state, batch, context);
            }
        }
        permits
    }

    /// Moves deliveries into the open batch, and closes it when it is full.
    fn fill(&self, state: &mut State) {
        let Some(mut open) = state.open.take() else {
            return;
        };
        let room = self.max - open.batch.deliveries.len();
        let count = room.min(state.waiting.len());
        let more = state.waiting.drain(..count);
        open.batch.deliveries.extend(more);
        if open.batch.deliveries.len() == self.max {
            // The send fails if the runtime has ended, and the batch's task with it.
            let _ = open.close.send(open.batch);
        } else {
            state.open = Some(open);
        }
    }

    /// Opens a batch and starts its task.
    fn open(self: &Arc<Self>, state: &mut State, batch: Closed, context: &Arc<HandlerContext>) {
        let (close, mut closed) = oneshot::channel();
        state.last += 1;
        let number = state.last;
        state.open = Some(Open {
            number,
            batch,
            close,
        });
        let (runner, owned) = (Arc::clone(self), Arc::clone(context));
        let deadline = Instant::now() + self.linger;
        let work = async move {
            let batch = tokio::select! {
                batch = &mut closed => batch.ok(),
                () = tokio::time::sleep_until(deadline.into()) => None,
            };
            let batch = batch
                .or_else(|| runner.take_open(number))
                .or_else(|| closed.try_recv().ok());
            if let Some(batch) = batch {
                runner.run(batch, owned).await;
            }
        };
        context.tracker.spawn_on(work, &context.runtime);
    }

    /// The open batch, if it is the one with this number.
    fn take_open(&self, number: u64) -> Option<Closed> {
        let open = self.lock().open.take_if(|open| open.number == number)?;
        Some(open.batch)
    }

    fn spawn(self: &Arc<Self>, batch: Closed, context: &Arc<HandlerContext>) {
        let work = Arc::clone(self).run(batch, Arc::clone(context));
        context.tracker.spawn_on(work, &context.runtime);
    }

    /// Runs the handler of a batch, passes its permit on, and then settles each delivery.
    async fn run(self: Arc<Self>, batch: Closed, context: Arc<HandlerContext>) {
        let Closed { deliveries, permit } = batch;
        let start = Instant::now();
        let mut values = Vec::with_capacity(deliveries.len());
        let mut handled = Vec::with_capacity(deliveries.len());
        for (delivery, guard) in deliveries {
            delivery.begin(start);
            // If the batch waited too long for a thread, another node may have the message by now.
            if context.abort.is_cancelled() || delivery.is_lost() {
                settle(delivery, guard, Settlement::Release, &context);
                continue;
            }
            match self.handler.decode(&delivery) {
                Ok(value) => {
                    values.push((value, delivery.clone()));
                    handled.push((delivery, guard));
                }
                Err(settlement) => settle(delivery, guard, settlement, &context),
            }
        }
        let settlements = match handled.first() {
            Some((first, _)) => {
                let first = first.clone();
                self.settlements(values, &first, start, &context).await
            }
            None => Vec::new(),
        };
        let count = settlements.len();
        let missing = || {
            Settlement::retry(format_args!(
                "the handler of the batch returned {count} settlements, and none for this delivery"
            ))
        };
        let closes = settlements.iter().any(closes_queue);
        let mut settlements = settlements.into_iter();
        if closes || handled.iter().any(|(delivery, _)| comes_alone(delivery)) {
            // Settled before the permit is passed on, for two reasons. The next message may crash
            // the worker, and a crash is charged to every unsettled message. And a throttle must
            // close the queue before the next claim.
            for (delivery, guard) in handled.drain(..) {
                let settlement = settlements.next().unwrap_or_else(missing);
                end(&delivery, settlement, &context).await;
                drop(guard);
            }
        }
        drop(self.dispatch(&mut self.lock(), permit, &context));
        for (delivery, guard) in handled {
            let settlement = settlements.next().unwrap_or_else(missing);
            settle(delivery, guard, settlement, &context);
        }
    }

    /// The settlements that the handler returns, or those for its panic, time-out or abort.
    async fn settlements(
        &self,
        values: Vec<(H::Value, Delivery)>,
        first: &Delivery,
        start: Instant,
        context: &HandlerContext,
    ) -> Vec<Settlement> {
        let count = values.len();
        let meters = first.partition().meters();
        let span = events::handle_batch(first.subject().queue, count);
        let running = meters.handler_runs();
        let result = attempt(context, || self.handler.handle(values))
            .instrument(span.clone())
            .await;
        drop(running);
        let took = start.elapsed();
        first.partition().handled(took);
        events::handled(&span, took);
        result.unwrap_or_else(|failure| vec![failure.counted(meters).settlement(); count])
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<H: HandleMany> Handling for BatchRunner<H> {
    fn capacity(&self, handlers: usize) -> usize {
        let state = self.lock();
        let room = state
            .open
            .as_ref()
            .map_or(0, |open| self.max - open.batch.deliveries.len());
        let free = handlers.saturating_sub(state.alone.len());
        let capacity = room.saturating_add(free.saturating_mul(self.max));
        capacity.saturating_sub(state.waiting.len())
    }

    fn asks(&self, handlers: usize) -> usize {
        let capacity = self.capacity(handlers);
        let state = self.lock();
        if state.claims_batches {
            return capacity;
        }
        let free = handlers.saturating_sub(state.alone.len());
        capacity.min(free.max(1))
    }

    fn start(
        self: Arc<Self>,
        deliveries: Vec<Guarded>,
        permits: HandlerPermits,
        context: &Arc<HandlerContext>,
    ) -> HandlerPermits {
        let mut state = self.lock();
        if deliveries.is_empty() {
            return self.dispatch(&mut state, permits, context);
        }
        state.claims_batches = !deliveries.iter().any(|(delivery, _)| comes_alone(delivery));
        for guarded in deliveries {
            if comes_alone(&guarded.0) {
                state.alone.push_back(guarded);
            } else {
                state.waiting.push_back(guarded);
            }
        }
        self.dispatch(&mut state, permits, context)
    }

    fn waiting(&self) -> usize {
        let state = self.lock();
        state.alone.len() + state.waiting.len().div_ceil(self.max)
    }

    fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        if let Some(open) = state.open.take() {
            let _ = open.close.send(open.batch);
        }
    }
}

/// Whether the message must have a handler of its own: an earlier lease of it expired, so it may be
/// the message that crashes workers.
fn comes_alone(delivery: &Delivery) -> bool {
    delivery.crashes() > 0
}

/// Settles one delivery in a task of its own, so that the settlements of a batch share calls.
fn settle(
    delivery: Delivery,
    guard: HandlerGuard,
    settlement: Settlement,
    context: &Arc<HandlerContext>,
) {
    let owned = Arc::clone(context);
    context.tracker.spawn(async move {
        end(&delivery, settlement, &owned).await;
        drop(guard);
    });
}
