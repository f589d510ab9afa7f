//! How many deliveries a worker may hold at a time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::batch::BATCH_ITEMS;

/// How many messages one claim takes at most.
const MAX_CLAIM: usize = 256;

/// How many deliveries may await the reply to their settlement besides those whose handlers run:
/// two full calls, as many as are in flight at once. Handlers then never wait for settlements, and
/// a worker whose settlements stall stops claiming.
const MAX_UNSETTLED: usize = 2 * BATCH_ITEMS;

/// The claimer waits this long at most for further handlers to end: about as long as a claim takes.
const GATHER_LIMIT: Duration = Duration::from_millis(1);

/// The limits of one worker. Only its claimer acquires permits.
pub(crate) struct Slots {
    /// One permit for each handler that may run.
    handlers: Arc<Semaphore>,
    /// One permit for each delivery that may be claimed and not yet settled.
    deliveries: Arc<Semaphore>,
    concurrency: usize,
}

/// The right to run some handlers. Each is returned when its handler has ended.
pub(crate) struct HandlerPermits(OwnedSemaphorePermit);

impl HandlerPermits {
    /// For how many handlers.
    pub(crate) fn count(&self) -> usize {
        self.0.num_permits()
    }

    /// Splits off the permit of one handler; `None` if none is left.
    pub(crate) fn split(&mut self) -> Option<Self> {
        self.0.split(1).map(Self)
    }
}

/// The permits of one claim: one of each kind for every delivery that it may return.
pub(crate) struct SlotPermits {
    /// Kept until the handler has ended.
    pub(crate) handlers: HandlerPermits,
    /// Kept until the delivery is settled.
    pub(crate) deliveries: OwnedSemaphorePermit,
}

impl Slots {
    pub(crate) fn new(concurrency: usize) -> Self {
        let deliveries = (concurrency + MAX_UNSETTLED).min(Semaphore::MAX_PERMITS);
        Self {
            handlers: Arc::new(Semaphore::new(concurrency)),
            deliveries: Arc::new(Semaphore::new(deliveries)),
            concurrency,
        }
    }

    /// Waits for the permits of one delivery.
    pub(crate) async fn acquire(&self) -> SlotPermits {
        SlotPermits {
            handlers: HandlerPermits(acquire_one(&self.handlers).await),
            deliveries: acquire_one(&self.deliveries).await,
        }
    }

    /// Adds all permits that are free now, up to the size of one claim.
    pub(crate) fn acquire_free(&self, mut permits: SlotPermits) -> SlotPermits {
        let free = self
            .handlers
            .available_permits()
            .min(self.deliveries.available_permits())
            .min(MAX_CLAIM - 1);
        let free = u32::try_from(free).unwrap_or(0);
        let more = |all: &Arc<Semaphore>| Arc::clone(all).try_acquire_many_owned(free).ok();
        // Both succeed: no other task acquires permits.
        if let (Some(handlers), Some(deliveries)) = (more(&self.handlers), more(&self.deliveries)) {
            permits.handlers.0.merge(handlers);
            permits.deliveries.merge(deliveries);
        }
        permits
    }

    /// Adds free permits of deliveries, for handlers that take many: up to `count` in all.
    pub(crate) fn acquire_deliveries(&self, mut permits: SlotPermits, count: usize) -> SlotPermits {
        let have = permits.deliveries.num_permits();
        let free = self.deliveries.available_permits();
        let more = count.min(MAX_CLAIM).saturating_sub(have).min(free);
        let more = u32::try_from(more).unwrap_or(0);
        if let Ok(more) = Arc::clone(&self.deliveries).try_acquire_many_owned(more) {
            permits.deliveries.merge(more);
        }
        permits
    }

    /// Whether no handler runs, while the claimer holds the permits of one delivery.
    pub(crate) fn is_idle(&self) -> bool {
        self.handlers.available_permits() + 1 == self.concurrency
    }

    /// Waits for more handlers to end before a claim: handlers often end together, and a claim for
    /// many messages costs little more than a claim for one. Half of a claim is enough, so that the
    /// other handlers still have work while the call is made.
    pub(crate) async fn gather(&self) {
        let enough = self.concurrency.min(MAX_CLAIM) / 2;
        gather(&self.handlers, enough, GATHER_LIMIT).await;
    }
}

impl SlotPermits {
    /// For how many deliveries.
    pub(crate) fn count(&self) -> usize {
        self.handlers.count()
    }
}

async fn acquire_one(permits: &Arc<Semaphore>) -> OwnedSemaphorePermit {
    match Arc::clone(permits).acquire_owned().await {
        Ok(permit) => permit,
        // The semaphore is never closed.
        Err(_) => std::future::pending().await,
    }
}

/// Yields until `enough` permits are free, or no permit was returned while every other task had a
/// turn, or `limit` has elapsed.
async fn gather(permits: &Semaphore, enough: usize, limit: Duration) {
    let start = Instant::now();
    loop {
        let before = permits.available_permits();
        tokio::task::yield_now().await;
        let free = permits.available_permits();
        if free == before || free >= enough || start.elapsed() >= limit {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of ten permits are free after gathering. The holders of all but `endless` permits
    /// return them one after another.
    async fn gathered(endless: usize, enough: usize, limit: Duration) -> usize {
        let permits = Arc::new(Semaphore::new(10));
        for number in 0..10 {
            let permit = acquire_one(&permits).await;
            tokio::spawn(async move {
                for _ in 0..number {
                    tokio::task::yield_now().await;
                }
                if number >= 10 - endless {
                    std::future::pending::<()>().await;
                }
                drop(permit);
            });
        }
        gather(&permits, enough, limit).await;
        permits.available_permits()
    }

    #[tokio::test]
    async fn gathering_goes_on_while_handlers_end() {
        const NO_LIMIT: Duration = Duration::MAX;
        assert_eq!(gathered(0, 5, NO_LIMIT).await, 5, "stops at `enough`");
        assert_eq!(gathered(7, 5, NO_LIMIT).await, 3, "stops with the handlers");
        assert_eq!(gathered(10, 5, NO_LIMIT).await, 0);
        assert_eq!(gathered(0, 5, Duration::ZERO).await, 1, "stops at `limit`");
    }

    #[tokio::test]
    async fn a_claim_takes_at_most_256_slots() {
        let slots = Slots::new(1_000);
        let permits = slots.acquire_free(slots.acquire().await);
        assert_eq!(permits.count(), MAX_CLAIM);
    }

    #[tokio::test]
    async fn unsettled_deliveries_stop_further_claims() {
        let slots = Slots::new(1);
        let mut unsettled = Vec::new();
        for _ in 0..=MAX_UNSETTLED {
            // The handler has ended; its settlement has no reply yet.
            unsettled.push(slots.acquire().await.deliveries);
        }
        let next = tokio::time::timeout(Duration::from_millis(1), slots.acquire()).await;
        assert!(next.is_err(), "every delivery permit is in use");
        unsettled.pop();
        slots.acquire().await;
    }

    #[tokio::test]
    async fn idle_means_that_no_handler_runs() {
        let slots = Slots::new(2);
        let of_claimer = slots.acquire().await;
        assert!(slots.is_idle());
        let of_handler = slots.acquire().await;
        assert!(!slots.is_idle());
        drop(of_handler);
        assert!(slots.is_idle());
        drop(of_claimer);
    }
}
