//! Listens for notices of new queues. A scan finds a queue whose notice is lost.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::error::{Error, ErrorKind};
use crate::server::patience::reconnect_delays;
use crate::server::servers::Servers;
use crate::server::subscription::{Received, Subscription};
use crate::telemetry::events;

/// How long to wait before another attempt if the user has no right to subscribe.
const DENIED_PAUSE: Duration = Duration::from_secs(30);
/// A subscription that lasted at least this long did not fail at once.
const STEADY: Duration = Duration::from_secs(1);

/// What [`Client::new_queues`](crate::Client::new_queues) reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NewQueue {
    /// A queue of this name was created, perhaps in another database of the server.
    Created(String),
    /// Notices of new queues arrive from now on. Earlier ones may have been missed: scan for the
    /// queues.
    Listening,
    /// Notices of new queues no longer arrive, until [`Listening`](Self::Listening).
    Silent,
}

/// Listens for the notices of new queues whose channels match. Reconnects with back-off; never
/// returns.
pub(crate) async fn listen(servers: &Servers, globs: &[String], report: impl Fn(NewQueue)) {
    let mut failures = 0_u32;
    loop {
        let start = Instant::now();
        let Err(error) = listen_once(servers, globs, &report).await;
        failures = match start.elapsed() {
            long if long > STEADY => 1,
            _ => failures.saturating_add(1),
        };
        if failures == 1 {
            events::new_queues_unheard(&error);
        }
        report(NewQueue::Silent);
        sleep(match error.kind() {
            ErrorKind::Denied => DENIED_PAUSE,
            _ => reconnect_delays().delay(failures, fastrand::f64()),
        })
        .await;
    }
}

async fn listen_once(
    servers: &Servers,
    globs: &[String],
    report: &impl Fn(NewQueue),
) -> Result<Infallible, Error> {
    let (links, failure) = servers.usable_links().await;
    // One server suffices: each server of a cluster passes on what is published at any other.
    let link = match (fastrand::choice(&links), failure) {
        (Some(link), _) => link,
        (None, Some(error)) => return Err(error),
        (None, None) => return std::future::pending().await,
    };
    let mut subscription = Subscription::open(link.connector()).await?;
    let mut refusals = subscription.add_creations(globs).await?;
    if let Some((_, error)) = refusals.pop() {
        if refusals.len() + 1 == globs.len() {
            return Err(error);
        }
        // Notices on the other channels arrive.
        events::new_queues_unheard(&error);
    }
    report(NewQueue::Listening);
    loop {
        if let Received::Created(name) = subscription.receive().await? {
            report(NewQueue::Created(name));
        }
    }
}
