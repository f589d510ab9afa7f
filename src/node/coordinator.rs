//! The task that owns a node's timers: it sleeps until something is to be done, and has it done.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio_util::sync::CancellationToken;

use crate::error::Error;
use crate::node::Event;
use crate::node::claim_lease::ClaimLease;
use crate::node::claimer::Nudge;
use crate::node::newest_reply::{NewestReply, News};
use crate::node::panics::TaskPanics;
use crate::node::precise_timer::PreciseTimer;
use crate::node::timers::{Action, BEAT_EVERY, FALLBACK_INTERVAL, NodeTimers, TICK};
use crate::partition::{Beat, Moved, Partition, Presence};
use crate::protocol::replies::Header;
use crate::server::lane::reconnect_delays;
use crate::telemetry::events;
use crate::telemetry::metrics::Count;
use crate::wheel::Key;

/// A resync that follows another one sooner than this is put off: a subscription that fails again and again must not make
/// the node a burden.
const RESYNC_PAUSE: Duration = Duration::from_millis(100);

/// How many events are taken in at most before what is due is done.
const EVENTS: usize = 1_024;

pub(crate) struct Coordinator {
    pub(crate) node: String,
    pub(crate) partition: Arc<Partition>,
    pub(crate) sender: UnboundedSender<Event>,
    pub(crate) stop: CancellationToken,
    nudge: Arc<Nudge>,
    panics: TaskPanics,
    timers: NodeTimers,
    /// What is not settled, by the number of the claim, with the timer of its next look.
    lease: HashMap<u64, (Arc<ClaimLease>, Option<Key>)>,
    newest: NewestReply,
    last_beat: Instant,
    /// How many calls failed since the last beat that did not.
    failures: u32,
    /// How many beats failed since the last one that did not.
    failed_beats: u32,
}

impl Coordinator {
    pub(crate) fn new(
        node: String,
        partition: Arc<Partition>,
        sender: UnboundedSender<Event>,
        stop: CancellationToken,
        nudge: Arc<Nudge>,
        panics: TaskPanics,
    ) -> Self {
        let now = Instant::now();
        let timers = NodeTimers::new(now, fastrand::u64(..));
        Self {
            node,
            partition,
            sender,
            stop,
            nudge,
            panics,
            timers,
            lease: HashMap::new(),
            newest: NewestReply::default(),
            last_beat: now,
            failures: 0,
            failed_beats: 0,
        }
    }

    /// Runs until `stop`; then says goodbye, so that another node takes the leader at once.
    pub(crate) async fn run(mut self, mut events: UnboundedReceiver<Event>) {
        let now = Instant::now();
        self.timers.beat_at(now, now);
        let timer = PreciseTimer::start();
        loop {
            let next = self.timers.next();
            tokio::select! {
                () = self.stop.cancelled() => break,
                Some(event) = events.recv() => self.take(event),
                () = timer.wait(next) => {}
            }
            // What has happened comes before what its absence would make due, such as a look after a claim.
            for _ in 0..EVENTS {
                let Ok(event) = events.try_recv() else { break };
                self.take(event);
            }
            let now = Instant::now();
            while let Some(action) = self.timers.pop(now) {
                self.perform(action, now);
            }
        }
        // A beat that is under way must not come after the goodbye: it would bring a node back that is no more, with the leader.
        let panics = self.panics.clone();
        while self.timers.is_in_flight(Action::Beat) {
            tokio::select! {
                Some(event) = events.recv() => self.take(event),
                // It may have been the beat that panicked: then no answer comes.
                () = panics.happened() => break,
            }
        }
        if let Err(error) = self.partition.beat(&self.node, Presence::Leave).await {
            events::call_failed(
                self.partition.queue_name(),
                "leave",
                &error,
                "the node is forgotten in 3 s",
            );
        }
    }

    fn take(&mut self, event: Event) {
        let now = Instant::now();
        match event {
            Event::Header(header) => {
                self.absorb(&header, now);
            }
            Event::Notice(due_ms) => {
                if self.newest.has_no_queue() {
                    // The first word of a new queue: its leader is free, and who has it fires on the dot.
                    self.timers.beat_at(now, now);
                }
                let at = due_ms.and_then(|ms| self.partition.link().clock().instant_of_ms(ms));
                self.timers.head_is(at, now);
            }
            Event::Resync => self
                .timers
                .beat_at((self.last_beat + RESYNC_PAUSE).max(now), now),
            Event::Claimed(lease) => {
                let look = self
                    .timers
                    .schedule(Action::Extend(lease.number), lease.first_look());
                self.lease.insert(lease.number, (lease, look));
            }
            Event::Finished(number) => {
                if let Some((_, look)) = self.lease.remove(&number) {
                    self.timers.unschedule(look);
                }
            }
            Event::Promoted(result) => self.completed(Action::Promote, result, now),
            Event::NotTaken => {
                self.timers.completed(Action::Promote, now, Duration::ZERO);
                self.timers.head_at(now, now);
            }
            Event::Reaped(result) => self.completed(Action::Reap, result, now),
            Event::Beaten { sent, result } => {
                self.timers.completed(Action::Beat, now, Duration::ZERO);
                self.timers.beat_at(sent + BEAT_EVERY, now);
                match result {
                    Ok(Beat {
                        header,
                        leader,
                        nodes,
                        ready,
                    }) => {
                        self.failures = 0;
                        if self.failed_beats > 0 {
                            events::recovered(
                                self.partition.queue_name(),
                                "beat",
                                self.failed_beats,
                            );
                            self.failed_beats = 0;
                        }
                        self.timers.set_leader(leader, nodes, sent);
                        if self.absorb(&header, now) {
                            let head_ms = header.head_ms.filter(|_| !header.paused);
                            let at = head_ms
                                .and_then(|ms| self.partition.link().clock().instant_of_ms(ms));
                            self.timers.head_is(at, now);
                        }
                        if ready > 0 && !header.paused {
                            self.nudge.look();
                        }
                    }
                    Err(error) => {
                        self.failed_beats += 1;
                        self.failed("beat", &error, now);
                    }
                }
            }
        }
    }

