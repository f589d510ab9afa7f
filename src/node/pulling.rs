//! The coordinator's part of pulls, which take the place of a handler, and which wake-up tokens it
//! takes or gives back.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use crate::delivery::Delivery;
use crate::error::Error;
use crate::node::attended_queue::AttendedQueue;
use crate::node::claim_state::Wanted;
use crate::node::coordinator::Coordinator;
use crate::node::event::{Event, QueueNumber, Reply};
use crate::node::membership::QueueEntry;
use crate::node::pulls::{BoundPulls, Pulls};
use crate::node::tasks::Task;
use crate::node::wakes::{WakeUp, WakeUps};
use crate::protocol::results::claim::Granted;
use crate::telemetry::events;

impl Coordinator {
    /// Attends a queue for pulls, unless it does so already. Returns the pulls of the queue.
    ///
    /// # Errors
    /// `InvalidInput` if the node is still leaving the queue.
    pub(crate) fn attend_for_pulls(
        &mut self,
        entry: QueueEntry,
        now: Instant,
    ) -> Result<Arc<Pulls>, Error> {
        let name = entry.router.queue_name();
        let number = self.membership.numbers.get(name);
        let attended = number.and_then(|number| self.membership.queues.get(number));
        let handling = match attended {
            Some(queue) => Arc::clone(&queue.entry.handling),
            None => {
                let handling = Arc::clone(&entry.handling);
                self.attend(entry, None, now)?;
                handling
            }
        };
        handling
            .pulls()
            .ok_or_else(|| Error::invalid("a worker handles the queue"))
    }

    /// A pull has come. Each partition is asked once, whatever the last replies said: the caller
    /// wants to know what is due now.
    pub(crate) fn pulled(&mut self, name: &str, now: Instant) {
        let number = self.membership.numbers.get(name);
        let Some(queue) = number.and_then(|number| self.membership.queues.get(number)) else {
            return;
        };
        let members: BTreeSet<_> = queue.members.values().copied().collect();
        if let Some(pulls) = Arc::clone(&queue.entry.handling).pulls() {
            pulls.seen(&members);
        }
        for number in members {
            self.shares.set_paused(number, false);
            self.want_for(number, Wanted::Pulled, now);
        }
    }

    /// A lease has the token that the caller of a pull has chosen: only that pull has failed.
    pub(crate) fn refused_token(
        &mut self,
        number: QueueNumber,
        bound: Option<BoundPulls>,
        refusal: &Error,
        for_promote: bool,
        now: Instant,
    ) {
        if let Some(bound) = bound {
            bound.failed(refusal);
        }
        if let Some(queue) = self.queues.get_mut(&number) {
            queue.claim.succeeded(false);
        }
        if for_promote {
            // The claim was to take its place.
            self.call(number, |partition| async move {
                Reply::Promoted(partition.promote().await)
            });
        }
        // The token that woke this node, if one did, is for another pull or another node.
        if self
            .queues
            .get(&number)
            .is_some_and(|queue| queue.handling.is_needed())
        {
            self.want(number, now);
        } else {
            self.return_token(number);
        }
    }

    /// Hands what a claim granted to its pulls. Their callers extend the leases and settle: the node
    /// keeps nothing of the deliveries.
    pub(crate) fn answer_pulls(
        &mut self,
        number: QueueNumber,
        bound: BoundPulls,
        granted: Vec<Granted>,
        is_left: bool,
    ) {
        let Some(queue) = self.queues.get(&number) else {
            return;
        };
        let deliveries = granted
            .into_iter()
            .map(|granted| Delivery::new(Arc::clone(&queue.partition), granted));
        bound.granted(deliveries.collect(), is_left, &queue.context);
    }
}

/// For claims of 0 messages: they lease nothing.
const ANY_LEASE_MS: u64 = 1;

impl Coordinator {
    /// A wake-up token came, or the pop failed and may have lost some.
    pub(crate) fn woken(&mut self, wake_up: WakeUp, now: Instant) {
        match wake_up {
            WakeUp::Token(number) => {
                let attended = self.queues.get_mut(&number);
                let Some(queue) = attended.filter(|queue| queue.is_attending()) else {
                    // The queue was removed while the pop covered its list.
                    self.return_token(number);
                    self.membership.left.remove(&number);
                    return;
                };
                // Scripts write no tokens while the queue is paused.
                queue.resumed();
                let in_flight = queue.claim.is_in_flight();
                let is_needed = queue.handling.is_needed();
                self.shares.set_paused(number, false);
                self.collect_ended();
                if is_needed && (in_flight || self.shares.free_for(number) > 0) {
                    self.want(number, now);
                } else {
                    // No handler is free here, or no pull waits: pass the token on to another node.
                    self.return_token(number);
                    self.attention.refuse(number);
                }
            }
            WakeUp::Failed(covered) => {
                for number in covered {
                    if self.queues.get(&number).is_some_and(is_open) {
                        self.want(number, now);
                    } else {
                        self.return_token(number);
                    }
                }
            }
        }
    }

    /// Claims for queues whose last token was refused, as soon as they have a handler.
    pub(crate) fn accept_refused(&mut self, now: Instant) {
        let accepted: Vec<_> = self
            .attention
            .refused()
            .filter(|number| {
                self.shares.free_for(*number) > 0 && self.queues.get(number).is_some_and(is_open)
            })
            .collect();
        for number in accepted {
            self.attention.accept(number);
            self.want(number, now);
            // Until a pop covers the list again, notices must report new work.
            self.timers.beat_at(number, now, now);
        }
    }

    /// The queues of which the last pop may have taken a token, and those that the next one covers.
    pub(crate) fn token_lists(&self) -> BTreeSet<QueueNumber> {
        let last = self.wake.iter().flat_map(WakeUps::last_covered);
        self.attention.lists().chain(last).collect()
    }

    /// Gives a wake-up token back if there is work: a claim of 0 messages does this.
    pub(crate) fn return_token(&mut self, number: QueueNumber) {
        let attended = self.queues.get(&number);
        let partition = attended
            .map(|queue| &queue.partition)
            .or_else(|| self.membership.left.get(&number));
        let Some(partition) = partition.map(Arc::clone) else {
            return;
        };
        self.returning += 1;
        let sender = self.sender.clone();
        self.tasks.spawn(Task::Call, async move {
            if let Err(error) = partition.claim(0, ANY_LEASE_MS).await {
                let then = "a beat wakes the other nodes within a second";
                events::call_failed(partition.queue_name(), "wake", &error, then);
            }
            // The coordinator may have stopped.
            let _ = sender.send(Event::Reply(number, Reply::TokenReturned));
        });
    }
}

/// Whether the node may use a token of the queue.
fn is_open(queue: &AttendedQueue) -> bool {
    queue.is_attending() && queue.handling.is_needed()
}

#[cfg(test)]
mod tests;
