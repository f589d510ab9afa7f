//! The coordinator: the one task that owns the state of a node, decides, and makes the calls. The
//! other rooms keep that state, report events to it, or do what it says.

mod claiming;
mod deputies;
mod dispatch;
mod drained;
mod event;
mod granting;
mod joining;
mod leaving;
mod look_ups;
mod membership;
mod pulling;
mod recovered;
mod refills;
mod rosters;
pub(crate) mod run;
pub(crate) mod settings;
mod stranded;
mod tokens;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio_util::sync::CancellationToken;

use crate::node::PartitionId;
use crate::node::consumers::slots::HandlerEnds;
use crate::node::coordinator::event::{Event, Reply};
use crate::node::coordinator::membership::Membership;
use crate::node::hints::subscriptions::Hint;
use crate::node::hints::wakes::{WakeUp, WakeUpList, WakeUps};
use crate::node::runtime::precise_timer::PreciseTimer;
use crate::node::runtime::task::Task;
use crate::node::runtime::tasks::Tasks;
use crate::node::state::beat_mode::BeatMode;
use crate::node::state::claim_state::Wanted;
use crate::node::state::leases::Leases;
use crate::node::state::partition::{NodePartition, Phase};
use crate::node::state::ranking::{beat_interval, standing};
use crate::node::state::shares::Shares;
use crate::node::state::timers::{Action, Due, NodeTimers};
use crate::node::state::wake_lists::WakeLists;
use crate::partition::Partition;
use crate::telemetry::process;

/// The shortest time between a beat and the beat after a lost subscription: a subscription that
/// fails repeatedly must not load the server with beats.
const RESYNC_PAUSE: Duration = Duration::from_millis(100);

/// The most beats per second that the node sends because it starts or reconnects with many queues.
pub(crate) const PACED_BEATS: u32 = 1_000;

/// The most events that are handled before due actions get a turn.
const MAX_EVENTS: usize = 1_024;

/// The signals that end a node, in their order.
#[derive(Clone, Default)]
pub(crate) struct Stop {
    /// Stops new claims.
    pub(crate) claims: CancellationToken,
    /// Set by the coordinator when no claim is in flight any more.
    pub(crate) claimed: CancellationToken,
    /// Drops the running handlers.
    pub(crate) abort: CancellationToken,
    /// Makes the node leave all queues and end.
    pub(crate) leave: CancellationToken,
}

pub(crate) struct Coordinator {
    /// The id of this node.
    pub(crate) node: String,
    pub(crate) started: Instant,
    /// The sender of the coordinator's own events, for the replies to its calls.
    pub(crate) sender: UnboundedSender<Event>,
    pub(crate) stop: Stop,
    pub(crate) tasks: Tasks,
    pub(crate) timers: NodeTimers,
    /// All that the node knows of its partitions. Other collections of partition ids are indexes
    /// into this map: `competing`, `wake_lists`, and those of each queue in `membership`.
    pub(crate) partitions: HashMap<PartitionId, NodePartition>,
    /// The partitions that want to claim or have handlers. It may contain others until the next
    /// `dispatch`.
    pub(crate) competing: BTreeSet<PartitionId>,
    pub(crate) wake_lists: WakeLists,
    pub(crate) membership: Membership,
    pub(crate) shares: Shares,
    pub(crate) concurrency: usize,
    /// The waits on wake-up lists; `None` once the node has stopped claiming.
    pub(crate) wake: Option<WakeUps>,
    pub(crate) ends: Arc<HandlerEnds>,
    pub(crate) leases: Leases,
    /// Whether a claim may be without a reply, so that its lease must be read.
    pub(crate) has_lost_claims: bool,
    /// How many calls that give back a wake-up token are in flight.
    pub(crate) returning: usize,
    /// Until when the coordinator waits for more handlers to end before it claims.
    pub(crate) gather_until: Option<Instant>,
}

