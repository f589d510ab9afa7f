//! Starts the tasks of a node, and ends them in order.

use std::collections::{BTreeSet, HashMap};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::error::{Applied, Error, ErrorKind};
use crate::model::message::compact;
use crate::model::retry::Retry;
use crate::node::LastIds;
use crate::node::consumers::handling::HandlerContext;
use crate::node::consumers::slots::HandlerEnds;
use crate::node::coordinator::event::Event;
use crate::node::coordinator::membership::{Membership, Registered, send_leave};
use crate::node::coordinator::settings::{NodeCommand, Settings};
use crate::node::coordinator::{Coordinator, Stop};
use crate::node::hints::scanner::Crowd;
use crate::node::hints::subscriptions::SubscriptionChange;
use crate::node::hints::wakes::WakeUps;
use crate::node::hints::{listeners, scanner, subscriptions};
use crate::node::runtime::precise_timer::PreciseTimer;
use crate::node::runtime::task::Task;
use crate::node::runtime::tasks::Tasks;
use crate::node::runtime::thread::NodeThread;
use crate::node::state::leases::Leases;
use crate::node::state::shares::{Order, Shares};
use crate::node::state::timers::NodeTimers;
use crate::node::state::wake_lists::WakeLists;
use crate::partition::{Partition, Presence, Standing};
use crate::protocol::keys::node_id;
use crate::server::servers::Servers;
use crate::telemetry::{events, process};

/// How long handlers and settlements may take to end after the grace period. A handler that blocks
/// its thread cannot be dropped.
const END_LIMIT: Duration = Duration::from_secs(15);
/// How long handlers and settlements may take to end after a panic of an internal task. Settlements
/// can continue after the worker's end.
const PANIC_END_LIMIT: Duration = Duration::from_secs(1);

/// How long a node that is stopped before it has started waits until it has left its queues.
const EARLY_STOP_LIMIT: Duration = Duration::from_millis(250);

/// Handles messages until `stop` completes. See [`Worker::run`](crate::Worker::run).
pub(crate) async fn run(
    settings: Settings,
    commands: mpsc::UnboundedReceiver<NodeCommand>,
    stop: impl Future<Output = ()>,
) -> Result<(), Error> {
    let (node, started) = (node_id(&compact(Uuid::now_v7())), Instant::now());
    let (abort, mut stop) = (settings.abort.clone(), pin!(stop));
    let stopped = async {
        tokio::select! {
            () = &mut stop => {}
            () = abort.cancelled() => {}
        }
    };
    if !first_beats(&settings, &node, started, stopped).await? {
        // The coordinator never started, so nobody would answer the pulls. Closing them tells later
        // pulls that the node has ended.
        for entry in &settings.queues {
            entry.consumer.close();
        }
        return Ok(());
    }
    #[cfg(not(any(test, feature = "harness")))]
    let end_limit = END_LIMIT;
    #[cfg(any(test, feature = "harness"))]
    let end_limit = {
        let names = settings
            .queues
            .iter()
            .map(|entry| entry.router.queue_name());
        crate::node::runtime::inject::end_limit(&names.collect::<Vec<_>>()).unwrap_or(END_LIMIT)
    };
    let (tasks, thread) = Tasks::on_own_thread()?;
    let started = Started::new(
        settings,
        (node, started),
        &tasks,
        Arc::new(thread),
        commands,
    );
    let Started {
        stop: signals,
        handlers,
        grace,
        ..
    } = &started;
    // If the caller drops this future, the guards end the node.
    let guards =
        [&signals.claims, &signals.abort, &signals.leave].map(|signal| signal.clone().drop_guard());

    tokio::select! {
        () = stop => {}
        () = abort.cancelled() => {}
        // Without one of its internal tasks the node would claim nothing or lose its leases, so it
        // ends.
        () = tasks.happened() => {}
    }
    signals.claims.cancel();
    tokio::select! {
        () = signals.claimed.cancelled() => {}
        () = abort.cancelled() => signals.abort.cancel(),
        // By then every claim has been answered or has failed.
        () = tokio::time::sleep(end_limit) => {}
        () = tasks.happened() => signals.abort.cancel(),
    }
    handlers.close();
    tokio::select! {
        () = handlers.wait() => {}
        () = tokio::time::sleep(*grace) => {}
        () = abort.cancelled() => {}
        () = tasks.happened() => {}
    }
    signals.abort.cancel();
    let ended = within(end_limit, &tasks, handlers.wait()).await;
    signals.leave.cancel();
    let _ = within(end_limit, &tasks, started.coordinator).await;
    if tasks.first().is_some() {
        // The coordinator may have panicked before its leave. Without one, Redis counts the node as
        // alive for another 3 s.
        let leaves = leave_each(started.registered.take(), &started.node);
        let _ = tokio::time::timeout(PANIC_END_LIMIT, leaves).await;
    }
    drop(guards);
    if let Some(error) = tasks.first() {
        return Err(error);
    }
    ended.ok_or_else(|| {
        let message = format!(
            "{} handlers did not end {end_limit:?} after the grace period: they block their \
             threads; their messages are delivered again when their leases run out",
            started.handlers.len()
        );
        Error::new(ErrorKind::Timeout, Applied::Unknown, message)
    })
}

