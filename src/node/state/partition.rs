//! A partition as the node that attends it knows it: the state by the newest replies, and the
//! actions that follow. Most queues have one partition.

mod attention;
mod handlers;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::node::consumers::consumer::Consumer;
use crate::node::consumers::handling::HandlerContext;
use crate::node::consumers::slots::{HandlerEnds, PartitionSlots};
use crate::node::state::beat_mode::{BeatMode, PARK_AHEAD};
use crate::node::state::claim_state::ClaimState;
use crate::node::state::loss::Loss;
use crate::node::state::lost_claim::LostClaim;
use crate::node::state::newest_reply::{NewestReply, Verdict};
use crate::node::state::oldest_due::OldestDue;
use crate::node::state::refills::RefillState;
use crate::node::state::reporting::Reporting;
use crate::node::state::stranded::StrandedBatch;
use crate::node::state::timers::{Action, FALLBACK_INTERVAL, NodeTimers, PartitionTimers, TICK};
use crate::node::{PartitionId, QueueId};
use crate::partition::Partition;
use crate::protocol::counts::MAX_CLAIM;
use crate::protocol::partition_map::Tag;
use crate::protocol::replies::Header;
use crate::protocol::results::administer::{Beat, Moved};
use crate::server::patience::reconnect_delays;
use crate::telemetry::events;
use crate::telemetry::metrics::Counter;

/// Whether the node takes messages of a partition.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Attending,
    /// The queue was removed, or another node attends the partition now. Handlers and settlements
    /// of this node still run.
    Draining,
    /// The call by which the node leaves the partition is in flight.
    Leaving,
    /// The node has left the partition, or could not tell Redis so.
    Left,
}

/// A partition, and all that the node knows about it. It owns its timers, its claim and the counts
/// of its handlers and deliveries.
pub(crate) struct NodePartition {
    pub(crate) id: PartitionId,
    pub(crate) queue: QueueId,
    pub(crate) timers: PartitionTimers,
    pub(crate) remote: Arc<Partition>,
    pub(crate) consumer: Consumer,
    pub(crate) context: Arc<HandlerContext>,
    pub(crate) slots: Arc<PartitionSlots>,
    /// Whether the partition may get handlers of its queue's share.
    pub(crate) is_open: bool,
    /// The number of the `allot` in which the partition last got a handler.
    served: u64,
    pub(crate) claim: ClaimState,
    pub(crate) lost: LostClaim,
    /// How many messages the next claim will probably get, judging by the last one.
    pub(crate) expected: usize,
    pub(crate) oldest: OldestDue,
    pub(crate) phase: Phase,
    /// Whether an operator has drained the node: it takes nothing new of the queue.
    pub(crate) is_drained: bool,
    /// What the last beat said about the node.
    pub(crate) last_mode: BeatMode,
    /// For how long the node may send no beat about the partition; `None` if it may not park it.
    pub(crate) silence: Option<Duration>,
    /// Whether the node receives notices of the partition.
    pub(crate) is_subscribed: bool,
    pub(crate) last_beat: Instant,
    pub(crate) has_beaten: bool,
    pub(crate) refills: RefillState,
    pub(crate) stranded: StrandedBatch,
    /// Whether messages move between the partitions of the queue.
    pub(crate) is_changing: bool,
    loss: Loss,
    reporting: Reporting,
    newest: NewestReply,
    seen: Seen,
    /// How many calls failed since the last successful beat.
    failures: u32,
    /// How many beats failed since the last successful beat.
    failed_beats: u32,
}

/// The state of the partition by the newest reply or notice.
#[derive(Default)]
struct Seen {
    /// When the first scheduled message is due.
    head: Option<Instant>,
    has_leases: bool,
    /// Whether messages were ready.
    has_ready: bool,
    is_paused: bool,
}

impl NodePartition {
    /// Makes the state of a partition without a rank, which may not be parked yet.
    pub(crate) fn new(
        (queue, id): (QueueId, PartitionId),
        remote: Arc<Partition>,
        consumer: Consumer,
        context: Arc<HandlerContext>,
        ends: &Arc<HandlerEnds>,
        now: Instant,
    ) -> Self {
        Self {
            id,
            timers: PartitionTimers::new(id, None),
            queue,
            remote,
            consumer,
            context,
            slots: PartitionSlots::new(id, ends),
            silence: None,
            last_beat: now,
            has_beaten: false,
            is_open: false,
            served: 0,
            claim: ClaimState::default(),
            lost: LostClaim::default(),
            expected: MAX_CLAIM,
            oldest: OldestDue::new(),
            phase: Phase::Attending,
            is_drained: false,
            last_mode: BeatMode::Listening,
            is_subscribed: false,
            refills: RefillState::default(),
            stranded: StrandedBatch::default(),
            is_changing: false,
            loss: Loss::default(),
            reporting: Reporting::default(),
            newest: NewestReply::default(),
            seen: Seen::default(),
            failures: 0,
            failed_beats: 0,
        }
    }

