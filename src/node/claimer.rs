//! The claimer: waits for work while handlers are free, claims a batch, and starts its handlers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::UnboundedSender;
use tokio_util::sync::CancellationToken;

use crate::delivery::Delivery;
use crate::node::claim_lease::ClaimLease;
use crate::node::claim_requests::{ClaimRequest, ClaimRequests};
use crate::node::event::Event;
use crate::node::handler_guard::HandlerGuard;
use crate::node::handling::{HandlerContext, Handling};
use crate::node::slots::{SlotPermits, Slots};
use crate::node::wake::WakeUps;
use crate::partition::Partition;
use crate::protocol::results::claim::Claim;
use crate::protocol::results::roles::Moved;
use crate::server::patience::reconnect_delays;
use crate::telemetry::events;

/// After a claim that left messages behind, claim once more after this time even without a wake-up
/// token: other nodes may have consumed both tokens, and the leader would not learn the next due
/// time.
const CLAIM_AGAIN: Duration = Duration::from_millis(1);

pub(crate) struct Claimer {
    pub(crate) partition: Arc<Partition>,
    pub(crate) wake: WakeUps,
    pub(crate) lease: Duration,
    pub(crate) lease_ms: u64,
    pub(crate) slots: Arc<Slots>,
    pub(crate) requests: Arc<ClaimRequests>,
    pub(crate) handling: Arc<dyn Handling>,
    pub(crate) context: Arc<HandlerContext>,
    pub(crate) events: UnboundedSender<Event>,
    pub(crate) stop: CancellationToken,
}

/// Why the claimer claims now, or that it stops.
enum Reason {
    /// The last claim filled every slot and left messages behind.
    MoreLeft,
    /// A wake-up token or a hint came, or [`CLAIM_AGAIN`] has elapsed.
    WokenUp,
    /// The coordinator awaits a reply.
    Requested(ClaimRequest),
    Stop,
}

impl Claimer {
    /// Runs until `stop`. Messages of a claim that is in flight then are still handled.
    pub(crate) async fn run(mut self) {
        let stop = self.stop.clone();
        let slots = Arc::clone(&self.slots);
        let mut claim_number = 0;
        let mut failures = 0;
        // The first claim needs no token: messages may have been pushed before this node listened.
        let mut claim_at_once = true;
        let mut left_behind = false;
        loop {
            let permits = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                permits = slots.acquire() => permits,
                () = self.wake.wait(), if self.wake.is_waiting() => {
                    // No slot is free here: pass the token on to a node that has one.
                    return_token(&self.partition, self.lease_ms).await;
                    continue;
                }
            };
            let reason = if claim_at_once {
                slots.gather().await;
                if stop.is_cancelled() {
                    break;
                }
                Reason::MoreLeft
            } else {
                self.wait(left_behind).await
            };
            if matches!(reason, Reason::Stop) {
                break;
            }
            let permits = slots.acquire_free(permits);
            let room = self.handling.capacity(permits.count());
            let permits = slots.acquire_deliveries(permits, room);
            let count = room.min(permits.deliveries.num_permits());
            let sent = Instant::now();
            match self.partition.claim(count, self.lease_ms).await {
                Ok(claim) => {
                    if failures > 0 {
                        events::recovered(self.partition.queue_name(), "claim", failures);
                        failures = 0;
                    }
                    left_behind = leaves_messages(&claim);
                    // A claim that was limited by this node's fair share waits for a token instead,
                    // so that the other nodes get theirs.
                    claim_at_once = left_behind && claim.granted.len() == count;
                    claim_number += 1;
                    self.start(claim, claim_number, sent, permits, reason);
                }
                Err(error) => {
                    failures += 1;
                    claim_at_once = true;
                    let name = self.partition.queue_name();
                    events::call_failed(name, "claim", &error, "it is repeated");
                    if let Reason::Requested(request) = reason {
                        request.reply(Err(error));
                    }
                    let pause = reconnect_delays().delay(failures, fastrand::f64());
                    tokio::select! {
                        () = stop.cancelled() => break,
                        () = tokio::time::sleep(pause) => {}
                    }
                }
            }
        }
        // The wait dropped here may have taken a token. If the server has not noticed yet that this
        // node waits no more, it may give the returned token to the dropped wait: then the second
        // token, the node's leave or any beat wakes another node.
        drop(self.wake);
        return_token(&self.partition, self.lease_ms).await;
    }

    /// Waits for work or a request. An accepted request is returned, or declined by its drop.
    async fn wait(&mut self, left_behind: bool) -> Reason {
        let mut request = self.requests.listen();
        let stops = tokio::select! {
            () = self.stop.cancelled() => true,
            Ok(request) = &mut request => return Reason::Requested(request),
            () = self.requests.ready() => false,
            () = self.wake.wait() => false,
            () = tokio::time::sleep(CLAIM_AGAIN), if left_behind => false,
        };
        // A request may have been accepted at the same moment.
        request.close();
        match request.try_recv() {
            _ if stops => Reason::Stop,
            Ok(request) => Reason::Requested(request),
            Err(_) => Reason::WokenUp,
        }
    }

    /// Starts the handlers of a claim.
    fn start(
        &self,
        claim: Claim,
        number: u64,
        sent: Instant,
        mut permits: SlotPermits,
        reason: Reason,
    ) {
        if let Reason::Requested(request) = reason {
            let count = claim.left + claim.granted.len() as u64;
            request.reply(Ok(Moved {
                header: claim.header,
                count,
            }));
        } else {
            let _ = self.events.send(Event::Header(claim.header));
        }
        if claim.granted.is_empty() {
            return;
        }
        // Redis grants no more than was asked for; `take` guards against a faulty reply.
        let granted = claim
            .granted
            .into_iter()
            .take(permits.deliveries.num_permits());
        let deliveries: Vec<_> = granted
            .map(|granted| Delivery::new(Arc::clone(&self.partition), granted))
            .collect();
        let lease = Arc::new(ClaimLease::new(
            number,
            deliveries.clone(),
            sent,
            self.lease,
        ));
        let _ = self.events.send(Event::Claimed(Arc::clone(&lease)));
        let guarded = deliveries.into_iter().enumerate();
        let guarded = guarded.filter_map(|(index, delivery)| {
            let unsettled = permits.deliveries.split(1)?;
            let guard =
                HandlerGuard::new(Arc::clone(&lease), index, self.events.clone(), unsettled);
            Some((delivery, guard))
        });
        let guarded = guarded.collect();
        Arc::clone(&self.handling).start(guarded, permits.handlers, &self.context);
    }
}

/// Gives a wake-up token back if there is work: a claim of 0 messages does this.
async fn return_token(partition: &Partition, lease_ms: u64) {
    if let Err(error) = partition.claim(0, lease_ms).await {
        events::call_failed(
            partition.queue_name(),
            "wake",
            &error,
            "a beat wakes the other nodes within a second",
        );
    }
}

/// Whether the queue has more messages to claim.
fn leaves_messages(claim: &Claim) -> bool {
    let is_due = claim.header.head_ms.is_some_and(|head_ms| {
        i64::try_from(head_ms).is_ok_and(|head_ms| head_ms <= claim.header.now_us / 1_000)
    });
    !claim.header.paused && (claim.left > 0 || is_due)
}
