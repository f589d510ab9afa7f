//! Asks the nodes of a cluster which master serves each slot: every few seconds, and soon after a
//! hint that something is amiss.

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

/// How often the nodes are asked while all is well, give or take a tenth.
const REFRESH_INTERVAL: Duration = Duration::from_secs(5);
/// The time between two rounds of questions at least, however much is amiss, give or take a fifth.
const MIN_INTERVAL: Duration = Duration::from_millis(250);
/// For so long hints in a row are followed at that interval, though no slot changes its master. A
/// failover takes `cluster-node-timeout`, 15 s by default, and 1 to 2 s.
const FAILOVER_TIME: Duration = Duration::from_secs(20);
/// How long to wait for slower nodes when a majority of those asked has replied.
const MAJORITY_PAUSE: Duration = Duration::from_millis(50);

/// The connections on which nodes are asked.
type Asked = HashMap<Address, MultiplexedConnection>;

/// The task that asks. A client has one, and each of its nodes has another on its own runtime.
pub(crate) struct Refresher {
    /// Where the task runs as long as this runtime does.
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

    /// Starts the task unless it runs. A task ends with its runtime: then the next caller starts
    /// another one on its own.
    pub(crate) fn ensure(&self, topology: &Arc<Topology>) {
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if task.as_ref().is_some_and(|task| !task.is_finished()) {
            return;
        }
        // The task must not keep the topology alive.
        let work = || follow(Arc::downgrade(topology), topology.hints());
        let runtime = self.runtime.as_ref();
        let started = runtime.map(|runtime| runtime.spawn(work()));
        // On a runtime that has shut down, the task has ended at once.
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

/// The pauses after rounds of questions.
#[derive(Default)]
struct Pace {
    /// The first of the hinted rounds in a row that found nothing new, and how long the pause was
    /// after the last one.
    vain: Option<(Instant, Duration)>,
}

impl Pace {
    /// The pause after a round. It doubles up to `REFRESH_INTERVAL` while hints go on for longer than
    /// a failover takes and nothing changes, such as for a master that stays away without a replica.
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

/// Asks once, before anything is known.
pub(crate) async fn refresh(topology: &Topology) -> Result<(), Error> {
    round(topology, &mut Asked::new()).await
}

/// Asks some nodes at once, and follows the newest of their views: those of a majority suffice, as a
/// frozen node replies to nothing.
///
/// # Errors
/// No node of those asked reaches its cluster, and its masters are known; or none replied: the last
/// error.
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
            // The others are asked again in the next round.
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
            // The tasks neither panic nor are cancelled.
            Err(_) => {}
        }
        if 2 * views.len() > nodes {
            end.get_or_insert_with(|| Instant::now() + MAJORITY_PAUSE);
        }
    }
    // Masters of a cluster that is down reply to reads, if they are configured to, and refuse the rest
    // themselves. What is known already is better than the view of a node that is cut off.
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

/// The cluster of this node serves no calls.
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
        // A change, or a round that nobody asked for, ends the row.
        assert_eq!(pace.pause_after(false, after(30)), MIN_INTERVAL);
        assert_eq!(pace.pause_after(true, after(60)), MIN_INTERVAL);
    }
}
