use std::collections::{BTreeSet, HashMap};
use std::future::pending;

use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use super::*;
use crate::delivery::Delivery;
use crate::model::retry::Retry;
use crate::model::settlement::Settlement;
use crate::node::LastIds;
use crate::node::consumers::consumer::Consumer;
use crate::node::consumers::handling::HandleOne;
use crate::node::consumers::runner::HandlerRunner;
use crate::node::consumers::slots::HandlerEnds;
use crate::node::coordinator::Stop;
use crate::node::coordinator::event::{Event, Reply};
use crate::node::coordinator::membership::Membership;
use crate::node::coordinator::settings::PatternEntry;
use crate::node::hints::wakes::{WakeUp, WakeUps};
use crate::node::runtime::tasks::Tasks;
use crate::node::state::leases::Leases;
use crate::node::state::shares::{Order, ShareSettings, Shares};
use crate::node::state::timers::{Action, Due, NodeTimers};
use crate::node::state::wake_lists::{MAX_LISTS, WakeLists};
use crate::protocol::pattern::Pattern;
use crate::router::Router;
use crate::server::servers::Servers;

/// The home of the queue that the test coordinator starts with.
const HOME: PartitionId = PartitionId(1);
const TENTH: Duration = Duration::from_millis(100);

struct Never;

impl HandleOne for Never {
    async fn handle(&self, _: Delivery) -> Settlement {
        pending().await
    }
}

fn entry() -> QueueEntry {
    entry_of("unconnected", &Servers::unconnected())
}

pub(crate) fn entry_of(name: &str, servers: &Arc<Servers>) -> QueueEntry {
    QueueEntry {
        router: Arc::new(Router::new(name, servers, &Arc::default()).expect("a name")),
        consumer: Consumer::Handler(Arc::new(HandlerRunner { handler: Never })),
        share: ShareSettings {
            weight: 1,
            reserve: 0,
            max: 1,
        },
        lease: Duration::from_secs(1),
        retry: Retry::default(),
        time_limit: None,
    }
}

/// A coordinator that attends one named queue and the queues of a pattern, on a server that does
/// not exist. Its calls are tasks that run only while the test awaits.
pub(crate) fn coordinator() -> Coordinator {
    let entry = entry();
    let servers = Arc::clone(entry.router.servers());
    let of_pattern = Arc::clone(&servers);
    let mut coordinator = Coordinator {
        node: "node".to_owned(),
        started: Instant::now(),
        sender: mpsc::unbounded_channel().0,
        stop: Stop::default(),
        tasks: Tasks::new(Handle::current()),
        timers: NodeTimers::new(Instant::now(), 0),
        partitions: HashMap::new(),
        competing: BTreeSet::new(),
        shares: Shares::new(1, Order::Weighted),
        concurrency: 1,
        wake_lists: WakeLists::default(),
        wake: Some(WakeUps::default()),
        ends: Arc::<HandlerEnds>::default(),
        leases: Leases::default(),
        has_lost_claims: false,
        membership: Membership {
            registered: Arc::default(),
            initial: vec![entry],
            patterns: vec![PatternEntry {
                pattern: Pattern::new("mail-*").expect("a pattern"),
                make: Arc::new(move |name| Ok(entry_of(name, &of_pattern))),
            }],
            silence: Duration::from_secs(10),
            health: Arc::default(),
            servers,
            context: HandlerContext::here(),
            subscriptions: mpsc::unbounded_channel().0,
            crowd: Arc::default(),
            by_name: HashMap::new(),
            queues: HashMap::new(),
            excluded: BTreeSet::new(),
            ids: LastIds::default(),
            draining: 0,
        },
        returning: 0,
        gather_until: None,
    };
    coordinator.attend_initial(Instant::now());
    coordinator
}

impl Coordinator {
    /// The only partition that the node attends of this queue.
    pub(crate) fn only_partition(&self, queue: &str) -> PartitionId {
        let queue = &self.membership.queues[&self.membership.by_name[queue]];
        self.attended(queue).next().expect("attended").id
    }

    /// Starts a blocking pop over the wake-up lists of the node's queues.
    async fn pop(&mut self) {
        self.cover_lists();
        let wake = self.wake.as_mut().expect("it claims");
        tokio::select! {
            biased;
            _ = wake.wait(true) => {}
            () = std::future::ready(()) => {}
        }
        assert!(self.wake.as_ref().is_some_and(WakeUps::is_waiting));
    }

    fn remove_unconnected(&mut self) -> oneshot::Receiver<Result<(), Error>> {
        let (reply, replied) = oneshot::channel();
        self.remove("unconnected", Some(reply), Instant::now());
        replied
    }

    fn reply(&mut self, reply: Reply) {
        self.handle(Event::Reply(HOME, reply));
    }
}

#[tokio::test]
async fn a_node_ends_though_a_removed_queue_left_before_its_token() {
    let mut node = coordinator();
    let mut removed = node.remove_unconnected();
    node.end_drained(Instant::now());
    node.reply(Reply::Left);
    assert!(matches!(removed.try_recv(), Ok(Ok(()))));
    node.stop_claiming();
    node.report_claimed();
    assert!(!node.stop.claimed.is_cancelled(), "a token is on its way");
    node.reply(Reply::TokenReturned);
    node.report_claimed();
    assert!(node.stop.claimed.is_cancelled());
}

