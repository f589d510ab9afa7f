//! Starts the tasks of a node, and ends them in order.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::error::{Error, ErrorKind};
use crate::model::id::compact;
use crate::node::claim_requests::ClaimRequests;
use crate::node::claimer::Claimer;
use crate::node::commands::{NodeCommand, QueueEntry, Settings};
use crate::node::coordinator::Coordinator;
use crate::node::handling::HandlerContext;
use crate::node::health::SharedHealth;
use crate::node::notices;
use crate::node::panics::TaskPanics;
use crate::node::slots::Slots;
use crate::node::wake::WakeUps;
use crate::partition::Presence;
use crate::protocol::limits;
use crate::telemetry::events;

/// Handles messages until `stop` completes. See [`Worker::run`](crate::Worker::run).
pub(crate) async fn run(
    settings: Settings,
    mut commands: mpsc::UnboundedReceiver<NodeCommand>,
    stop: impl Future<Output = ()>,
) -> Result<(), Error> {
    let end = CancellationToken::new();
    let node = Node {
        concurrency: settings.concurrency,
        grace: settings.grace,
        health: settings.health,
        end: end.clone(),
        abort: settings.abort,
    };
    let node = Arc::new(node);
    let mut queues = Queues::default();
    for entry in settings.queues {
        queues.add(&node, entry);
    }
    tokio::pin!(stop);
    let mut result = Ok(());
    loop {
        tokio::select! {
            () = &mut stop, if !end.is_cancelled() => end.cancel(),
            Some(ended) = queues.tasks.join_next() => {
                let ended = ended.unwrap_or(Ok(()));
                if ended.is_err() && result.is_ok() {
                    result = ended;
                    end.cancel();
                }
            }
            Some(command) = commands.recv(), if !end.is_cancelled() => {
                queues.command(&node, command);
            }
        }
        if end.is_cancelled() && queues.tasks.is_empty() {
            return result;
        }
    }
}

/// What the queues of a node share.
struct Node {
    concurrency: usize,
    grace: Duration,
    health: Arc<SharedHealth>,
    end: CancellationToken,
    abort: CancellationToken,
}

/// The attended queues.
#[derive(Default)]
struct Queues {
    tasks: JoinSet<Result<(), Error>>,
    /// By name: ends the attendance.
    running: HashMap<String, Attended>,
}

struct Attended {
    end: CancellationToken,
    ended: CancellationToken,
}

impl Queues {
    fn add(&mut self, node: &Arc<Node>, entry: QueueEntry) {
        let name = entry.partition.queue_name().to_owned();
        node.health.added(&name);
        let end = node.end.child_token();
        let ended = CancellationToken::new();
        let attended = Attended {
            end: end.clone(),
            ended: ended.clone(),
        };
        self.running.insert(name.clone(), attended);
        let node = Arc::clone(node);
        self.tasks.spawn(async move {
            let _ended = ended.drop_guard();
            let result = attend(&node, entry, end.cancelled()).await;
            node.health.removed(&name);
            result
        });
    }

    fn command(&mut self, node: &Arc<Node>, command: NodeCommand) {
        // A caller that dropped its future needs no reply.
        match command {
            NodeCommand::Add(entry, reply) => {
                let name = entry.partition.queue_name().to_owned();
                if self.running.contains_key(&name) {
                    let message = format!("queue {name}: the worker attends it already");
                    let _ = reply.send(Err(Error::invalid(message)));
                    return;
                }
                self.add(node, *entry);
                let _ = reply.send(Ok(()));
            }
            NodeCommand::Remove(name, reply) => {
                let Some(attended) = self.running.remove(&name) else {
                    let message = format!("queue {name}: the worker does not attend it");
                    let _ = reply.send(Err(Error::invalid(message)));
                    return;
                };
                attended.end.cancel();
                tokio::spawn(async move {
                    attended.ended.cancelled().await;
                    let _ = reply.send(Ok(()));
                });
            }
        }
    }
}

