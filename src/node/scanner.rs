//! Looks for queues that match the patterns of a worker.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;

use crate::error::Error;
use crate::node::event::Event;
use crate::protocol::pattern::Pattern;
use crate::server::lane::Lane;
use crate::server::scan;
use crate::telemetry::events;

/// Time between two steps: a node looks at 1,000 keys a second at most.
const STEP_PAUSE: Duration = Duration::from_secs(1);
/// Time from the end of one pass over the key space to the next, with jitter of a fifth.
const PASS_PAUSE: Duration = Duration::from_secs(30);
/// How many queues a pattern attends at most.
const MAX_QUEUES: usize = 10_000;

/// Queues of a pattern.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// The index of the pattern.
    pub(crate) pattern: usize,
    pub(crate) names: BTreeSet<String>,
    /// Whether these are all queues that a pass over the key space found.
    pub(crate) is_complete: bool,
}

/// Scans for ever, for one pattern after another, and reports what it finds.
pub(crate) async fn run(lane: Arc<Lane>, patterns: Vec<Pattern>, sender: UnboundedSender<Event>) {
    loop {
        for (index, pattern) in patterns.iter().enumerate() {
            match pass(&lane, index, pattern, &sender).await {
                // The coordinator may have stopped.
                Ok(found) => drop(sender.send(Event::Found(found))),
                Err(error) => events::scan_failed(pattern.text(), &error),
            }
        }
        let part = 0.8 + 0.4 * fastrand::f64();
        tokio::time::sleep(PASS_PAUSE.mul_f64(part)).await;
    }
}

/// One pass over the key space. New names are reported as soon as they are seen.
async fn pass(
    lane: &Lane,
    index: usize,
    pattern: &Pattern,
    sender: &UnboundedSender<Event>,
) -> Result<Found, Error> {
    let glob = pattern.meta_glob();
    let mut found = Found {
        pattern: index,
        names: BTreeSet::new(),
        is_complete: true,
    };
    let mut cursor = 0;
    loop {
        let step = scan::step(lane, &glob, cursor).await?;
        let mut names = step.names;
        names.retain(|name| pattern.matches(name) && !found.names.contains(name));
        let room = MAX_QUEUES - found.names.len();
        if names.len() > room {
            events::too_many_queues(pattern.text(), MAX_QUEUES);
            names.truncate(room);
        }
        if !names.is_empty() {
            let names: BTreeSet<_> = names.into_iter().collect();
            found.names.extend(names.iter().cloned());
            let _ = sender.send(Event::Found(Found {
                pattern: index,
                names,
                is_complete: false,
            }));
        }
        cursor = step.cursor;
        if cursor == 0 {
            return Ok(found);
        }
        tokio::time::sleep(STEP_PAUSE).await;
    }
}