impl Coordinator {
    /// Runs until `stop.leave`. Then tells Redis that the node leaves, so that another node becomes
    /// the leader at once.
    pub(crate) async fn run(mut self, mut events: UnboundedReceiver<Event>, timer: PreciseTimer) {
        self.attend_initial(Instant::now());
        loop {
            self.cover_lists();
            let next = earliest(self.timers.next(), self.gather_until);
            let claims_stop = self.stop.claims.clone();
            let ends = Arc::clone(&self.ends);
            let may_wait = self.shares.free() > 0;
            tokio::select! {
                () = self.stop.leave.cancelled() => break,
                Some(event) = events.recv() => self.handle(event),
                wake_up = woken(&mut self.wake, may_wait) => self.woken(wake_up, Instant::now()),
                () = ends.freed() => {}
                () = timer.wait(next) => {}
                () = claims_stop.cancelled(), if self.wake.is_some() => self.stop_claiming(),
            }
            // Events come before due actions: a reply that has arrived may make an action
            // unnecessary.
            for _ in 0..MAX_EVENTS {
                let Ok(event) = events.try_recv() else { break };
                self.handle(event);
            }
            let now = Instant::now();
            while let Some(due) = self.pop_due(now) {
                match due {
                    Due::Act(id, action) => self.perform(id, action, now),
                    Due::Watch(queue) => self.watch(queue, now),
                }
            }
            self.dispatch(now);
            self.report_claimed();
        }
        self.leave_all(events).await;
    }

