//! The coordinator: the task that owns a node's timers and queues, and makes the calls that they
//! ask for.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio_util::sync::CancellationToken;

use crate::node::attendance::{beat_interval, standing};
use crate::node::attended_queue::AttendedQueue;
use crate::node::attention::{Attended, Attention};
use crate::node::claim_lease::Leases;
use crate::node::claim_state::Wanted;
use crate::node::event::QueueNumber;
use crate::node::event::{Event, Reply};
use crate::node::lost_claims::LostClaims;
use crate::node::membership::Membership;
use crate::node::precise_timer::PreciseTimer;
use crate::node::rosters::unwatch;
use crate::node::share_groups::ShareGroups;
use crate::node::slots::NodeSlots;
use crate::node::subscriptions::Hint;
use crate::node::tasks::{Task, Tasks};
use crate::node::timers::{Action, NodeTimers};
use crate::node::wakes::{WakeUp, WakeUpList, WakeUps};
use crate::partition::{Partition, Presence};
use crate::telemetry::events;

/// Shortest time between a beat and the beat after a resync: a subscription that fails repeatedly
/// must not load the server with beats.
const RESYNC_PAUSE: Duration = Duration::from_millis(100);

/// How many beats a second the node sends at most because it starts or reconnects with many queues.
pub(crate) const PACED_BEATS: u32 = 1_000;

/// How many events are handled at most before due actions get a turn.
const MAX_EVENTS: usize = 1_024;

/// The signals that end a node, in their order.
#[derive(Clone, Default)]
pub(crate) struct Stop {
    /// Claim no more.
    pub(crate) claims: CancellationToken,
    /// Set by the coordinator: no claim is in flight any more.
    pub(crate) claimed: CancellationToken,
    /// Drop the handlers.
    pub(crate) abort: CancellationToken,
    /// Leave all queues and end.
    pub(crate) leave: CancellationToken,
}

pub(crate) struct Coordinator {
    /// The id of this node.
    pub(crate) node: String,
    /// For replies to the calls that this task spawns.
    pub(crate) sender: UnboundedSender<Event>,
    pub(crate) stop: Stop,
    pub(crate) tasks: Tasks,
    pub(crate) timers: NodeTimers,
    pub(crate) queues: HashMap<QueueNumber, AttendedQueue>,
    pub(crate) shares: ShareGroups,
    pub(crate) concurrency: usize,
    pub(crate) attention: Attention,
    /// `None` once the node claims no more.
    pub(crate) wake: Option<WakeUps>,
    pub(crate) slots: Arc<NodeSlots>,
    pub(crate) leases: Leases,
    pub(crate) lost_claims: LostClaims,
    pub(crate) membership: Membership,
    /// The queues that want to claim.
    pub(crate) wanting: BTreeSet<QueueNumber>,
    /// The queues with running handlers.
    pub(crate) busy: BTreeSet<QueueNumber>,
    /// How many calls that give a wake-up token back are in flight.
    pub(crate) returning: usize,
    /// The end of the wait for more handlers before a claim.
    pub(crate) gather_until: Option<Instant>,
}

impl Coordinator {
    /// Runs until `stop.leave`. Then reports that the node leaves, so that another node becomes the
    /// leader at once.
    pub(crate) async fn run(mut self, mut events: UnboundedReceiver<Event>, timer: PreciseTimer) {
        self.attend_initial(Instant::now());
        loop {
            self.cover_lists();
            let next = earliest(self.timers.next(), self.gather_until);
            let claims_stop = self.stop.claims.clone();
            let slots = Arc::clone(&self.slots);
            let may_wait = self.shares.free() > 0;
            tokio::select! {
                () = self.stop.leave.cancelled() => break,
                Some(event) = events.recv() => self.handle(event),
                wake_up = woken(&mut self.wake, may_wait) => self.woken(wake_up, Instant::now()),
                () = slots.freed() => {}
                () = timer.wait(next) => {}
                () = claims_stop.cancelled(), if self.wake.is_some() => self.stop_claiming(),
            }
            // Events first: a reply that has arrived may make a due action unnecessary.
            for _ in 0..MAX_EVENTS {
                let Ok(event) = events.try_recv() else { break };
                self.handle(event);
            }
            let now = Instant::now();
            while let Some((queue, action)) = self.timers.pop(now) {
                self.perform(queue, action, now);
            }
            self.dispatch(now);
            self.report_claimed();
        }
        self.leave_all(events).await;
    }

