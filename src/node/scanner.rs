//! Looks for queues that match the patterns of a worker.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::UnboundedSender;

use crate::error::Error;
use crate::node::event::Event;
use crate::protocol::pattern::Pattern;
use crate::server::link::ServerLink;
use crate::server::patience::reconnect_delays;
use crate::server::scan;
use crate::server::servers::Servers;
use crate::telemetry::events;

/// Time between two steps, of whichever passes: a node looks at 1,000 keys a second at most.
const STEP_PAUSE: Duration = Duration::from_secs(1);
/// Time from the end of a pass for each pattern to the next, with jitter of a fifth.
const PASS_PAUSE: Duration = Duration::from_secs(30);
/// Above this number of nodes the passes become rarer: all nodes together scan as much as so many.
const SCANNING_NODES: u64 = 10;
/// How many queues of a pattern a node attends at most.
const MAX_QUEUES: usize = 10_000;

/// Queues of a pattern.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// The index of the pattern.
    pub(crate) pattern: usize,
    pub(crate) names: BTreeSet<String>,
    /// Whether `names` has every queue of the pattern that earlier reports named and that still
    /// exists.
    pub(crate) is_complete: bool,
}

/// The largest number of live nodes in a queue of the node since the last pass, by its beats and
/// watches.
#[derive(Default)]
pub(crate) struct Crowd(AtomicU64);

impl Crowd {
    pub(crate) fn saw(&self, nodes: u64) {
        self.0.fetch_max(nodes, Ordering::Relaxed);
    }

    /// The pause after a pass of which a node alone makes one each `pause`.
    fn stretched(&self, pause: Duration) -> Duration {
        let nodes = self.0.swap(0, Ordering::Relaxed).min(1_000_000);
        pause * nodes.max(SCANNING_NODES) as u32 / SCANNING_NODES as u32
    }
}

/// Scans for one pattern after another, and reports the queues that match. Never returns.
pub(crate) async fn run(
    servers: Arc<Servers>,
    patterns: Vec<Pattern>,
    crowd: Arc<Crowd>,
    sender: UnboundedSender<Event>,
) {
    let mut scanner = Scanner::new(servers, sender, STEP_PAUSE, PASS_PAUSE);
    let mut attended = vec![BTreeSet::new(); patterns.len()];
    loop {
        for (index, pattern) in patterns.iter().enumerate() {
            let found = scanner.pass(index, pattern, &mut attended[index]).await;
            scanner.report(found);
        }
        tokio::time::sleep(jittered(crowd.stretched(scanner.pass_pause))).await;
    }
}

struct Scanner {
    servers: Arc<Servers>,
    sender: UnboundedSender<Event>,
    step_pause: Duration,
    pass_pause: Duration,
    /// The next step begins no earlier, whichever pass it belongs to.
    next_step: Instant,
    /// Steps that failed since the last one that succeeded.
    failures: u32,
}

impl Scanner {
    fn new(
        servers: Arc<Servers>,
        sender: UnboundedSender<Event>,
        step_pause: Duration,
        pass_pause: Duration,
    ) -> Self {
        Self {
            servers,
            sender,
            step_pause,
            pass_pause,
            next_step: Instant::now(),
            failures: 0,
        }
    }

    /// One pass over the key space of each server. New names are reported as soon as they are seen.
    ///
    /// `attended` has the names that earlier passes reported and that still exist. Together with the
    /// new ones they are at most [`MAX_QUEUES`]: names beyond that are left out until others go.
    async fn pass(
        &mut self,
        index: usize,
        pattern: &Pattern,
        attended: &mut BTreeSet<String>,
    ) -> Found {
        let mut found = Found {
            pattern: index,
            names: BTreeSet::new(),
            is_complete: true,
        };
        let links = loop {
            tokio::time::sleep_until(self.next_step.into()).await;
            let (links, failure) = self.servers.usable_links().await;
            if let Some(error) = failure {
                self.failed(pattern, &error);
                found.is_complete = false;
            }
            if !links.is_empty() {
                break links;
            }
        };
        let owners = self.servers.owner_changes();
        let mut is_full = false;
        for link in &links {
            is_full |= self
                .scan(link, links.len() == 1, pattern, attended, &mut found)
                .await;
        }
        // A queue that moved meanwhile may have been missed on both of its servers.
        found.is_complete &= owners == self.servers.owner_changes();
        if is_full {
            events::too_many_queues(pattern.text(), MAX_QUEUES);
        }
        if found.is_complete {
            attended.clone_from(&found.names);
        }
        found
    }

    /// Adds the names on one server to what was found; returns whether the limit left some out. A failed
    /// step on the only server is repeated from its cursor until it succeeds. A server of several
    /// on which a step fails is left out until the next pass.
    async fn scan(
        &mut self,
        link: &ServerLink,
        is_only: bool,
        pattern: &Pattern,
        attended: &mut BTreeSet<String>,
        found: &mut Found,
    ) -> bool {
        let glob = pattern.meta_glob();
        let mut is_full = false;
        let mut cursor = 0;
        loop {
            tokio::time::sleep_until(self.next_step.into()).await;
            let step = match scan::step(&link.control, &glob, cursor).await {
                Ok(step) => step,
                Err(error) => {
                    self.failed(pattern, &error);
                    // A new master may keep its keys in another order: this pass may miss some.
                    found.is_complete = false;
                    if is_only {
                        continue;
                    }
                    return is_full;
                }
            };
            self.failures = 0;
            self.next_step = Instant::now() + self.step_pause;
            let mut new = BTreeSet::new();
            for (name, _) in step.found {
                if !pattern.matches(&name) {
                    continue;
                }
                if !attended.contains(&name) {
                    if attended.len() >= MAX_QUEUES {
                        is_full = true;
                        continue;
                    }
                    attended.insert(name.clone());
                }
                if found.names.insert(name.clone()) {
                    new.insert(name);
                }
            }
            if !new.is_empty() {
                self.report(Found {
                    pattern: found.pattern,
                    names: new,
                    is_complete: false,
                });
            }
            cursor = step.cursor;
            if cursor == 0 {
                return is_full;
            }
        }
    }

    /// Delays the next step: with back-off if it may succeed soon, for the time between two passes
    /// if not.
    fn failed(&mut self, pattern: &Pattern, error: &Error) {
        if self.failures == 0 {
            events::scan_failed(pattern.text(), error);
        }
        self.failures = self.failures.saturating_add(1);
        let pause = if error.is_retryable() {
            reconnect_delays().delay(self.failures, fastrand::f64())
        } else {
            jittered(self.pass_pause)
        };
        self.next_step = Instant::now() + pause.max(self.step_pause);
    }

    fn report(&self, found: Found) {
        // The coordinator may have stopped.
        let _ = self.sender.send(Event::Found(found));
    }
}

/// A pause that is up to a fifth shorter or longer.
fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(0.8 + 0.4 * fastrand::f64())
}

#[cfg(test)]
mod tests;