/// Returns the result of `work`. `None` if the limit passes, or soon after a panic of an internal
/// task.
async fn within<T>(limit: Duration, tasks: &Tasks, work: impl Future<Output = T>) -> Option<T> {
    let after_panic = async {
        tasks.happened().await;
        tokio::time::sleep(PANIC_END_LIMIT).await;
    };
    tokio::select! {
        biased;
        result = work => Some(result),
        () = after_panic => None,
        () = tokio::time::sleep(limit) => None,
    }
}

/// A running node.
struct Started {
    node: String,
    registered: Arc<Registered>,
    stop: Stop,
    handlers: TaskTracker,
    grace: Duration,
    coordinator: tokio::task::JoinHandle<()>,
}

impl Started {
    fn new(
        settings: Settings,
        (node, started): (String, Instant),
        tasks: &Tasks,
        thread: Arc<NodeThread>,
        commands: mpsc::UnboundedReceiver<NodeCommand>,
    ) -> Self {
        let servers = Arc::new(settings.servers.on_runtime(tasks.runtime().clone()));
        let stop = Stop::default();
        let handlers = TaskTracker::new();
        let (sender, events) = mpsc::unbounded_channel();
        let registered = Arc::<Registered>::default();
        let crowd = Arc::<Crowd>::default();
        for entry in &settings.queues {
            registered.add(&entry.router.own_home());
        }
        let (subscriptions, changes) = mpsc::unbounded_channel();
        let order = settings
            .strict
            .map_or(Order::Weighted, |max_wait| Order::Strict { max_wait });
        if !settings.patterns.is_empty() {
            let patterns = settings.patterns.iter();
            let patterns = patterns.map(|entry| entry.pattern.clone()).collect();
            let crowd = Arc::clone(&crowd);
            let health = Arc::clone(&settings.health);
            let sender = sender.clone();
            let report = move |found| {
                // The send fails if the coordinator has stopped.
                let _ = sender.send(Event::Found(found));
            };
            let scanner = scanner::run(Arc::clone(&servers), patterns, crowd, health, report);
            let scanner = stop.leave.clone().run_until_cancelled_owned(scanner);
            tasks.spawn(Task::Scanner, async { scanner.await.unwrap_or_default() });
        }
        let listener = listener(&servers, changes, sender.clone());
        let listener = stop.leave.clone().run_until_cancelled_owned(listener);
        tasks.spawn(Task::Listener, async { listener.await.unwrap_or_default() });
        let relay = relay(commands, sender.clone());
        let relay = stop.leave.clone().run_until_cancelled_owned(relay);
        tasks.spawn(Task::Relay, async { relay.await.unwrap_or_default() });
        let timer = PreciseTimer::supervised(tasks);
        let coordinator = Coordinator {
            node: node.clone(),
            started,
            sender: sender.clone(),
            stop: stop.clone(),
            tasks: tasks.clone(),
            timers: NodeTimers::new(Instant::now(), fastrand::u64(..)),
            partitions: HashMap::new(),
            competing: BTreeSet::new(),
            shares: Shares::new(settings.concurrency, order),
            concurrency: settings.concurrency,
            wake_lists: WakeLists::default(),
            wake: Some(WakeUps::default()),
            ends: Arc::<HandlerEnds>::default(),
            leases: Leases::default(),
            has_lost_claims: false,
            membership: Membership {
                initial: settings.queues,
                patterns: settings.patterns,
                silence: settings.parking,
                health: settings.health,
                registered: Arc::clone(&registered),
                subscriptions,
                crowd,
                by_name: HashMap::new(),
                queues: HashMap::new(),
                excluded: BTreeSet::new(),
                ids: LastIds::default(),
                draining: 0,
                servers,
                context: HandlerContext {
                    runtime: tokio::runtime::Handle::current(),
                    tracker: handlers.clone(),
                    retry: Retry::default(),
                    time_limit: None,
                    // Not used: each queue has its own lease.
                    lease: Duration::ZERO,
                    lease_ms: 0,
                    max_handlers: 0,
                    stop: stop.claims.clone(),
                    abort: stop.abort.clone(),
                    thread,
                },
            },
            returning: 0,
            gather_until: None,
        };
        Self {
            node,
            registered,
            stop,
            handlers,
            grace: settings.grace,
            coordinator: tasks.spawn(Task::Coordinator, coordinator.run(events, timer)),
        }
    }
}

