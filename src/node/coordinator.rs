//! The coordinator: the task that owns a node's timers and makes the calls that they ask for.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio_util::sync::CancellationToken;

use crate::error::Error;
use crate::node::claim_lease::{ClaimLease, LeaseCheck};
use crate::node::claim_requests::ClaimRequests;
use crate::node::event::Event;
use crate::node::health::SharedHealth;
use crate::node::newest_reply::{NewestReply, Verdict};
use crate::node::panics::TaskPanics;
use crate::node::precise_timer::PreciseTimer;
use crate::node::timers::{Action, BEAT_INTERVAL, FALLBACK_INTERVAL, NodeTimers, TICK};
use crate::partition::{Partition, Presence};
use crate::protocol::replies::Header;
use crate::protocol::results::roles::{Beat, Moved};
use crate::server::patience::reconnect_delays;
use crate::telemetry::events;
use crate::telemetry::metrics::Count;
use crate::wheel::Key;

/// Shortest time between a beat and the beat after a resync: a subscription that fails repeatedly
/// must not load the server with beats.
const RESYNC_PAUSE: Duration = Duration::from_millis(100);

/// How many events are handled at most before due actions get a turn.
const MAX_EVENTS: usize = 1_024;

pub(crate) struct Coordinator {
    /// The id of this node.
    node: String,
    partition: Arc<Partition>,
    /// For replies to the calls that this task spawns.
    sender: UnboundedSender<Event>,
    stop: CancellationToken,
    requests: Arc<ClaimRequests>,
    panics: TaskPanics,
    health: Arc<SharedHealth>,
    timers: NodeTimers,
    /// The claims with unsettled deliveries, by number.
    claims: HashMap<u64, TrackedClaim>,
    newest: NewestReply,
    last_beat: Instant,
    /// Failed calls since the last beat that succeeded.
    failures: u32,
    /// Failed beats since the last beat that succeeded.
    failed_beats: u32,
}

struct TrackedClaim {
    lease: Arc<ClaimLease>,
    /// The timer of the next lease check.
    timer: Option<Key>,
}

impl Coordinator {
    pub(crate) fn new(
        node: String,
        partition: Arc<Partition>,
        sender: UnboundedSender<Event>,
        stop: CancellationToken,
        requests: Arc<ClaimRequests>,
        panics: TaskPanics,
        health: Arc<SharedHealth>,
    ) -> Self {
        let now = Instant::now();
        Self {
            node,
            partition,
            sender,
            stop,
            requests,
            panics,
            health,
            timers: NodeTimers::new(now, fastrand::u64(..)),
            claims: HashMap::new(),
            newest: NewestReply::default(),
            last_beat: now,
            failures: 0,
            failed_beats: 0,
        }
    }

    /// Runs until `stop`. Then reports that the node leaves, so that another node becomes the
    /// leader at once.
    pub(crate) async fn run(mut self, mut events: UnboundedReceiver<Event>) {
        let now = Instant::now();
        self.timers.beat_at(now, now);
        let timer = PreciseTimer::start();
        loop {
            let next = self.timers.next();
            tokio::select! {
                () = self.stop.cancelled() => break,
                Some(event) = events.recv() => self.handle(event),
                () = timer.wait(next) => {}
            }
            // Events first: a reply that has arrived may make a due action unnecessary.
            for _ in 0..MAX_EVENTS {
                let Ok(event) = events.try_recv() else { break };
                self.handle(event);
            }
            let now = Instant::now();
            while let Some(action) = self.timers.pop(now) {
                self.perform(action, now);
            }
        }
        // A beat in flight must not reach Redis after the leave: it would register the node again.
        let panics = self.panics.clone();
        while self.timers.is_in_flight(Action::Beat) {
            tokio::select! {
                Some(event) = events.recv() => self.handle(event),
                // If the beat's own task panicked, no reply comes.
                () = panics.happened() => break,
            }
        }
        if let Err(error) = self.partition.beat(&self.node, Presence::Leave).await {
            let name = self.partition.queue_name();
            events::call_failed(name, "leave", &error, "Redis forgets the node after 3 s");
        }
    }

