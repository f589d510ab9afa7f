//! Asks servers of a cluster which master serves each slot: every few seconds, and soon after a
//! hint of a failure.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::error::{Applied, Error, ErrorKind};
use crate::server::cluster::slots::Address;
use crate::server::cluster::topology::Topology;
use crate::server::cluster::view::{ASK_LIMIT, ask};
use crate::server::failure;
use crate::telemetry::events;

/// How often the servers are asked without a hint, give or take a tenth.
const REFRESH_INTERVAL: Duration = Duration::from_secs(5);
/// The shortest time between two rounds of questions, whatever the hints, give or take a fifth.
const MIN_INTERVAL: Duration = Duration::from_millis(250);
/// For how long hints in a row cause rounds at the shortest interval although no slot changes its
/// master. A failover takes `cluster-node-timeout`, 15 s by default, and 1 to 2 s more.
const FAILOVER_TIME: Duration = Duration::from_secs(20);
/// How long a round waits for slower servers after a majority of those asked has replied.
const MAJORITY_PAUSE: Duration = Duration::from_millis(50);

/// The connections for questions, by server.
type Asked = HashMap<Address, MultiplexedConnection>;

/// The task that asks. A client has one, and each of its nodes has another on the node's runtime.
pub(crate) struct Refresher {
    /// The runtime of the task, as long as it runs.
    runtime: Option<Handle>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Refresher {
    pub(crate) fn on(runtime: Option<Handle>) -> Self {
        Self {
            runtime,
            task: Mutex::default(),
        }
    }

    /// Starts the task unless it runs. The task ends with its runtime; then the next caller starts
    /// another one on its own runtime.
    pub(crate) fn ensure(&self, topology: &Arc<Topology>) {
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if task.as_ref().is_some_and(|task| !task.is_finished()) {
            return;
        }
        // The task holds a weak reference, so that it does not keep the topology alive.
        let work = || follow(Arc::downgrade(topology), topology.hints());
        let runtime = self.runtime.as_ref();
        let started = runtime.map(|runtime| runtime.spawn(work()));
        // On a runtime that has shut down, a new task has already ended.
        let started = started.filter(|task| !task.is_finished());
        *task = started.or_else(|| Some(tokio::spawn(work())));
    }
}

impl Drop for Refresher {
    fn drop(&mut self) {
        let task = self.task.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = task.take() {
            task.abort();
        }
    }
}

/// Decides the pauses between rounds of questions.
#[derive(Default)]
struct Pace {
    /// For rounds after hints that found nothing new: when the first of them in a row was, and the
    /// pause after the last one.
    vain: Option<(Instant, Duration)>,
}

impl Pace {
    /// The pause after a round. It doubles up to `REFRESH_INTERVAL` if hints continue for longer
    /// than a failover takes and nothing changes, as for a dead master without a replica.
    fn pause_after(&mut self, was_vain: bool, now: Instant) -> Duration {
        if !was_vain {
            self.vain = None;
            return MIN_INTERVAL;
        }
        let (since, last) = self.vain.unwrap_or((now, MIN_INTERVAL));
        let pause = if now - since < FAILOVER_TIME {
            MIN_INTERVAL
        } else {
            REFRESH_INTERVAL.min(2 * last)
        };
        self.vain = Some((since, pause));
        pause
    }
}

async fn follow(topology: Weak<Topology>, mut hints: watch::Receiver<()>) {
    let (mut asked, mut pace) = (Asked::new(), Pace::default());
    loop {
        let interval = REFRESH_INTERVAL.mul_f64(0.9 + 0.2 * fastrand::f64());
        let is_hinted = timeout(interval, hints.changed()).await.is_ok();
        let Some(topology) = topology.upgrade() else {
            return;
        };
        let changes = topology.changes();
        if let Err(error) = round(&topology, &mut asked).await {
            events::cluster_unknown(&error);
        }
        let is_news = changes.has_changed().unwrap_or(false);
        drop((topology, changes));
        let pause = pace.pause_after(is_hinted && !is_news, Instant::now());
        sleep(pause.mul_f64(0.8 + 0.4 * fastrand::f64())).await;
    }
}

/// Asks for the slots once, before any master is known.
pub(crate) async fn refresh(topology: &Topology) -> Result<(), Error> {
    round(topology, &mut Asked::new()).await
}

/// Asks some servers at once, and applies the newest of their views. The views of a majority
/// suffice, because a frozen server replies to nothing.
///
/// # Errors
/// If no server replied, the last error. An error too if no asked server reaches its cluster,
/// although masters are known.
async fn round(topology: &Topology, asked: &mut Asked) -> Result<(), Error> {
    let mut asks = JoinSet::new();
    for address in topology.to_ask() {
        let connection = asked.remove(&address);
        let target = topology.target().at(address.host.clone(), address.port);
        asks.spawn(async move {
            let answer = timeout(ASK_LIMIT, ask(target, &address, connection)).await;
            let silent = || Err(failure::silent(&address.to_string(), ASK_LIMIT));
            (answer.unwrap_or_else(|_| silent()), address)
        });
    }
    let (mut views, mut down_views, mut failure) = (Vec::new(), Vec::new(), None);
    let (nodes, mut end) = (asks.len(), None);
    loop {
        let answer = match end {
            None => asks.join_next().await,
            // The servers that have not replied are asked again in the next round.
            Some(end) => timeout_at(end, asks.join_next()).await.unwrap_or(None),
        };
        let Some(answer) = answer else { break };
        match answer {
            Ok((Ok((view, connection)), address)) => {
                asked.insert(address.clone(), connection);
                if view.is_ok {
                    views.push(view);
                } else {
                    failure = Some(down(&address));
                    down_views.push(view);
                }
            }
            Ok((Err(error), _)) => failure = Some(error),
            // The tasks of the questions neither panic nor are cancelled.
            Err(_) => {}
        }
        if 2 * views.len() > nodes {
            end.get_or_insert_with(|| Instant::now() + MAJORITY_PAUSE);
        }
    }
    // Even of a cluster that is down, masters may be configured to reply to reads, so its view is
    // used if no master is known. Known masters are better than the view of a server that is cut
    // off.
    if views.is_empty() && topology.masters().is_empty() {
        views = down_views;
    }
    if views.is_empty() {
        return Err(
            failure.unwrap_or_else(|| Error::invalid("the URL names no server of a cluster"))
        );
    }
    topology.apply(&views)?;
    asked.retain(|address, _| topology.is_known(address));
    Ok(())
}

/// The error of a server whose cluster serves no calls.
fn down(address: &Address) -> Error {
    let message = format!(
        "the cluster of redis at {address} is down: it reaches no majority of masters, or slots \
         are served by none (redis-cli -u \"$REDIS_URL\" CLUSTER NODES)"
    );
    Error::new(ErrorKind::Unavailable, Applied::No, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_become_rare_when_hints_find_nothing_new() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut pace = Pace::default();
        for seconds in [0, 1, 19] {
            assert_eq!(pace.pause_after(true, after(seconds)), MIN_INTERVAL);
        }
        let mut last = MIN_INTERVAL;
        for seconds in 20..26 {
            last = REFRESH_INTERVAL.min(2 * last);
            assert_eq!(pace.pause_after(true, after(seconds)), last);
        }
        assert_eq!(last, REFRESH_INTERVAL);
        // A change, or a round without a hint, ends the row.
        assert_eq!(pace.pause_after(false, after(30)), MIN_INTERVAL);
        assert_eq!(pace.pause_after(true, after(60)), MIN_INTERVAL);
    }
}