/// Starts the task that listens for the notices of all queues.
fn listener(
    servers: &Servers,
    changes: mpsc::UnboundedReceiver<SubscriptionChange>,
    sender: mpsc::UnboundedSender<Event>,
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    let report = move |hint| {
        // The send fails if the coordinator has stopped.
        let _ = sender.send(Event::Hint(hint));
    };
    match servers {
        Servers::One(link) => Box::pin(subscriptions::listen(Arc::clone(link), changes, report)),
        Servers::Cluster(cluster) => Box::pin(listeners::run(Arc::clone(cluster), changes, report)),
    }
}

/// Passes the commands of the worker's handle on.
async fn relay(
    mut commands: mpsc::UnboundedReceiver<NodeCommand>,
    sender: mpsc::UnboundedSender<Event>,
) {
    while let Some(command) = commands.recv().await {
        // The send fails if the coordinator has stopped. Then the reply is dropped with the
        // command.
        let _ = sender.send(Event::Command(command));
    }
}

/// Registers the node in the queues that the user named. A queue that cannot be used does not
/// affect the others. Returns whether the node starts; it does not if it is stopped before Redis
/// has answered.
///
/// # Errors
/// The first refusal, if every queue is refused and there are no patterns.
async fn first_beats(
    settings: &Settings,
    node: &str,
    started: Instant,
    stopped: impl Future<Output = ()>,
) -> Result<bool, Error> {
    let mut beats = JoinSet::new();
    for entry in &settings.queues {
        let (partition, node) = (entry.router.own_home(), node.to_owned());
        let told = process::told(started, entry.consumer.handlers(settings.concurrency), 0);
        beats.spawn(async move {
            let stay = Presence::Alive(Standing::Any, None);
            let error = partition.beat(&node, stay, Some(told), false).await.err()?;
            Some((partition.queue_name().to_owned(), error))
        });
    }
    let homes = settings.queues.iter().map(|entry| entry.router.own_home());
    let (homes, node): (Vec<_>, _) = (homes.collect(), node.to_owned());
    let (report, reported) = oneshot::channel();
    let (starts, will_start) = oneshot::channel();
    let registration = tokio::spawn(async move {
        // The send fails if the caller is dropped before it reads the results.
        let _ = report.send(beats.join_all().await);
        if will_start.await.is_err() {
            // The worker was dropped. Without a leave, Redis counts the node as alive for 3 s.
            leave_each(homes, &node).await;
        }
    });
    let failures = tokio::select! {
        biased;
        failures = reported => failures.unwrap_or_default(),
        () = stopped => {
            drop(starts);
            // If Redis is silent, the registration continues in its own task.
            let _ = tokio::time::timeout(EARLY_STOP_LIMIT, registration).await;
            return Ok(false);
        }
    };
    let _ = starts.send(());
    let mut refusals = Vec::new();
    for failure in failures.into_iter().flatten() {
        // After another error, such as an unreachable Redis, the node starts and keeps trying.
        if matches!(failure.1.kind(), ErrorKind::Denied | ErrorKind::Unsupported) {
            refusals.push(failure);
        }
    }
    if settings.patterns.is_empty() && refusals.len() == settings.queues.len() {
        return refusals
            .into_iter()
            .next()
            .map_or(Ok(true), |(_, error)| Err(error));
    }
    for (name, error) in refusals {
        events::queue_refused(&name, &error);
    }
    Ok(true)
}

async fn leave_each(partitions: Vec<Arc<Partition>>, node: &str) {
    let mut leaves = JoinSet::new();
    for partition in partitions {
        let node = node.to_owned();
        leaves.spawn(async move { send_leave(&partition, &node).await });
    }
    leaves.join_all().await;
}