    fn handle(&mut self, event: Event) {
        let now = Instant::now();
        match event {
            Event::Header(header) => {
                self.absorb(&header, now);
            }
            Event::Notice(due_ms) => {
                if self.newest.has_no_queue() {
                    // The queue is new and has no leader: try to become it now.
                    self.timers.beat_at(now, now);
                }
                self.timers.head_is(self.instant(due_ms), now);
            }
            Event::Resync => {
                let beat_at = (self.last_beat + RESYNC_PAUSE).max(now);
                self.timers.beat_at(beat_at, now);
            }
            Event::Claimed(lease) => {
                let check = Action::CheckLeases(lease.number);
                let timer = self.timers.schedule(check, lease.first_check());
                let number = lease.number;
                self.claims.insert(number, TrackedClaim { lease, timer });
            }
            Event::ClaimEnded(number) => {
                if let Some(claim) = self.claims.remove(&number) {
                    self.timers.cancel(claim.timer);
                }
            }
            Event::Promoted(result) => self.moved(Action::Promote, result, now),
            Event::ClaimDeclined => {
                self.timers.completed(Action::Promote, now, Duration::ZERO);
                self.timers.promote_at(now, now);
            }
            Event::Reaped(result) => self.moved(Action::Reap, result, now),
            Event::Beat { sent, result } => {
                self.timers.completed(Action::Beat, now, Duration::ZERO);
                self.timers.beat_at(sent + BEAT_INTERVAL, now);
                match result {
                    Ok(beat) => self.beat_answered(&beat, sent, now),
                    Err(error) => {
                        self.failed_beats += 1;
                        self.health.failed(self.partition.queue_name(), &error);
                        self.failed("beat", &error, now);
                    }
                }
            }
        }
    }

    fn beat_answered(&mut self, beat: &Beat, sent: Instant, now: Instant) {
        let header = &beat.header;
        self.failures = 0;
        if self.failed_beats > 0 {
            events::recovered(self.partition.queue_name(), "beat", self.failed_beats);
            self.failed_beats = 0;
        }
        let name = self.partition.queue_name();
        self.health.beaten(name, sent, beat.leader, false);
        self.timers.set_leader(beat.leader, beat.nodes, sent);
        if self.absorb(header, now) {
            let head_ms = header.head_ms.filter(|_| !header.paused);
            self.timers.head_is(self.instant(head_ms), now);
        }
        if beat.ready > 0 && !header.paused {
            self.requests.hint_ready();
        }
    }

    /// Sets the timers from the header of a reply. Ignores a header that is older than another one,
    /// and then returns `false`.
    fn absorb(&mut self, header: &Header, now: Instant) -> bool {
        let verdict = self.newest.compare(header, now);
        match verdict {
            Verdict::Stale => return false,
            Verdict::SameQueue => {}
            Verdict::NewQueue | Verdict::Emptied => {
                if verdict == Verdict::Emptied {
                    self.partition.meters().add(Count::StoreEmptied);
                    events::store_emptied(self.partition.queue_name());
                }
                // The queue is new and has no leader: try to become it now.
                self.timers.beat_at(now, now);
            }
        }
        // No promote for a head that is due already: the call that returned this header has added a
        // wake-up token, and the node that takes it claims the head, promoted or not.
        let due_later = |head_ms: &u64| *head_ms > now_ms(header);
        let head_ms = header.head_ms.filter(due_later);
        if let Some(at) = self.instant(head_ms)
            && !header.paused
        {
            self.timers.promote_at(at, now);
        }
        if let Some(at) = self.instant(header.lease_deadline_ms) {
            self.timers.reap_at(at, now);
        }
        true
    }