    /// Arms what a reply says about the queue. Of a reply that is older than another one nothing is armed: returns `false`.
    fn absorb(&mut self, header: &Header, now: Instant) -> bool {
        let news = self.newest.take(header, now);
        match news {
            News::Stale => return false,
            News::Same => {}
            News::Made | News::Emptied => {
                if news == News::Emptied {
                    self.partition.meters().add(Count::StoreEmptied);
                    events::store_emptied(self.partition.queue_name());
                }
                // The leader of a new queue is free.
                self.timers.beat_at(now, now);
            }
        }
        // For a head that is past, this call has rung: whoever is free claims it, promoted or not.
        let past = |head_ms: u64| head_ms <= u64::try_from(header.now_us / 1_000).unwrap_or(0);
        if let Some(head_ms) = header
            .head_ms
            .filter(|head_ms| !header.paused && !past(*head_ms))
        {
            self.head_ms(head_ms, now);
        }
        if let Some(at) = header
            .lease_deadline_ms
            .and_then(|ms| self.partition.link().clock().instant_of_ms(ms))
        {
            self.timers.lease_ends_at(at, now);
        }
        true
    }

    fn head_ms(&mut self, due_ms: u64, now: Instant) {
        if let Some(at) = self.partition.link().clock().instant_of_ms(due_ms) {
            self.timers.head_at(at, now);
        }
    }

    /// A promote or reap is back. If something is due by Redis's clock and yet nothing was moved, it cannot be moved just
    /// now (the ready window is full, the queue is on hold), and asking again at once would only spin; if it is not due yet,
    /// we were early by less than a millisecond.
    fn completed(&mut self, action: Action, result: Result<Moved, Error>, now: Instant) {
        match result {
            Ok(Moved {
                header,
                count: moved,
            }) => {
                let now_ms = u64::try_from(header.now_us / 1_000).unwrap_or(0);
                let first = if action == Action::Promote {
                    header.head_ms
                } else {
                    header.lease_deadline_ms
                };
                let pause = match first {
                    _ if moved > 0 => Duration::ZERO,
                    Some(ms) if ms <= now_ms => FALLBACK_INTERVAL,
                    _ => TICK,
                };
                self.timers.completed(action, now, pause);
                self.absorb(&header, now);
            }
            Err(error) => {
                let pause = if error.is_retryable() {
                    Duration::ZERO
                } else {
                    FALLBACK_INTERVAL
                };
                self.timers.completed(action, now, pause);
                self.failed(
                    if action == Action::Promote {
                        "promote"
                    } else {
                        "reap"
                    },
                    &error,
                    now,
                );
            }
        }
    }

    fn perform(&mut self, action: Action, now: Instant) {
        match action {
            // Claimed at once instead, if that takes nothing from other nodes that are as idle.
            Action::Promote
                if self.timers.leads(now) && self.nudge.take(self.timers.is_alone()) => {}
            Action::Promote => {
                self.spawn(|partition| async move { Event::Promoted(partition.promote().await) })
            }
            Action::Reap => {
                self.spawn(|partition| async move { Event::Reaped(partition.reap().await) })
            }
            Action::Beat => {
                self.last_beat = now;
                let node = self.node.clone();
                self.spawn(move |partition| async move {
                    Event::Beaten {
                        sent: now,
                        result: partition.beat(&node, Presence::Stay).await,
                    }
                });
            }
            Action::Extend(number) => self.extend(number, now),
        }
    }

    /// Looks after the leases of what is left of a claim.
    fn extend(&mut self, number: u64, now: Instant) {
        let Some((lease, look)) = self.lease.get_mut(&number) else {
            return;
        };
        let (extend, next) = lease.look(now);
        *look = next.and_then(|at| self.timers.schedule(Action::Extend(number), at));
        for (place, delivery) in extend {
            let lease = Arc::clone(lease);
            self.panics.spawn(
                "extension",
                async move { lease.extend(place, &delivery).await },
            );
        }
    }

    fn spawn<F: Future<Output = Event> + Send + 'static>(
        &self,
        call: impl FnOnce(Arc<Partition>) -> F,
    ) {
        let (work, sender) = (call(Arc::clone(&self.partition)), self.sender.clone());
        self.panics.spawn("call", async move {
            // The coordinator may have stopped meanwhile.
            let _ = sender.send(work.await);
        });
    }

    /// The next beat says what is still to be done. After a fault that may pass it comes soon: nobody should wait for the
    /// floor because one connection was lost.
    fn failed(&mut self, what: &'static str, error: &Error, now: Instant) {
        events::call_failed(
            self.partition.queue_name(),
            what,
            error,
            "the next beat is within a second",
        );
        if error.is_retryable() {
            self.failures += 1;
            self.timers.beat_at(
                now + reconnect_delays().delay(self.failures, fastrand::f64()),
                now,
            );
        }
    }
}