    pub(crate) fn name(&self) -> &str {
        self.remote.queue_name()
    }

    /// The mode of a beat that is sent now. `is_covered` says whether the blocking pop covers the
    /// wake-up list.
    pub(crate) fn beat_mode(&self, is_covered: bool, now: Instant) -> BeatMode {
        // Without a subscription only beats would report new work, so the queue is not parked.
        match self.silence.filter(|_| self.is_subscribed) {
            Some(silence) if !self.is_busy() && self.unpark_at(now).is_none_or(|at| at > now) => {
                BeatMode::Parked(silence)
            }
            _ if is_covered || !self.is_subscribed || self.is_drained => BeatMode::Listening,
            _ => BeatMode::ByNotice,
        }
    }

    /// Whether no beat was sent yet and the partition may be parked as soon as its channel is
    /// subscribed to. Thousands of queues that a pattern finds are parked in this way.
    pub(crate) fn may_park_soon(&self) -> bool {
        !self.has_beaten && self.silence.is_some()
    }

    /// Whether a beat that is sent now reports what this node's handlers did.
    pub(crate) fn reports(&mut self, is_leader: bool, now: Instant) -> bool {
        let has_times = self.remote.has_times();
        self.reporting.is_due(has_times, is_leader, now)
    }

    /// Whether a beat that is sent now tells of the process.
    pub(crate) fn tells(&mut self, now: Instant) -> bool {
        self.reporting.tells(now)
    }

    /// When the parking of this queue must end, as far as the node knows.
    fn unpark_at(&self, now: Instant) -> Option<Instant> {
        let is_active = self.seen.has_leases
            || self.seen.has_ready
            || self.failures > 0
            || self.claim.is_active()
            || self.is_changing
            || self.slots.unsettled() > 0;
        if is_active {
            return Some(now);
        }
        let head = self.seen.head?;
        Some(head.checked_sub(PARK_AHEAD).map_or(now, |at| at.max(now)))
    }

    /// Makes the next beat come at once if the queue is parked but no longer quiet.
    pub(crate) fn unpark(&mut self, timers: &mut NodeTimers, now: Instant) {
        if matches!(self.last_mode, BeatMode::Parked(_))
            && let Some(at) = self.unpark_at(now)
        {
            self.timers.beat_at(at, timers, now);
        }
    }

    /// Handles a notice: the head is now due at this Unix millisecond, or the scheduled set is
    /// empty.
    pub(crate) fn noticed(&mut self, due_ms: Option<u64>, timers: &mut NodeTimers, now: Instant) {
        if self.newest.has_no_queue() {
            // The queue is new and has no leader, so the node tries to become its leader now.
            self.timers.beat_at(now, timers, now);
        }
        let head = self.instant(due_ms);
        if head.is_none() && due_ms.is_some() {
            // The clock of the server that now has the queue is not known yet. The reply to the
            // beat tells it.
            return self.timers.beat_at(now, timers, now);
        }
        self.seen.head = head;
        self.timers.head_is(head, timers, now);
        self.unpark(timers, now);
    }

    /// Handles the reply to a beat that was sent at `sent`. Returns whether messages are ready.
    pub(crate) fn beat_answered(
        &mut self,
        beat: &Beat,
        sent: Instant,
        timers: &mut NodeTimers,
        now: Instant,
    ) -> bool {
        let header = &beat.header;
        self.reporting.saw(header.seq);
        self.failures = 0;
        if self.failed_beats > 0 {
            events::recovered(self.name(), "beat", self.failed_beats);
            self.failed_beats = 0;
        }
        let ttl = self.last_mode.leader_ttl();
        self.timers.set_leader(beat.leader, beat.nodes, sent, ttl);
        self.seen.has_ready = beat.ready > 0;
        if self.absorb(header, timers, now) {
            let head_ms = header.head_ms.filter(|_| !header.paused);
            self.timers.head_is(self.instant(head_ms), timers, now);
            let is_due = header
                .head_ms
                .is_some_and(|head_ms| head_ms <= now_ms(header));
            if beat.ready == 0 && !is_due {
                self.oldest.none_waits(sent);
            }
        }
        if beat.ready > 0 {
            self.oldest.some_wait(now);
        }
        beat.ready > 0 && !header.paused
    }

