//! Scenario `window`: producers that lose replies push a few ids with a window. Each window must
//! have exactly one delivery.

mod judge;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use dueq::{Client, Delivery, Message, Queue, QueueLimits};
use dueq_testkit::report::Report;
use dueq_testkit::{Proxy, Server};
use tokio::task::JoinSet;

use super::aof::{Change, changes};
use super::{Arguments, QUEUE, now_ms, recording_server, with_progress};
use crate::kit::scenarios::until_empty;
use judge::{Accepted, Delivered, History, Push};

const IDS: u32 = 1_000;
const WINDOW: Duration = Duration::from_secs(1);
const PRODUCERS: usize = 8;
/// The number of concurrent pushes of a producer, which share calls.
const CALLERS: usize = 32;
const HANDLERS: usize = 128;
/// The command that calls a script: a request with this word loses its reply.
const CALL: &str = "EVALSHA";
/// More than all names that a run may leave in the deduplication memory.
const MAX_REMEMBERED: u64 = 100_000_000;

/// The counts that all callers share.
#[derive(Default)]
struct Progress {
    begun: AtomicU64,
    /// Pushes that failed with an error, and were repeated by a new call.
    repeated: AtomicU64,
}

pub(super) async fn run(arguments: &Arguments, report: &mut Report) -> Result<()> {
    let server = recording_server()?;
    let queue = Client::connect(&server.url()).await?.queue(QUEUE)?;
    queue
        .configure(QueueLimits::new().max_remembered(MAX_REMEMBERED))
        .await?;
    let delivered = Arc::new(Mutex::new(Vec::new()));
    let record = Arc::clone(&delivered);
    let worker = queue
        .worker()
        .concurrency(HANDLERS)
        .spawn(move |delivery: Delivery| handle(delivery, Arc::clone(&record)))?;
    let progress = Arc::new(Progress::default());
    let begun = Arc::clone(&progress);
    let (pushes, cuts) = with_progress(produced(arguments, &server, &progress), || {
        let done = begun.begun.load(Ordering::Relaxed).min(arguments.pushes);
        format!("window: {done} of {} pushes", arguments.pushes)
    })
    .await?;
    let stats = until_empty(&queue).await?;
    worker.shutdown().await?;
    let delivered = std::mem::take(&mut *delivered.lock().unwrap_or_else(PoisonError::into_inner));
    let history = History {
        window_ms: WINDOW.as_millis() as u64,
        accepted: accepted(&server)?,
        delivered,
        pushes,
    };
    let mut violations = history.violations();
    let (windows, first) = (history.accepted.len(), history.first_deliveries());
    if windows != first {
        violations.add(format!(
            "{first} messages were delivered in {windows} windows"
        ));
    }
    if stats.dead > 0 {
        violations.add(format!("{} messages died", stats.dead));
    }
    let created = history.pushes.iter().filter(|push| push.is_created);
    report.violations(&violations);
    report.figure("pushes", history.pushes.len());
    report.figure("windows", windows);
    report.figure("deliveries", first);
    report.figure(
        "deliveries after a lost lease",
        history.delivered.len() - first,
    );
    report.figure("connections cut before a reply", cuts);
    report.figure(
        "windows whose push was not answered with created",
        windows - created.count().min(windows),
    );
    report.figure(
        "pushes repeated by a new call",
        progress.repeated.load(Ordering::Relaxed),
    );
    Ok(())
}

/// Acks by hand, so that the time of the answer is known.
async fn handle(delivery: Delivery, delivered: Arc<Mutex<Vec<Delivered>>>) -> Result<()> {
    let id = delivery.id().parse().context("a number")?;
    let settled = delivery.ack().await;
    let record = Delivered {
        id,
        due_ms: delivery.due_ms(),
        attempt: delivery.attempt(),
        ended_ms: now_ms() + 1,
    };
    delivered
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(record);
    let _ = settled?;
    Ok(())
}

/// Runs all producers. Returns the pushes, and the number of cut connections.
async fn produced(
    arguments: &Arguments,
    server: &Server,
    progress: &Arc<Progress>,
) -> Result<(Vec<Push>, u64)> {
    let (mut callers, mut proxies) = (JoinSet::new(), Vec::new());
    for _ in 0..PRODUCERS {
        let proxy = Arc::new(Proxy::start(server.port())?);
        let queue = Client::connect(&proxy.url()).await?.queue(QUEUE)?;
        for _ in 0..CALLERS {
            let (queue, proxy) = (queue.clone(), Arc::clone(&proxy));
            let (limit, one_in) = (arguments.pushes, arguments.lose_one_in);
            let progress = Arc::clone(progress);
            callers.spawn(async move {
                let mut pushes = Vec::new();
                while progress.begun.fetch_add(1, Ordering::Relaxed) < limit {
                    if fastrand::u64(..one_in) == 0 {
                        proxy.cut_reply_of(CALL);
                    }
                    pushes.push(pushed(&queue, &progress).await);
                }
                pushes
            });
        }
        proxies.push(proxy);
    }
    let mut pushes = Vec::new();
    while let Some(caller) = callers.join_next().await {
        pushes.extend(caller?);
    }
    Ok((pushes, proxies.iter().map(|proxy| proxy.cuts()).sum()))
}

/// Pushes one id. The library repeats a call whose reply is lost, with one idempotency key. Once
/// the library gives up, this function repeats the push by a new call.
async fn pushed(queue: &Queue, progress: &Progress) -> Push {
    let (id, sent_ms) = (fastrand::u32(..IDS), now_ms());
    loop {
        let message = Message::new("").id(id.to_string()).window(WINDOW);
        match queue.push_message(message).await {
            Ok(receipt) => {
                return Push {
                    id,
                    sent_ms,
                    answered_ms: now_ms() + 1,
                    is_created: receipt.is_created(),
                };
            }
            Err(error) => {
                if progress.repeated.fetch_add(1, Ordering::Relaxed) == 0 {
                    eprintln!("window: the first push that is repeated by a new call: {error}");
                }
            }
        }
    }
}

/// The messages in the server's append-only file, each with its first due time.
fn accepted(server: &Server) -> Result<Vec<Accepted>> {
    let (mut accepted, mut stored) = (Vec::new(), std::collections::HashSet::new());
    let mut strange = None;
    changes(server.folder(), QUEUE, |change| match change {
        Change::Stored { id, .. } => {
            stored.insert(id.to_owned());
        }
        Change::Due { id, at_ms } if stored.remove(id) => match id.parse() {
            Ok(id) => accepted.push(Accepted { id, at_ms }),
            Err(_) => strange = Some(id.to_owned()),
        },
        _ => {}
    })?;
    anyhow::ensure!(strange.is_none(), "the server stored the id {strange:?}");
    anyhow::ensure!(stored.is_empty(), "messages without a due time: {stored:?}");
    Ok(accepted)
}
