//! Asks the nodes of a cluster which master serves each slot: every few seconds, and soon after a
//! hint that something is amiss.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};

use crate::error::{Applied, Error, ErrorKind};
use crate::server::cluster_view::{ASK_LIMIT, ask};
use crate::server::failure;
use crate::server::pool::at;
use crate::server::slots::Address;
use crate::server::topology::Topology;
use crate::telemetry::events;

/// How often the nodes are asked while all is well, give or take a tenth.
const REFRESH_INTERVAL: Duration = Duration::from_secs(5);
/// The time between two rounds of questions at least, however much is amiss.
const MIN_INTERVAL: Duration = Duration::from_millis(250);

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

async fn follow(topology: Weak<Topology>, mut hints: watch::Receiver<()>) {
    let mut asked = Asked::new();
    loop {
        let interval = REFRESH_INTERVAL.mul_f64(0.9 + 0.2 * fastrand::f64());
        let _ = timeout(interval, hints.changed()).await;
        let Some(topology) = topology.upgrade() else {
            return;
        };
        if let Err(error) = round(&topology, &mut asked).await {
            events::cluster_unknown(&error);
        }
        drop(topology);
        sleep(MIN_INTERVAL).await;
    }
}

/// Asks once, before anything is known.
pub(crate) async fn refresh(topology: &Topology) -> Result<(), Error> {
    round(topology, &mut Asked::new()).await
}

/// Asks some nodes at once, and follows the newest of their views.
///
/// # Errors
/// No node of those asked reaches its cluster: the last error.
async fn round(topology: &Topology, asked: &mut Asked) -> Result<(), Error> {
    let mut asks = JoinSet::new();
    for address in topology.to_ask() {
        let connection = asked.remove(&address);
        let info = at(topology.info(), address.host.clone(), address.port);
        asks.spawn(async move {
            let answer = timeout(ASK_LIMIT, ask(info, &address, connection)).await;
            let silent = || Err(failure::silent(&address.to_string(), ASK_LIMIT));
            (answer.unwrap_or_else(|_| silent()), address)
        });
    }
    let (mut views, mut failure) = (Vec::new(), None);
    while let Some(answer) = asks.join_next().await {
        match answer {
            Ok((Ok((view, connection)), address)) => {
                asked.insert(address.clone(), connection);
                if view.is_ok {
                    views.push(view);
                } else {
                    failure = Some(down(&address));
                }
            }
            Ok((Err(error), _)) => failure = Some(error),
            // The tasks neither panic nor are cancelled.
            Err(_) => {}
        }
    }
    if views.is_empty() {
        return Err(failure.unwrap_or_else(|| Error::invalid("the URL names no node of a cluster")));
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