    pub(crate) fn handle(&mut self, event: Event) {
        let now = Instant::now();
        match event {
            Event::Reply(queue, reply) => self.answered(queue, reply, now),
            Event::Hint(hint) => self.hinted(&hint, now),
            Event::Found(found) => self.found(found, now),
            Event::Command(command) => self.command(command, now),
            Event::Watched(queue, sent, tag, result) => {
                self.watched(queue, sent, (tag, result), now);
            }
            Event::Mapped(queue, read) => self.mapped(queue, read, now),
        }
    }

    fn hinted(&mut self, hint: &Hint, now: Instant) {
        match *hint {
            Hint::Notice(number, due_ms) => {
                if let Some(queue) = self.queues.get_mut(&number) {
                    queue.noticed(due_ms, &mut self.timers, now);
                }
            }
            Hint::Subscribed(number) => {
                // After a lost connection, this hint comes for every queue: spread the beats.
                let spread_ms = self.queues.len() as u64 * 1_000 / u64::from(PACED_BEATS);
                let Some(queue) = self.queues.get_mut(&number) else {
                    return;
                };
                queue.is_subscribed = true;
                let spread = Duration::from_millis(fastrand::u64(..=spread_ms.min(9_000)));
                let beat_at = (queue.last_beat + RESYNC_PAUSE).max(now) + spread;
                self.timers.beat_at(number, beat_at, now);
            }
            Hint::Lost(number) => {
                if let Some(queue) = self.queues.get_mut(&number) {
                    queue.is_subscribed = false;
                    queue.unpark(&mut self.timers, now);
                }
            }
        }
    }

    fn answered(&mut self, number: QueueNumber, reply: Reply, now: Instant) {
        if matches!(reply, Reply::TokenReturned) {
            // Also for a queue that the node has left meanwhile: `report_claimed` waits for it.
            self.returning = self.returning.saturating_sub(1);
            return;
        }
        let Some(queue) = self.queues.get_mut(&number) else {
            return;
        };
        let timers = &mut self.timers;
        match reply {
            Reply::Beat {
                sent,
                attended,
                result,
            } => {
                timers.completed(number, Action::Beat, now, Duration::ZERO);
                let is_leader = result.as_ref().is_ok_and(|beat| beat.leader);
                let usual = beat_interval(queue.rank, is_leader);
                let interval = attended.beat_interval(usual, fastrand::f64());
                timers.beat_at(number, sent + interval, now);
                let health = &self.membership.health;
                match result {
                    Ok(beat) => {
                        self.membership.crowd.saw(beat.nodes);
                        let is_parked = matches!(attended, Attended::Parked(_));
                        health.beaten(queue.name(), number, sent, beat.leader, is_parked);
                        let has_ready = queue.beat_answered(&beat, sent, timers, now);
                        // Its claim is on the way; the beat is for the case that it is not.
                        let is_owed = queue.handling.must_ask(number);
                        self.shares.set_paused(number, !queue.takes_messages());
                        if has_ready {
                            self.want(number, now);
                        } else if is_owed {
                            self.want_for(number, Wanted::Pulled, now);
                        }
                        if beat.header.incarnation.is_empty() {
                            self.look_for_map(number);
                        } else {
                            self.needs_no_search(number);
                        }
                        self.check_epoch(number, beat.header.epoch);
                        self.refill(number, &beat, now);
                    }
                    Err(error) => {
                        health.failed(queue.name(), number, &error);
                        queue.beat_failed(&error, timers, now);
                        self.look_for_map(number);
                    }
                }
            }
            Reply::Promoted(result) => {
                queue.moved(Action::Promote, &result, timers, now);
                if result.is_ok() && !self.covers(number) {
                    // No wake-up token reaches this node.
                    self.want(number, now);
                }
            }
            Reply::Reaped(result) => queue.moved(Action::Reap, &result, timers, now),
            Reply::Claimed(claimed) => self.claimed(number, *claimed, now),
            Reply::LookedUp(grant) => self.looked_up(number, *grant, now),
            Reply::Refilled(reply) => self.refilled(number, *reply, now),
            Reply::TokenReturned => {}
            Reply::Left => self.left(number, now),
        }
    }

    pub(crate) fn perform(&mut self, number: QueueNumber, action: Action, now: Instant) {
        match action {
            Action::Promote => {
                if !self.claims_instead(number, now) {
                    self.call(number, |partition| async move {
                        Reply::Promoted(partition.promote().await)
                    });
                }
            }
            Action::Reap => {
                self.call(number, |partition| async move {
                    Reply::Reaped(partition.reap().await)
                });
            }
            Action::Beat => self.beat(number, now),
            Action::Claim => self.want(number, now),
            Action::Watch => self.watch(number, now),
            Action::CheckLeases(claim) => {
                for extension in self.leases.check(number, claim, &mut self.timers, now) {
                    self.tasks.spawn(Task::Extension, extension);
                }
            }
        }
    }