/// Attends one queue until `stop` completes.
async fn attend(
    shared: &Node,
    entry: QueueEntry,
    stop: impl Future<Output = ()>,
) -> Result<(), Error> {
    let QueueEntry {
        partition,
        handling,
        lease,
        retry,
        time_limit,
        ..
    } = entry;
    let (concurrency, grace) = (shared.concurrency, shared.grace);
    let lease_ms = limits::lease_ms(lease)?;
    let name = partition.queue_name().to_owned();
    let node = compact(Uuid::now_v7());
    match partition.beat(&node, Presence::Stay).await {
        Err(error) if matches!(error.kind(), ErrorKind::Denied | ErrorKind::Unsupported) => {
            return Err(error);
        }
        // After another error, such as an unreachable Redis, the node starts and keeps trying.
        _ => {}
    }

    // In order: claim no more; drop the handlers; end the coordinator and the listener.
    let stop_claims = CancellationToken::new();
    let abort = CancellationToken::new();
    let leave = CancellationToken::new();
    // Dropping this future ends the node, too.
    let guards =
        [stop_claims.clone(), abort.clone(), leave.clone()].map(CancellationToken::drop_guard);
    let (sender, events) = mpsc::unbounded_channel();
    let connector = Arc::clone(partition.link().connector());
    let slots = Arc::new(Slots::new(concurrency));
    let requests = Arc::new(ClaimRequests::new(Arc::clone(&slots)));
    events::worker_started(&name, &node, concurrency, lease_ms);
    let panics = TaskPanics::default();
    let coordinator = Coordinator::new(
        node.clone(),
        Arc::clone(&partition),
        sender.clone(),
        leave.clone(),
        Arc::clone(&requests),
        panics.clone(),
        Arc::clone(&shared.health),
    );
    let handlers = TaskTracker::new();
    let claimer = Claimer {
        partition: Arc::clone(&partition),
        wake: WakeUps::new(&name, Arc::clone(&connector), partition.keys().wake.clone()),
        lease,
        lease_ms,
        slots,
        requests,
        handling: Arc::clone(&handling),
        context: Arc::new(HandlerContext {
            runtime: tokio::runtime::Handle::current(),
            tracker: handlers.clone(),
            retry,
            time_limit,
            stop: stop_claims.clone(),
            abort: abort.clone(),
        }),
        events: sender.clone(),
        stop: stop_claims.clone(),
    };
    let coordinator = panics.spawn("coordinator", coordinator.run(events));
    let listener = notices::listen(
        name.clone(),
        connector,
        partition.keys().notice.clone(),
        sender,
    );
    let listener = leave.clone().run_until_cancelled_owned(listener);
    panics.spawn("listener", async { listener.await.unwrap_or_default() });
    let claimer = panics.spawn("claimer", claimer.run());

    // Without one of its tasks the node would claim nothing, or lose its leases: end it.
    let panicked = async {
        panics.happened().await;
        stop_claims.cancel();
        abort.cancel();
    };
    tokio::select! {
        () = stop => {}
        () = panicked => {}
        () = shared.abort.cancelled() => {}
    }
    stop_claims.cancel();
    let _ = claimer.await;
    handling.close();
    handlers.close();
    tokio::select! {
        () = handlers.wait() => {}
        () = tokio::time::sleep(grace) => {}
        () = shared.abort.cancelled() => {}
        () = panics.happened() => {}
    }
    abort.cancel();
    handlers.wait().await;
    leave.cancel();
    let _ = coordinator.await;
    if panics.first().is_some() {
        // The coordinator may have panicked before its leave. Without a leave, the node counts as
        // alive for another 3 s.
        let _ = partition.beat(&node, Presence::Leave).await;
    }
    drop(guards);
    events::worker_stopped(&name, &node);
    panics.first().map_or(Ok(()), Err)
}
