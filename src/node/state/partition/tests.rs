use super::*;
use crate::delivery::Delivery;
use crate::node::consumers::guard::HandlerGuard;
use crate::node::consumers::handling::Handling;
use crate::node::consumers::slots::HandlerPermits;
use crate::node::state::timers::Due;

const Q: PartitionId = PartitionId(1);
const SILENCE: Duration = Duration::from_secs(10);
const MS: Duration = Duration::from_millis(1);
/// The server's time at the first reply, in Unix milliseconds.
const SERVER_MS: u64 = 1_000_000_000;

struct NoHandler;

impl Handling for NoHandler {
    fn capacity(&self, _: usize) -> usize {
        0
    }

    fn start(
        self: Arc<Self>,
        _: Vec<(Delivery, HandlerGuard)>,
        permits: HandlerPermits,
        _: &Arc<HandlerContext>,
    ) -> HandlerPermits {
        permits
    }

    fn close(&self) {}
}

/// A queue that may be parked, its timers, and the instant at which the first beat was answered.
fn subscribed() -> (NodePartition, NodeTimers, Instant) {
    let remote = Partition::unconnected();
    let now = Instant::now();
    let server_us = i64::try_from(SERVER_MS * 1_000).expect("a time");
    remote.route().clock().observe(now, now, server_us);
    let mut partition = NodePartition::new(
        (QueueId(1), Q),
        remote,
        Consumer::Handler(Arc::new(NoHandler)),
        Arc::new(HandlerContext::here()),
        &Arc::default(),
        now,
    );
    partition.silence = Some(SILENCE);
    partition.is_subscribed = true;
    let mut timers = NodeTimers::new(now, 7);
    partition.beat_answered(&beat(now, 1, 0, None), now, &mut timers, now);
    // The first reply makes the queue known, and the node tries to become its leader.
    assert_eq!(beats(&mut partition, &mut timers, now), 1);
    let own = &mut partition.timers;
    own.completed(Action::Beat, &mut timers, now, Duration::ZERO);
    (partition, timers, now)
}

/// A reply to a beat: `ready` messages are ready, and the first scheduled message is due `head`
/// after the first reply.
fn beat(sent: Instant, seq: i64, ready: u64, head: Option<Duration>) -> Beat {
    Beat {
        header: Header {
            sent,
            now_us: i64::try_from(SERVER_MS * 1_000).expect("a time"),
            incarnation: "a".to_owned(),
            seq,
            head_ms: head.map(due_ms),
            lease_deadline_ms: None,
            paused: false,
            epoch: None,
        },
        leader: false,
        nodes: 1,
        ready,
        low_lists: None,
        moving: None,
        drained: false,
    }
}

fn due_ms(after: Duration) -> u64 {
    SERVER_MS + u64::try_from(after.as_millis()).expect("a time")
}

/// The actions that are due at this instant.
fn due(partition: &mut NodePartition, timers: &mut NodeTimers, now: Instant) -> Vec<Action> {
    let mut actions = Vec::new();
    while let Some(Due::Act(Q, action)) = timers.pop(now, |_| Some(&mut partition.timers)) {
        actions.push(action);
    }
    actions
}

/// How many beats are due at this instant.
fn beats(partition: &mut NodePartition, timers: &mut NodeTimers, now: Instant) -> usize {
    let due = due(partition, timers, now).into_iter();
    due.filter(|action| *action == Action::Beat).count()
}

#[tokio::test]
async fn a_quiet_queue_with_a_subscription_is_parked() {
    let (mut partition, mut timers, now) = subscribed();
    for is_covered in [false, true] {
        let mode = partition.beat_mode(is_covered, now);
        assert_eq!(mode, BeatMode::Parked(SILENCE));
    }
    let handler = partition.permits(1, 1);
    assert_eq!(partition.beat_mode(false, now), BeatMode::ByNotice);
    assert_eq!(partition.beat_mode(true, now), BeatMode::Listening);
    drop(handler);
    partition.slots.take_ended(now);
    partition.beat_answered(&beat(now, 2, 3, None), now, &mut timers, now);
    assert_eq!(partition.beat_mode(false, now), BeatMode::ByNotice);
    partition.left_ready(0);
    assert_eq!(partition.beat_mode(false, now), BeatMode::Parked(SILENCE));
}

#[tokio::test]
async fn a_queue_without_a_subscription_is_not_parked() {
    let (mut partition, _, now) = subscribed();
    partition.is_subscribed = false;
    for is_covered in [false, true] {
        let mode = partition.beat_mode(is_covered, now);
        assert_eq!(mode, BeatMode::Listening);
    }
    partition.is_subscribed = true;
    partition.silence = None;
    assert_eq!(partition.beat_mode(false, now), BeatMode::ByNotice);
}

#[tokio::test]
async fn a_parked_queue_beats_2_s_before_its_head() {
    let (mut partition, mut timers, now) = subscribed();
    partition.last_mode = BeatMode::Parked(SILENCE);
    let head = Duration::from_secs(5);
    partition.noticed(Some(due_ms(head)), &mut timers, now);
    let unpark = now + head - PARK_AHEAD;
    assert_eq!(beats(&mut partition, &mut timers, unpark - 2 * MS), 0);
    let before = partition.beat_mode(false, unpark - 2 * MS);
    assert_eq!(before, BeatMode::Parked(SILENCE));
    assert_eq!(beats(&mut partition, &mut timers, unpark + 2 * MS), 1);
    let after = partition.beat_mode(false, unpark + 2 * MS);
    assert_eq!(after, BeatMode::ByNotice);
}

#[tokio::test]
async fn a_notice_of_a_due_head_ends_the_parking_at_once() {
    let (mut partition, mut timers, now) = subscribed();
    partition.last_mode = BeatMode::Parked(SILENCE);
    let later = now + Duration::from_secs(3);
    partition.noticed(Some(due_ms(Duration::ZERO)), &mut timers, later);
    assert_eq!(beats(&mut partition, &mut timers, later + MS), 1);
    assert_eq!(partition.beat_mode(true, later), BeatMode::Listening);
    partition.noticed(None, &mut timers, later);
    assert_eq!(partition.beat_mode(true, later), BeatMode::Parked(SILENCE));
}

/// The queue has moved to a server that has not replied yet.
#[tokio::test]
async fn a_notice_before_the_clock_is_known_causes_a_beat() {
    let (mut partition, mut timers, now) = subscribed();
    let head = Duration::from_secs(1);
    partition.noticed(Some(due_ms(head)), &mut timers, now);
    partition.remote = Partition::unconnected();
    partition.noticed(Some(due_ms(head / 2)), &mut timers, now);
    let due = due(&mut partition, &mut timers, now + 3 * head);
    assert_eq!(due, [Action::Beat, Action::Promote]);
}