    pub(crate) fn beat(&mut self, number: QueueNumber, now: Instant) {
        let is_covered = self.covers(number);
        let is_busy = self.busy.contains(&number);
        let is_leader = self.timers.is_leader(number, now);
        let Some(queue) = self.queues.get_mut(&number) else {
            return;
        };
        let attended = queue.attend(is_covered, is_busy, now);
        queue.attended = attended;
        queue.last_beat = now;
        let may_park = queue.may_park_soon();
        queue.has_beaten = true;
        if matches!(attended, Attended::Parked(_)) {
            self.attention.deactivate(number);
        } else if queue.is_attending() && !may_park {
            self.attention.activate(number);
        }
        let presence = attended.presence(standing(queue.rank));
        let reports = queue.reports(is_leader, now);
        let node = self.node.clone();
        self.call(number, move |partition| async move {
            Reply::Beat {
                sent: now,
                attended,
                result: partition.beat(&node, presence, reports).await,
            }
        });
    }

    /// Makes a call in a task of its own; its reply comes back as an event.
    pub(crate) fn call<F: Future<Output = Reply> + Send + 'static>(
        &self,
        number: QueueNumber,
        call: impl FnOnce(Arc<Partition>) -> F,
    ) {
        let Some(queue) = self.queues.get(&number) else {
            return;
        };
        let call = call(Arc::clone(&queue.partition));
        let sender = self.sender.clone();
        self.tasks.spawn(Task::Call, async move {
            // The coordinator may have stopped.
            let _ = sender.send(Event::Reply(number, call.await));
        });
    }

    /// Whether the blocking pop in flight, or the next one, covers the wake-up list of this queue.
    pub(crate) fn covers(&self, number: QueueNumber) -> bool {
        self.wake.as_ref().is_some_and(|wake| wake.covers(number))
    }

    /// Hands the lists to the blocking pop, if they changed.
    pub(crate) fn cover_lists(&mut self) {
        if let Some(wake) = &mut self.wake
            && self.attention.take_changed()
        {
            let list = |number| {
                let queue = self.queues.get(&number)?;
                Some(WakeUpList {
                    queue: number,
                    queue_name: queue.name().to_owned(),
                    key: queue.partition.keys().wake.clone(),
                    route: queue.partition.route().clone(),
                })
            };
            wake.listen(self.attention.lists().filter_map(list).collect());
        }
    }

    /// Leaves all queues.
    async fn leave_all(&mut self, mut events: UnboundedReceiver<Event>) {
        // A beat in flight must not reach Redis after the leave: it would register the node again.
        let tasks = self.tasks.clone();
        let numbers: Vec<_> = self.queues.keys().copied().collect();
        for number in numbers {
            while self.timers.is_in_flight(number, Action::Beat) {
                tokio::select! {
                    Some(event) = events.recv() => self.handle(event),
                    // If the beat's own task panicked, no reply comes.
                    () = tasks.happened() => break,
                }
            }
        }
        // A dropped worker may have claims in flight. Later replies fail to be sent, and the tasks of
        // their claims release the messages. The handlers of those that came release theirs.
        events.close();
        while let Ok(event) = events.try_recv() {
            self.handle(event);
        }
        let mut leaves = tokio::task::JoinSet::new();
        for at in self.rosters() {
            let node = self.node.clone();
            leaves.spawn(async move { unwatch(&at, &node).await });
        }
        for (_, queue) in self.queues.drain() {
            let node = self.node.clone();
            let registered = Arc::clone(&self.membership.registered);
            leaves.spawn(async move {
                leave(&queue.partition, &node).await;
                registered.remove(&queue.partition);
            });
        }
        leaves.join_all().await;
        for queue in self.membership.queues.values() {
            events::worker_stopped(queue.name(), &self.node);
        }
    }
}

/// Reports that a node leaves a queue.
pub(crate) async fn leave(partition: &Partition, node: &str) {
    let reports = partition.has_times();
    let left = partition.beat(node, Presence::Leave, reports).await;
    if let Err(error) = left {
        let name = partition.queue_name();
        events::call_failed(name, "leave", &error, "Redis forgets the node after 3 s");
    }
}

/// The next wake-up. Starts no pop while no handler is free, so that other nodes get the tokens.
async fn woken(wake: &mut Option<WakeUps>, may_start: bool) -> WakeUp {
    match wake {
        Some(wake) => wake.wait(may_start).await,
        None => std::future::pending().await,
    }
}

fn earliest(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    one.into_iter().chain(other).min()
}