    /// Sets the timers from the header of a reply. Ignores a header that is older than an earlier
    /// one, and returns `false` for it.
    pub(crate) fn absorb(
        &mut self,
        header: &Header,
        timers: &mut NodeTimers,
        now: Instant,
    ) -> bool {
        let verdict = self.newest.compare(header, now);
        match verdict {
            Verdict::Stale => return false,
            Verdict::SameQueue => {}
            Verdict::NewQueue | Verdict::Emptied => {
                if verdict == Verdict::Emptied {
                    self.loss.lost(now);
                }
                // The queue is new and has no leader, so the node tries to become its leader now.
                self.timers.beat_at(now, timers, now);
            }
        }
        let is_home = self.remote.tag() == Tag::Home;
        let is_absent = header.incarnation.is_empty();
        if self.loss.is_news(is_home, is_absent, now) {
            self.remote.meters().add(Counter::StoreEmptied);
            events::store_emptied(self.name());
        }
        let head = self.instant(header.head_ms);
        self.seen.head = head;
        self.seen.has_leases = header.lease_deadline_ms.is_some();
        self.seen.is_paused = header.paused;
        // A head that is due already needs no promote: the call that returned this header has added
        // a wake-up token, and the node that takes the token claims the head.
        let is_due = header
            .head_ms
            .is_some_and(|head_ms| head_ms <= now_ms(header));
        match head {
            Some(at) if is_due => self.oldest.due_since(at),
            Some(at) if !header.paused => self.timers.promote_at(at, timers, now),
            _ => {}
        }
        if let Some(at) = self.instant(header.lease_deadline_ms) {
            self.timers.reap_at(at, timers, now);
        }
        self.unpark(timers, now);
        true
    }

    /// Records that a claim left this many ready messages.
    pub(crate) fn left_ready(&mut self, left: u64) {
        self.seen.has_ready = left > 0;
    }

    /// Handles the reply to a promote or reap. If work is due by Redis's clock but none was moved,
    /// it cannot be moved now (the ready list is full, or reaping is suspended): back off instead
    /// of spinning. If no work is due, this node called early by less than 1 ms: wait for one tick.
    pub(crate) fn moved(
        &mut self,
        action: Action,
        result: &Result<Moved, Error>,
        timers: &mut NodeTimers,
        now: Instant,
    ) {
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
                    _ if *count > 0 => Duration::ZERO,
                    Some(ms) if ms <= now_ms(header) => FALLBACK_INTERVAL,
                    _ => TICK,
                };
                self.timers.completed(action, timers, now, backoff);
                self.absorb(header, timers, now);
            }
            Err(error) => {
                let backoff = if error.is_retryable() {
                    Duration::ZERO
                } else {
                    FALLBACK_INTERVAL
                };
                self.timers.completed(action, timers, now, backoff);
                self.failed(call, error, timers, now);
            }
        }
    }

    pub(crate) fn beat_failed(&mut self, error: &Error, timers: &mut NodeTimers, now: Instant) {
        self.failed_beats += 1;
        self.reporting.failed();
        self.failed("beat", error, timers, now);
    }

    /// Handles a failed call. After a retryable error the next beat comes early, with back-off: the
    /// reply to it sets all timers again, so that a lost connection delays messages by less than
    /// the fallback interval.
    fn failed(&mut self, call: &'static str, error: &Error, timers: &mut NodeTimers, now: Instant) {
        events::call_failed(self.name(), call, error, "the next beat is within a second");
        if error.is_retryable() {
            self.failures += 1;
            let pause = reconnect_delays().delay(self.failures, fastrand::f64());
            self.timers.beat_at(now + pause, timers, now);
        }
    }

    /// The local instant of a time of Redis's clock.
    pub(crate) fn instant(&self, unix_ms: Option<u64>) -> Option<Instant> {
        self.remote.route().clock().instant_of_ms(unix_ms?)
    }
}

/// The server's time in a reply, in Unix milliseconds.
pub(crate) fn now_ms(header: &Header) -> u64 {
    u64::try_from(header.now_us / 1_000).unwrap_or(0)
}

#[cfg(test)]
mod tests;
