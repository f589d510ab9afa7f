//! Tests of the coordinator's claims. Their server does not exist: each test feeds in the replies.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::*;
use crate::delivery::Delivery;
use crate::error::{Applied, Error, ErrorKind};
use crate::model::settlement::Settlement;
use crate::node::consumers::batch_runner::BatchRunner;
use crate::node::consumers::consumer::Consumer;
use crate::node::consumers::guard::HandlerGuard;
use crate::node::consumers::handling::{HandleMany, HandlerContext, Handling};
use crate::node::consumers::pulls::{PullRequest, Pulls};
use crate::node::coordinator::event::{Event, Reply};
use crate::node::coordinator::joining::tests::{coordinator, entry_of};
use crate::node::state::queue::QueueEntry;
use crate::node::state::shares::{Order, ShareSettings, Shares};
use crate::protocol::partition_map::Tag;
use crate::protocol::replies::Header;
use crate::protocol::results::claim::{Claim, Granted};

const LIMIT: Duration = Duration::from_secs(60);

/// A batch handler that returns at once or never.
struct Batches {
    returns: bool,
    started: Arc<AtomicUsize>,
}

impl HandleMany for Batches {
    type Value = ();

    fn decode(&self, _: &Delivery) -> Result<(), Settlement> {
        Ok(())
    }

    async fn handle(&self, batch: Vec<((), Delivery)>) -> Vec<Settlement> {
        self.started.fetch_add(1, Ordering::SeqCst);
        if !self.returns {
            std::future::pending::<()>().await;
        }
        batch.iter().map(|_| Settlement::Ack).collect()
    }
}

/// A node that attends one queue, with these handlers.
struct Node {
    coordinator: Coordinator,
    events: UnboundedReceiver<Event>,
    id: PartitionId,
}

impl Node {
    fn new(concurrency: usize, max: usize, consumer: Option<Consumer>) -> Self {
        let mut node = coordinator();
        node.competing.clear();
        node.concurrency = concurrency;
        node.shares = Shares::new(concurrency, Order::Weighted);
        let (sender, events) = unbounded_channel();
        node.sender = sender;
        let entry = entry_of("orders", &Arc::clone(&node.membership.servers));
        let entry = QueueEntry {
            consumer: consumer.unwrap_or(entry.consumer),
            share: ShareSettings {
                weight: 1,
                reserve: 0,
                max,
            },
            ..entry
        };
        // Stopped, so that settlements, which cannot reach a server, are not repeated.
        node.membership.context.stop.cancel();
        node.attend(entry, None, Instant::now())
            .expect("a new queue");
        let id = node.only_partition("orders");
        Self {
            coordinator: node,
            events,
            id,
        }
    }

    fn dispatch(&mut self) {
        self.coordinator.dispatch(Instant::now());
    }

    fn free(&self) -> usize {
        self.coordinator.shares.free()
    }

    /// Answers the next claim with `granted` messages of `crashes` crashes each; `left` messages
    /// remain.
    async fn answer(&mut self, granted: usize, crashes: u32, left: u64) {
        let event = tokio::time::timeout(LIMIT, self.events.recv()).await;
        let event = event.expect("a reply in time").expect("a claim");
        self.put(event, granted, crashes, left);
    }

    fn put(&mut self, mut event: Event, granted: usize, crashes: u32, left: u64) {
        if let Event::Reply(_, Reply::Claimed(claimed)) = &mut event {
            // The call itself failed, because the server does not exist.
            claimed.asked = claimed.asked.max(granted);
            claimed.result = Ok(Claim {
                header: header(),
                left,
                granted: (0..granted)
                    .map(|number| message(number, crashes))
                    .collect(),
            });
        }
        self.coordinator.handle(event);
        self.dispatch();
    }

    /// Waits until a returned permit wakes the coordinator.
    async fn freed(&mut self) {
        let freed = tokio::time::timeout(LIMIT, self.coordinator.ends.freed()).await;
        freed.expect("the coordinator waits for a handler");
        self.dispatch();
    }
}

fn header() -> Header {
    Header {
        sent: Instant::now(),
        now_us: 0,
        incarnation: "a".to_owned(),
        seq: 1,
        head_ms: None,
        lease_deadline_ms: None,
        paused: false,
        epoch: None,
    }
}

