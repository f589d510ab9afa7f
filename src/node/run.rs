//! Starts the tasks of a node, and ends them in order.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::delivery::Delivery;
use crate::error::{Error, ErrorKind};
use crate::model::id::compact;
use crate::model::retry::Retry;
use crate::model::settlement::IntoSettlement;
use crate::node::claim_requests::ClaimRequests;
use crate::node::claimer::Claimer;
use crate::node::coordinator::Coordinator;
use crate::node::handler_runner::HandlerRunner;
use crate::node::notices;
use crate::node::panics::TaskPanics;
use crate::node::slots::Slots;
use crate::node::wake::WakeUps;
use crate::partition::{Partition, Presence};
use crate::protocol::limits;
use crate::telemetry::events;

/// The settings of a worker, as [`Worker`](crate::Worker) documents them.
pub(crate) struct Settings {
    pub(crate) partition: Arc<Partition>,
    pub(crate) concurrency: usize,
    pub(crate) lease: Duration,
    pub(crate) retry: Retry,
    pub(crate) time_limit: Option<Duration>,
    pub(crate) grace: Duration,
}

/// Handles messages until `stop` completes. See [`Worker::run`](crate::Worker::run).
pub(crate) async fn run<H, F, S>(
    settings: Settings,
    handler: H,
    stop: impl Future<Output = ()>,
) -> Result<(), Error>
where
    H: Fn(Delivery) -> F + Send + Sync + 'static,
    F: Future<Output = S> + Send + 'static,
    S: IntoSettlement + Send + 'static,
{
    let Settings {
        partition,
        concurrency,
        lease,
        retry,
        time_limit,
        grace,
    } = settings;
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
    );
    let handlers = TaskTracker::new();
    let claimer = Claimer {
        partition: Arc::clone(&partition),
        wake: WakeUps::new(&name, Arc::clone(&connector), partition.keys().wake.clone()),
        lease,
        lease_ms,
        slots,
        requests,
        runner: Arc::new(HandlerRunner {
            handler,
            retry,
            time_limit,
            stop: stop_claims.clone(),
            abort: abort.clone(),
        }),
        handlers: handlers.clone(),
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
    }
    stop_claims.cancel();
    let _ = claimer.await;
    handlers.close();
    tokio::select! {
        () = handlers.wait() => {}
        () = tokio::time::sleep(grace) => {}
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
