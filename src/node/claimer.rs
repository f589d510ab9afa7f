//! Feeding the handlers: waits for the wake-up list while some are free, claims a batch, starts them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::batch::BATCH_ITEMS;
use crate::delivery::Delivery;
use crate::model::settlement::IntoSettlement;
use crate::node::Event;
use crate::node::claim_lease::ClaimLease;
use crate::node::handler_runner::HandlerRunner;
use crate::node::wake::WakeUps;
use crate::partition::{Claim, Moved, Partition};
use crate::server::lane::reconnect_delays;
use crate::telemetry::events;

/// How many messages one claim takes at most.
const MAX_CLAIM: usize = 256;

/// Who left something to others looks again after so long, if the wake-up list has not rung: they may have taken it and every wake
/// token, and then nobody tells a leader when the next message is due.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// Free places wait so long at most for others to become free, about as long as a claim takes.
const GATHER: Duration = Duration::from_millis(1);

/// How many deliveries may wait for the answer to their settle, beside those whose handlers run: two calls, as many as are in
/// flight at once. Handlers never wait for settles then, and a worker whose settles stall stops claiming.
const UNSETTLED: usize = 2 * BATCH_ITEMS;

/// How the coordinator tells an idle claimer that something is due this very moment.
pub(crate) struct Nudge {
    /// A place for each handler that may run.
    places: Arc<Semaphore>,
    /// A permit for each delivery from its claim until it is settled.
    held: Arc<Semaphore>,
    concurrency: usize,
    /// Whether the claimer waits for the wake-up list, with a place in hand.
    waits: AtomicBool,
    due: Notify,
    look: Notify,
}

impl Nudge {
    pub(crate) fn new(concurrency: usize) -> Self {
        let places = Arc::new(Semaphore::new(concurrency));
        let held = Arc::new(Semaphore::new(
            (concurrency + UNSETTLED).min(Semaphore::MAX_PERMITS),
        ));
        Self {
            places,
            held,
            concurrency,
            waits: AtomicBool::new(false),
            due: Notify::new(),
            look: Notify::new(),
        }
    }

    /// Whether the claimer claims what is due now: then it answers by an event, as a promote does. It does not while a handler
    /// runs, lest one node take what others, which hear the wake-up list, are free for; unless there are no others.
    pub(crate) fn take(&self, alone: bool) -> bool {
        let idle = alone || self.places.available_permits() + 1 == self.concurrency;
        let taken = idle && self.waits.swap(false, Ordering::AcqRel);
        if taken {
            self.due.notify_one();
        }
        taken
    }

    /// A beat said that something is ready: whoever waits claims, whether the wake-up list rang or others took its tokens along.
    pub(crate) fn look(&self) {
        self.look.notify_one();
    }
}

pub(crate) struct Claimer<H> {
    pub(crate) partition: Arc<Partition>,
    pub(crate) wake: WakeUps,
    pub(crate) lease: Duration,
    pub(crate) lease_ms: u64,
    pub(crate) nudge: Arc<Nudge>,
    pub(crate) handling: Arc<HandlerRunner<H>>,
    pub(crate) handlers: TaskTracker,
    pub(crate) events: UnboundedSender<Event>,
    pub(crate) stop: CancellationToken,
}

/// Why a wait for the wake-up list ended.
#[derive(PartialEq, Eq)]
enum Woken {
    /// It did not wait: the last claim left something.
    KnowsMore,
    /// Or by a beat that found something ready, or because something was left a moment ago.
    ByWakeUp,
    /// The coordinator waits for an answer.
    ByNudge,
    ToStop,
}