fn message(number: usize, crashes: u32) -> Granted {
    Granted {
        id: number.to_string().into_bytes(),
        payload: Vec::new(),
        due_ms: 1,
        attempt: 1 + crashes,
        crashes,
        is_last_attempt: false,
        token: [7; 16],
        deadline_ms: 2,
        claimed_us: 1,
        trace_parent: None,
        expires_at_ms: None,
        cost: 1,
        snoozes: 0,
        is_tick: false,
    }
}

#[tokio::test]
async fn a_node_with_all_handlers_busy_waits_for_one_to_end() {
    let mut node = Node::new(1, 1, None);
    node.dispatch();
    node.answer(1, 0, 0).await;
    assert_eq!(node.free(), 0);
    // Only from now on the node waits for wake-up tokens again.
    node.coordinator.membership.context.abort.cancel();
    node.freed().await;
    assert_eq!(node.free(), 1);
}

#[tokio::test]
async fn a_queue_at_its_maximum_does_not_wait_for_more_handlers() {
    let mut node = Node::new(8, 4, None);
    node.dispatch();
    node.answer(4, 0, 9).await;
    for _ in 0..2 {
        assert_eq!(node.coordinator.gather_until, None, "nothing to wait for");
        node.dispatch();
    }
    assert_eq!(node.free(), 4);
    assert!(node.coordinator.partitions[&node.id].claim.is_wanted());
}