#[tokio::test]
async fn tokens_of_a_removed_queue_are_returned() {
    let mut node = coordinator();
    node.pop().await;
    let _removed = node.remove_unconnected();
    assert_eq!(node.returning, 1);
    node.woken(WakeUp::Token(HOME), Instant::now());
    assert_eq!(node.returning, 2, "the queue drains");
    node.end_drained(Instant::now());
    node.reply(Reply::Left);
    node.woken(WakeUp::Token(HOME), Instant::now());
    assert_eq!(node.returning, 3, "the node has left the queue");
}

#[tokio::test]
async fn a_node_that_stops_returns_tokens_of_removed_queues() {
    let mut node = coordinator();
    node.pop().await;
    let _removed = node.remove_unconnected();
    node.end_drained(Instant::now());
    node.reply(Reply::Left);
    node.stop_claiming();
    assert_eq!(node.returning, 2);
}

#[tokio::test]
async fn beats_of_a_removed_queue_do_not_cover_its_wake_up_list() {
    let mut node = coordinator();
    let _removed = node.remove_unconnected();
    node.perform(HOME, Action::Beat, Instant::now());
    assert_eq!(node.wake_lists.lists().count(), 0);
}

#[tokio::test]
async fn a_removed_queue_is_added_again_only_after_its_leave() {
    let mut node = coordinator();
    let _removed = node.remove_unconnected();
    let refused = node.attend(entry(), None, Instant::now());
    assert!(
        refused.is_err_and(|error| error.to_string().contains("still leaving")),
        "its leave would unregister the node"
    );
    node.end_drained(Instant::now());
    node.reply(Reply::Left);
    assert!(node.attend(entry(), None, Instant::now()).is_ok());
}

#[tokio::test]
async fn a_removed_queue_ends_the_wait_for_more_handlers() {
    let mut node = coordinator();
    let now = Instant::now();
    node.gather_until = Some(now);
    let _removed = node.remove_unconnected();
    node.dispatch(now);
    assert_eq!(node.gather_until, None);
}

/// The report of a scan that found queues with these numbers in their names.
fn found(numbers: std::ops::Range<usize>, is_complete: bool) -> Found {
    Found {
        names: numbers
            .map(|number| (format!("mail-{number:04}"), 0))
            .collect(),
        is_complete,
    }
}

#[tokio::test]
async fn first_beats_of_a_thousand_found_queues_are_paced() {
    let mut node = coordinator();
    let start = Instant::now();
    // Pops the first beat of the named queue.
    while node.pop_due(start).is_some() {}
    node.found(found(0..1_000, false), start);
    assert_eq!(node.partitions.len(), 1 + 1_000);
    assert_eq!(node.wake_lists.lists().count(), 1, "the named queue");
    assert_eq!(node.competing.len(), 1, "a beat must find work first");
    let mut beats = 0;
    // Exact instants, because `attend` reads no clock.
    for tenth in 1..=10_u32 {
        let before = beats;
        while let Some(due) = node.pop_due(start + tenth * TENTH) {
            let Due::Act(id, Action::Beat) = due else {
                panic!("{due:?}");
            };
            node.beat(id, start + tenth * TENTH);
            beats += 1;
        }
        assert!((99..=101).contains(&(beats - before)), "{tenth}: {beats}");
    }
    assert_eq!(beats, 1_000);
    // The found queues may be parked when their channels are subscribed to. Without a subscription,
    // a pop covers their lists from the second beat on.
    assert_eq!(node.wake_lists.lists().count(), 1);
    for number in 2..=1_001 {
        node.beat(PartitionId(number), start);
    }
    assert_eq!(node.wake_lists.lists().count(), MAX_LISTS);
}

#[tokio::test]
async fn a_complete_scan_removes_only_queues_of_its_pattern() {
    let mut node = coordinator();
    let now = Instant::now();
    node.found(found(0..3, false), now);
    node.found(found(2..4, false), now);
    assert_eq!(node.membership.by_name.len(), 1 + 4);
    assert_eq!(node.membership.draining, 0, "the scan is not complete");
    node.found(found(1..3, true), now);
    let mut names: Vec<_> = node.membership.by_name.keys().collect();
    names.sort();
    assert_eq!(names, ["mail-0001", "mail-0002", "unconnected"]);
    assert_eq!(node.membership.draining, 2);
}

#[tokio::test]
async fn no_scan_adds_a_queue_that_the_user_removed() {
    let mut node = coordinator();
    let now = Instant::now();
    node.found(found(0..2, true), now);
    let (reply, mut removed) = oneshot::channel();
    node.remove("mail-0001", Some(reply), now);
    let last = *node.partitions.keys().max().expect("a partition");
    node.end_drained(Instant::now());
    node.handle(Event::Reply(last, Reply::Left));
    assert!(matches!(removed.try_recv(), Ok(Ok(()))));
    node.found(found(0..3, true), now);
    assert!(!node.membership.by_name.contains_key("mail-0001"));
    assert!(node.membership.by_name.contains_key("mail-0002"));
    // The user adds the queue again.
    let servers = Arc::clone(&node.membership.servers);
    let added = node.attend(entry_of("mail-0001", &servers), None, now);
    assert!(added.is_ok());
    assert!(node.membership.excluded.is_empty());
}