    /// Takes the earliest action that is due.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<Due> {
        let partitions = &mut self.partitions;
        self.timers
            .pop(now, |id| Some(&mut partitions.get_mut(&id)?.timers))
    }

    pub(crate) fn handle(&mut self, event: Event) {
        let now = Instant::now();
        match event {
            Event::Reply(id, reply) => self.answered(id, reply, now),
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
            Hint::Notice(id, due_ms) => {
                if let Some(partition) = self.partitions.get_mut(&id) {
                    partition.noticed(due_ms, &mut self.timers, now);
                }
            }
            Hint::Subscribed(id) => {
                // After a lost connection this hint comes for every queue, so the beats are spread.
                let spread_ms = self.partitions.len() as u64 * 1_000 / u64::from(PACED_BEATS);
                let Some(partition) = self.partitions.get_mut(&id) else {
                    return;
                };
                partition.is_subscribed = true;
                let spread = Duration::from_millis(fastrand::u64(..=spread_ms.min(9_000)));
                let beat_at = (partition.last_beat + RESYNC_PAUSE).max(now) + spread;
                partition.timers.beat_at(beat_at, &mut self.timers, now);
            }
            Hint::Lost(id) => {
                if let Some(partition) = self.partitions.get_mut(&id) {
                    partition.is_subscribed = false;
                    partition.unpark(&mut self.timers, now);
                }
            }
        }
    }

    fn answered(&mut self, id: PartitionId, reply: Reply, now: Instant) {
        if matches!(reply, Reply::TokenReturned) {
            // Counted even if the node has left the queue meanwhile, because `report_claimed` waits
            // for it.
            self.returning = self.returning.saturating_sub(1);
            return;
        }
        let Some(partition) = self.partitions.get_mut(&id) else {
            return;
        };
        let timers = &mut self.timers;
        match reply {
            Reply::Beat { sent, mode, result } => {
                let own = &mut partition.timers;
                own.completed(Action::Beat, timers, now, Duration::ZERO);
                let is_leader = result.as_ref().is_ok_and(|beat| beat.leader);
                let usual = beat_interval(own.rank, is_leader);
                let interval = mode.beat_interval(usual, fastrand::f64());
                own.beat_at(sent + interval, timers, now);
                let health = &self.membership.health;
                match result {
                    Ok(beat) => {
                        self.membership.crowd.saw(beat.nodes);
                        let is_parked = matches!(mode, BeatMode::Parked(_));
                        health.beaten(partition.name(), id, sent, beat.leader, is_parked);
                        let has_ready = partition.beat_answered(&beat, sent, timers, now);
                        // A claim for the pull is normally under way. The beat helps if there is
                        // none.
                        let is_owed = partition.consumer.must_ask(id);
                        let of_home = partition.remote.tag().is_home().then_some(partition.queue);
                        self.open(id);
                        if let Some(queue) = of_home {
                            self.drain(queue, beat.drained, now);
                        }
                        if has_ready {
                            self.want(id, now);
                        } else if is_owed {
                            self.want_for(id, Wanted::Pulled, now);
                        }
                        if beat.header.incarnation.is_empty() {
                            self.look_for_map(id);
                        } else {
                            self.needs_no_search(id);
                        }
                        self.check_epoch(id, beat.header.epoch);
                        self.refill(id, &beat, now);
                        self.end_stranded(id, &beat, now);
                    }
                    Err(error) => {
                        health.failed(partition.name(), id, &error);
                        partition.beat_failed(&error, timers, now);
                        self.look_for_map(id);
                    }
                }
            }
            Reply::Promoted(result) => {
                partition.moved(Action::Promote, &result, timers, now);
                if result.is_ok() && !self.covers(id) {
                    // No wake-up token reaches this node, so it claims without one.
                    self.want(id, now);
                }
            }
            Reply::Reaped(result) => partition.moved(Action::Reap, &result, timers, now),
            Reply::Claimed(claimed) => self.claimed(id, *claimed, now),
            Reply::LookedUp(grant) => self.looked_up(id, *grant, now),
            Reply::Refilled(reply) => self.refilled(id, *reply, now),
            Reply::BatchEnded(result) => self.batch_ended(id, &result),
            Reply::TokenReturned => {}
            Reply::Left => {
                partition.phase = Phase::Left;
                self.leave(id, now);
            }
        }
    }

    pub(crate) fn perform(&mut self, id: PartitionId, action: Action, now: Instant) {
        match action {
            Action::Promote => {
                if !self.claims_instead(id, now) {
                    self.call(id, |partition| async move {
                        Reply::Promoted(partition.promote().await)
                    });
                }
            }
            Action::Reap => {
                self.call(id, |partition| async move {
                    Reply::Reaped(partition.reap().await)
                });
            }
            Action::Beat => self.beat(id, now),
            Action::Claim => self.want(id, now),
            Action::CheckLeases(claim) => {
                for (lease, one) in self.leases.check(id, claim, &mut self.timers, now) {
                    let extension = async move { lease.extend(one).await };
                    self.tasks.spawn(Task::Extension, extension);
                }
            }
        }
    }

    pub(crate) fn beat(&mut self, id: PartitionId, now: Instant) {
        let is_covered = self.covers(id);
        let Some(partition) = self.partitions.get_mut(&id) else {
            return;
        };
        let is_leader = partition.timers.is_leader(now);
        let mode = partition.beat_mode(is_covered, now);
        partition.last_mode = mode;
        partition.last_beat = now;
        let may_park = partition.may_park_soon();
        partition.has_beaten = true;
        if matches!(mode, BeatMode::Parked(_)) {
            self.wake_lists.deactivate(id);
        } else if partition.is_attending() && !may_park && !partition.is_drained {
            self.wake_lists.activate(id);
        }
        let presence = mode.presence(standing(partition.timers.rank));
        let reports = partition.reports(is_leader, now);
        let told = partition.tells(now).then(|| {
            let concurrency = partition.consumer.handlers(self.concurrency);
            process::told(self.started, concurrency, self.shares.held())
        });
        let node = self.node.clone();
        self.call(id, move |partition| async move {
            Reply::Beat {
                sent: now,
                mode,
                result: partition.beat(&node, presence, told, reports).await,
            }
        });
    }

    /// Makes a call in a task of its own. The reply comes back as an event.
    pub(crate) fn call<F: Future<Output = Reply> + Send + 'static>(
        &self,
        id: PartitionId,
        call: impl FnOnce(Arc<Partition>) -> F,
    ) {
        let Some(partition) = self.partitions.get(&id) else {
            return;
        };
        let call = call(Arc::clone(&partition.remote));
        let sender = self.sender.clone();
        self.tasks.spawn(Task::Call, async move {
            // The send fails if the coordinator has stopped.
            let _ = sender.send(Event::Reply(id, call.await));
        });
    }

    /// Whether the blocking pop in flight, or the next one, covers the wake-up list of this
    /// partition.
    pub(crate) fn covers(&self, id: PartitionId) -> bool {
        self.wake.as_ref().is_some_and(|wake| wake.covers(id))
    }

    /// Hands the lists to the blocking pop, if they changed.
    pub(crate) fn cover_lists(&mut self) {
        if let Some(wake) = &mut self.wake
            && self.wake_lists.take_changed()
        {
            let list = |id| {
                let partition = self.partitions.get(&id)?;
                Some(WakeUpList {
                    partition: id,
                    remote: Arc::clone(&partition.remote),
                    queue_name: partition.name().to_owned(),
                    key: partition.remote.keys().wake.clone(),
                    route: partition.remote.route().clone(),
                })
            };
            wake.listen(self.wake_lists.lists().filter_map(list).collect());
        }
    }
}

/// Waits for the next wake-up. Starts no pop while no handler is free, so that other nodes get the
/// tokens.
async fn woken(wake: &mut Option<WakeUps>, may_start: bool) -> WakeUp {
    match wake {
        Some(wake) => wake.wait(may_start).await,
        None => std::future::pending().await,
    }
}

fn earliest(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    one.into_iter().chain(other).min()
}