#[tokio::test]
async fn a_batch_handler_returns_its_permits_after_crashes() {
    let started = Arc::<AtomicUsize>::default();
    let handler = Batches {
        returns: true,
        started: Arc::clone(&started),
    };
    let batches = Arc::new(BatchRunner::new(handler, 10, Duration::ZERO));
    let mut node = Node::new(4, usize::MAX, Some(Consumer::Handler(batches)));
    node.dispatch();
    node.answer(8, 1, 5).await;
    // Each message holds a handler of its own until its settlement fails after 10 s. Meanwhile the
    // queue wants another claim.
    let end = async {
        while started.load(Ordering::SeqCst) < 8 || node.free() < 4 {
            if let Ok(event) = node.events.try_recv() {
                node.put(event, 0, 0, 0);
            }
            node.dispatch();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let ended = tokio::time::timeout(LIMIT, end).await;
    assert!(ended.is_ok(), "{} handlers are free", node.free());
}

#[tokio::test]
async fn deliveries_that_wait_get_a_free_handler_at_once() {
    let started = Arc::<AtomicUsize>::default();
    let handler = Batches {
        returns: false,
        started: Arc::clone(&started),
    };
    let batches = Arc::new(BatchRunner::new(handler, 10, Duration::ZERO));
    let mut node = Node::new(4, usize::MAX, Some(Consumer::Handler(batches)));
    let others = node.coordinator.partitions[&node.id].want(2, Instant::now());
    let others = node.coordinator.allot(&[others], Instant::now());
    node.dispatch();
    node.answer(3, 1, 0).await;
    assert_eq!((node.free(), others.len()), (0, 1));
    drop(others);
    node.freed().await;
    assert_eq!(node.free(), 1, "the third one has a handler");
    while started.load(Ordering::SeqCst) < 3 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn pulls_of_two_partitions_return_all_handlers() {
    let pulls = Arc::<Pulls>::default();
    let mut node = Node::new(
        1 << 20,
        usize::MAX,
        Some(Consumer::Pulls(Arc::clone(&pulls))),
    );
    let (id, owned) = (node.id, &mut node.coordinator);
    let queue_id = owned.membership.by_name["orders"];
    let queue = owned.membership.queues.get_mut(&queue_id);
    let partitions = &mut queue.expect("attended").partitions;
    // The first partition gets another tag, so that the home is joined once more.
    partitions.clear();
    partitions.insert(Tag::parse("7").expect("a tag"), id);
    owned.join(queue_id, Tag::Home, Some(0), Instant::now());
    owned.competing.clear();
    for _ in 0..4 {
        let request = PullRequest {
            max: 1,
            lease_ms: 1_000,
            token: None,
        };
        let ticket = pulls.join(request).expect("room");
        node.coordinator.pulled("orders", Instant::now());
        node.dispatch();
        node.answer(0, 0, 0).await;
        node.answer(0, 0, 0).await;
        drop(ticket);
        node.dispatch();
        assert_eq!(node.free(), 1 << 20);
    }
}

/// No pull waits for the recovered messages, and the look-ups must not become a busy loop.
#[tokio::test]
async fn failed_look_ups_without_pulls_pause_longer_each_time() {
    let mut node = Node::new(4, 4, Some(Consumer::Pulls(Arc::default())));
    let (id, node) = (node.id, &mut node);
    let partition = node.coordinator.partitions.get_mut(&id).expect("attended");
    let own = partition.lost.next(30_000, None, Instant::now());
    let lost = Error::new(ErrorKind::Unavailable, Applied::Unknown, "lost");
    partition.lost.ended(Some(own), Err(&lost));
    node.coordinator.has_lost_claims = true;
    let (mut now, mut pause) = (Instant::now(), Duration::ZERO);
    for _ in 0..8 {
        node.coordinator.dispatch(now);
        let event = tokio::time::timeout(LIMIT, node.events.recv()).await;
        let before = Instant::now();
        let event = event.expect("a reply in time").expect("a look-up");
        node.coordinator.handle(event);
        let claim = &node.coordinator.partitions[&id].claim;
        now = claim.paused_until(before).expect("a pause");
        pause = now - before;
        node.coordinator.want(id, now);
    }
    // The pause doubles from 10 ms on, less a random part of up to half.
    assert!(pause > Duration::from_millis(200), "{pause:?}");
}

/// A handler that never returns. It counts how often the coordinator asks for its capacity.
#[derive(Default)]
struct Asked(AtomicUsize);

impl Handling for Asked {
    fn capacity(&self, handlers: usize) -> usize {
        self.0.fetch_add(1, Ordering::SeqCst);
        handlers
    }

    fn start(
        self: Arc<Self>,
        _: Vec<(Delivery, HandlerGuard)>,
        permits: HandlerPermits,
        _: &Arc<HandlerContext>,
    ) -> HandlerPermits {
        permits
    }

    fn waiting(&self) -> usize {
        self.0.fetch_add(1, Ordering::SeqCst);
        0
    }

    fn close(&self) {}
}

/// The work of a busy node grows with the number of queues only when a handler ends.
#[tokio::test]
async fn a_busy_node_examines_no_queue_until_a_handler_ends() {
    const QUEUES: usize = 1_000;
    let asked = Arc::<Asked>::default();
    let consumer = || Consumer::Handler(Arc::<Asked>::clone(&asked));
    let mut node = Node::new(1, 1, Some(consumer()));
    let (now, owned) = (Instant::now(), &mut node.coordinator);
    for number in 1..QUEUES {
        let servers = Arc::clone(&owned.membership.servers);
        let entry = QueueEntry {
            consumer: consumer(),
            ..entry_of(&format!("q{number}"), &servers)
        };
        owned.attend(entry, None, now).expect("a new queue");
    }
    for id in owned.partitions.keys().copied().collect::<Vec<_>>() {
        owned.want(id, now);
    }
    let dispatched = |owned: &mut Coordinator| {
        let before = asked.0.load(Ordering::SeqCst);
        owned.dispatch(now);
        asked.0.load(Ordering::SeqCst) - before
    };
    let first = dispatched(owned);
    assert!((QUEUES..5 * QUEUES).contains(&first), "{first} for a claim");
    assert_eq!(owned.shares.free(), 0);
    assert_eq!(dispatched(owned), 0);
}

#[tokio::test]
async fn a_queue_keeps_its_share_while_any_partition_is_open() {
    let mut node = coordinator();
    let queue_id = node.membership.by_name["unconnected"];
    let home = node.only_partition("unconnected");
    let queue = node.membership.queues.get_mut(&queue_id).expect("attended");
    queue.partitions.clear();
    let tag = Tag::parse("7").expect("a tag");
    queue.partitions.insert(tag, home);
    node.join(queue_id, Tag::Home, None, Instant::now());
    let ids: Vec<_> = node.partitions.keys().copied().collect();
    assert!(ids.iter().all(|id| node.free_for(*id) == 1));
    for (left, id) in [1, 0].into_iter().zip(&ids) {
        node.leave(*id, Instant::now());
        assert_eq!(node.free_for(*id), 0, "the node takes nothing of it");
        assert_eq!(node.shares.free_for(queue_id), left, "of the other one");
    }
}