impl<H, F, S> Claimer<H>
where
    H: Fn(Delivery) -> F + Send + Sync + 'static,
    F: Future<Output = S> + Send + 'static,
    S: IntoSettlement + Send + 'static,
{
    /// Runs until `stop`. A claim that is under way then is finished: what it grants is handled.
    pub(crate) async fn run(mut self) {
        let (stop, nudge) = (self.stop.clone(), Arc::clone(&self.nudge));
        let (mut number, mut failures) = (0, 0);
        // What came before we listened has not rung for us.
        let (mut more, mut left) = (true, false);
        loop {
            let places = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                places = Places::free(&nudge) => places,
                () = self.wake.wait(), if self.wake.is_waiting() => {
                    // It rang for somebody with a place.
                    ring(&self.partition, self.lease_ms).await;
                    continue;
                }
            };
            let woken = if more {
                Woken::KnowsMore
            } else {
                self.wait(left).await
            };
            if woken == Woken::ToStop {
                break;
            }
            if woken == Woken::KnowsMore {
                // Half, so that the other half has something to do during the claim.
                gather(&nudge.places, nudge.concurrency.min(MAX_CLAIM) / 2, GATHER).await;
                if stop.is_cancelled() {
                    break;
                }
            }
            let places = places.with_others(&nudge);
            let claimed = Instant::now();
            match self.partition.claim(places.count(), self.lease_ms).await {
                Ok(claim) => {
                    if failures > 0 {
                        events::recovered(self.partition.queue_name(), "claim", failures);
                        failures = 0;
                    }
                    left = leaves(&claim);
                    more = left && claim.granted.len() == places.count();
                    self.start(claim, claimed, places, woken, &mut number);
                }
                Err(error) => {
                    failures += 1;
                    more = true;
                    events::call_failed(
                        self.partition.queue_name(),
                        "claim",
                        &error,
                        "it is repeated",
                    );
                    if woken == Woken::ByNudge {
                        let _ = self.events.send(Event::Promoted(Err(error)));
                    }
                    let pause = reconnect_delays().delay(failures, fastrand::f64());
                    tokio::select! {
                        () = stop.cancelled() => break,
                        () = tokio::time::sleep(pause) => {}
                    }
                }
            }
        }
        // A token that the dropped wait may have taken along is given back. The server may not have heard yet that nobody waits
        // here, and serve this wait first: then the second token wakes somebody, or the goodbye or any beat rings again.
        drop(self.wake);
        ring(&self.partition, self.lease_ms).await;
    }

    /// Waits for the wake-up list, or for the coordinator. Whatever came, a nudge that was given is answered.
    async fn wait(&mut self, left: bool) -> Woken {
        self.nudge.waits.store(true, Ordering::Release);
        let mut woken = tokio::select! {
            () = self.stop.cancelled() => Woken::ToStop,
            () = self.nudge.due.notified() => return Woken::ByNudge,
            () = self.nudge.look.notified() => Woken::ByWakeUp,
            () = self.wake.wait() => Woken::ByWakeUp,
            () = tokio::time::sleep(LOOK_AGAIN), if left => Woken::ByWakeUp,
        };
        if !self.nudge.waits.swap(false, Ordering::AcqRel) {
            self.nudge.due.notified().await;
            if woken == Woken::ByWakeUp {
                woken = Woken::ByNudge;
            } else {
                let _ = self.events.send(Event::NotTaken);
            }
        }
        woken
    }

    fn start(
        &self,
        claim: Claim,
        claimed: Instant,
        mut places: Places,
        woken: Woken,
        number: &mut u64,
    ) {
        let _ = self.events.send(match woken {
            Woken::ByNudge => {
                let count = claim.left + claim.granted.len() as u64;
                Event::Promoted(Ok(Moved {
                    header: claim.header,
                    count,
                }))
            }
            _ => Event::Header(claim.header),
        });
        if claim.granted.is_empty() {
            return;
        }
        // There are as many places as were asked for, and never more deliveries than that.
        let granted = claim.granted.into_iter().take(places.count());
        let deliveries: Vec<_> = granted
            .map(|granted| Delivery::new(Arc::clone(&self.partition), granted))
            .collect();
        *number += 1;
        let lease = Arc::new(ClaimLease::new(
            *number,
            deliveries.clone(),
            claimed,
            self.lease,
        ));
        let _ = self.events.send(Event::Claimed(Arc::clone(&lease)));
        for (place, delivery) in deliveries.into_iter().enumerate() {
            let Some((running, held)) = places.split() else {
                return;
            };
            let guard = lease.guard(place, self.events.clone(), held);
            self.handlers
                .spawn(Arc::clone(&self.handling).handle(delivery, guard, running));
        }
    }
}

