//! The end of a run: ends the processes, drains the queues, and records what remains.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use redis::aio::MultiplexedConnection;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Options;
use super::log::Log;
use crate::history::{Event, Role, State};
use crate::kit::place::Place;
use crate::leftovers;

/// The roles that run until the queues have drained, in the order in which they are ended.
const DRAINING: [Role; 3] = [Role::Consumer, Role::Serve, Role::Worker];

/// The parts of a run that must be ended.
#[derive(Clone, Copy)]
pub struct Parts<'a> {
    pub options: &'a Options,
    pub crew: &'a [Arc<Place>],
    /// The tasks that keep the processes running.
    pub keepers: &'a Mutex<JoinSet<Result<()>>>,
    pub log: &'a Log,
}

/// Starts no more faults, and ends producers and cancellers; workers go on until no message is
/// left, and are ended, too. `names` are the queues and partitions after that.
pub async fn settle(
    parts: Parts<'_>,
    names: impl AsyncFnOnce() -> Result<Vec<String>>,
    connect: impl AsyncFn(&str) -> Result<MultiplexedConnection>,
) -> Result<Duration> {
    let Parts {
        options,
        crew,
        keepers,
        log,
    } = parts;
    let begun = Instant::now();
    log.say("no more faults; producers, canceller and operator end");
    log.write(&Event::Calm);
    let mut ending = JoinSet::new();
    for place in crew.iter().filter(|place| !DRAINING.contains(&place.role)) {
        let place = Arc::clone(place);
        ending.spawn(async move { place.stop().await });
    }
    while let Some(ended) = ending.join_next().await {
        if let Err(error) = ended? {
            log.wrong(format!("{error:#}"));
        }
    }
    let mut connections = HashMap::new();
    for queue in names().await? {
        let connection = connect(&queue).await?;
        connections.insert(queue, connection);
    }
    let mut said = begun;
    loop {
        let mut waiting = leftovers::Waiting::default();
        for (queue, connection) in &mut connections {
            waiting += leftovers::waiting(connection, queue, 0).await?;
        }
        if waiting.is_over() {
            break;
        }
        if begun.elapsed().as_secs() > options.drain_limit {
            let seconds = options.drain_limit;
            log.wrong(format!(
                "after {seconds} s without faults there still waits {waiting:?}"
            ));
            break;
        }
        if said.elapsed() > Duration::from_secs(2) {
            said = Instant::now();
            log.say(&format!(
                "draining: {} due, {} ready, {} leased",
                waiting.scheduled, waiting.ready, waiting.leases
            ));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let drained_in = begun.elapsed();
    for role in DRAINING {
        for place in crew.iter().filter(|place| place.role == role) {
            if let Err(error) = place.stop().await {
                log.wrong(format!("{error:#}"));
            }
        }
    }
    for (queue, connection) in &mut connections {
        // An empty list tells the checker that no other message is left.
        log.write(&Event::Left {
            queue: queue.clone(),
            state: State::Scheduled,
            items: Vec::new(),
        });
        leftovers::scan(connection, queue, &mut |event| log.write(&event)).await?;
    }
    let mut keepers = std::mem::take(&mut *keepers.lock().unwrap_or_else(PoisonError::into_inner));
    while let Some(kept) = keepers.join_next().await {
        if let Err(error) = kept? {
            log.wrong(format!("{error:#}"));
        }
    }
    Ok(drained_in)
}