    /// The reply to a promote or reap. If work is due by Redis's clock but none was moved, it
    /// cannot be moved now (the ready list is full, or reaping is suspended): back off instead of
    /// spinning. If no work is due, this node called early by less than 1 ms: wait for one tick.
    fn moved(&mut self, action: Action, result: Result<Moved, Error>, now: Instant) {
        let call = if action == Action::Promote {
            "promote"
        } else {
            "reap"
        };
        match result {
            Ok(Moved { header, count }) => {
                let first_ms = if action == Action::Promote {
                    header.head_ms
                } else {
                    header.lease_deadline_ms
                };
                let backoff = match first_ms {
                    _ if count > 0 => Duration::ZERO,
                    Some(ms) if ms <= now_ms(&header) => FALLBACK_INTERVAL,
                    _ => TICK,
                };
                self.timers.completed(action, now, backoff);
                self.absorb(&header, now);
            }
            Err(error) => {
                let backoff = if error.is_retryable() {
                    Duration::ZERO
                } else {
                    FALLBACK_INTERVAL
                };
                self.timers.completed(action, now, backoff);
                self.failed(call, &error, now);
            }
        }
    }

    fn perform(&mut self, action: Action, now: Instant) {
        match action {
            Action::Promote => {
                if !self.claims_instead(now) {
                    self.spawn(
                        |partition| async move { Event::Promoted(partition.promote().await) },
                    );
                }
            }
            Action::Reap => {
                self.spawn(|partition| async move { Event::Reaped(partition.reap().await) });
            }
            Action::Beat => {
                self.last_beat = now;
                let node = self.node.clone();
                self.spawn(move |partition| async move {
                    Event::Beat {
                        sent: now,
                        result: partition.beat(&node, Presence::Stay).await,
                    }
                });
            }
            Action::CheckLeases(number) => self.check_leases(number, now),
        }
    }

    /// Whether this node's own claimer claims the due messages, so that no promote is needed. Only
    /// the leader asks it: a standby must first find out whether the leader is alive.
    fn claims_instead(&self, now: Instant) -> bool {
        self.timers.is_leader(now) && self.requests.send(self.timers.is_alone(), &self.sender)
    }

    /// Extends the leases of a claim's unsettled deliveries.
    fn check_leases(&mut self, number: u64, now: Instant) {
        let Some(claim) = self.claims.get_mut(&number) else {
            return;
        };
        let LeaseCheck { extend, next } = claim.lease.check(now);
        let check = Action::CheckLeases(number);
        claim.timer = next.and_then(|at| self.timers.schedule(check, at));
        for delivery in extend {
            let lease = Arc::clone(&claim.lease);
            self.panics
                .spawn("extension", async move { lease.extend(delivery).await });
        }
    }

    /// Makes a call in a task of its own; its reply comes back as an event.
    fn spawn<F: Future<Output = Event> + Send + 'static>(
        &self,
        call: impl FnOnce(Arc<Partition>) -> F,
    ) {
        let call = call(Arc::clone(&self.partition));
        let sender = self.sender.clone();
        self.panics.spawn("call", async move {
            // The coordinator may have stopped.
            let _ = sender.send(call.await);
        });
    }

    /// Reports a failed call. After a retryable error the next beat comes early, with back-off: its
    /// reply sets all timers again, so that one lost connection does not cost the fallback
    /// interval.
    fn failed(&mut self, call: &'static str, error: &Error, now: Instant) {
        let name = self.partition.queue_name();
        events::call_failed(name, call, error, "the next beat is within a second");
        if error.is_retryable() {
            self.failures += 1;
            let pause = reconnect_delays().delay(self.failures, fastrand::f64());
            self.timers.beat_at(now + pause, now);
        }
    }

    /// The local instant of a time of Redis's clock.
    fn instant(&self, unix_ms: Option<u64>) -> Option<Instant> {
        self.partition.link().clock().instant_of_ms(unix_ms?)
    }
}

/// Redis's time when it replied, in Unix milliseconds.
fn now_ms(header: &Header) -> u64 {
    u64::try_from(header.now_us / 1_000).unwrap_or(0)
}