/// Tells other nodes that there may be work, if there is.
async fn ring(partition: &Partition, lease_ms: u64) {
    if let Err(error) = partition.claim(0, lease_ms).await {
        events::call_failed(
            partition.queue_name(),
            "ring",
            &error,
            "a beat rings for the other nodes within a second",
        );
    }
}

/// Whether there was more to claim. If we took as much as we had free places, the next claim needs no wake-up list; one that was
/// limited by our fair share goes back to it, so that the others get theirs.
fn leaves(claim: &Claim) -> bool {
    let due = claim.header.head_ms.is_some_and(|head| {
        i64::try_from(head).is_ok_and(|head| head <= claim.header.now_us / 1_000)
    });
    !claim.header.paused && (claim.left > 0 || due)
}

/// Completes when a permit is free.
async fn free(places: &Arc<Semaphore>) -> OwnedSemaphorePermit {
    match Arc::clone(places).acquire_owned().await {
        Ok(place) => place,
        // Nobody closes the semaphore.
        Err(_) => std::future::pending().await,
    }
}

/// Lets handlers end until `enough` places are free, or none ended while all other tasks had their turn, or `most` is over: they
/// end together, often, and a claim for many costs little more than one for the first.
async fn gather(places: &Semaphore, enough: usize, most: Duration) {
    let start = Instant::now();
    loop {
        let before = places.available_permits();
        tokio::task::yield_now().await;
        let free = places.available_permits();
        if free == before || free >= enough || start.elapsed() >= most {
            return;
        }
    }
}

/// What deliveries that are about to be claimed need: as many permits of one kind as of the other.
struct Places {
    /// Until the handler has ended.
    running: OwnedSemaphorePermit,
    /// Until the delivery is settled.
    held: OwnedSemaphorePermit,
}

impl Places {
    /// Completes when a handler is free, and not too much waits for its settle.
    async fn free(nudge: &Nudge) -> Self {
        Self {
            running: free(&nudge.places).await,
            held: free(&nudge.held).await,
        }
    }

    /// With all others that are free right now, up to what one claim takes.
    fn with_others(mut self, nudge: &Nudge) -> Self {
        let others = nudge
            .places
            .available_permits()
            .min(nudge.held.available_permits())
            .min(MAX_CLAIM - 1);
        let others = u32::try_from(others).unwrap_or(0);
        let more = |all: &Arc<Semaphore>| Arc::clone(all).try_acquire_many_owned(others).ok();
        // This task alone takes permits, so that they are there.
        if let (Some(running), Some(held)) = (more(&nudge.places), more(&nudge.held)) {
            self.running.merge(running);
            self.held.merge(held);
        }
        self
    }

    fn count(&self) -> usize {
        self.running.num_permits()
    }

    /// Those of one delivery.
    fn split(&mut self) -> Option<(OwnedSemaphorePermit, OwnedSemaphorePermit)> {
        Some((self.running.split(1)?, self.held.split(1)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is gathered of ten places whose handlers end one after the other, and of which this many do not end at all.
    async fn gathered(endless: usize, enough: usize, most: Duration) -> usize {
        let places = Arc::new(Semaphore::new(10));
        for place in 0..10 {
            let permit = free(&places).await;
            tokio::spawn(async move {
                for _ in 0..place {
                    tokio::task::yield_now().await;
                }
                if place >= 10 - endless {
                    std::future::pending::<()>().await;
                }
                drop(permit);
            });
        }
        gather(&places, enough, most).await;
        places.available_permits()
    }

    #[tokio::test]
    async fn places_are_gathered_while_handlers_end() {
        assert_eq!(
            gathered(0, 5, Duration::MAX).await,
            5,
            "no more than are enough"
        );
        assert_eq!(
            gathered(7, 5, Duration::MAX).await,
            3,
            "no longer than handlers end"
        );
        assert_eq!(gathered(10, 5, Duration::MAX).await, 0);
        assert_eq!(
            gathered(0, 5, Duration::ZERO).await,
            1,
            "no longer than was said"
        );
    }
}
