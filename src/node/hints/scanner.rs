//! Finds the queues that match the patterns of a worker: it receives the names of new queues, and
//! scans for queues whose names it missed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{sleep_until, timeout};

use crate::error::Error;
use crate::node::state::health::SharedHealth;
use crate::protocol::keys::{self, Keys};
use crate::protocol::pattern::Pattern;
use crate::server::new_queues::{self, NewQueue};
use crate::server::patience::{REACH_LIMIT, reconnect_delays};
use crate::server::queue_scan::QueueScan;
use crate::server::route::RoutedLane;
use crate::server::servers::Servers;
use crate::telemetry::events;

/// The time between two steps. So a node scans at most 1,000 keys per second, except in a pass
/// without pauses.
const STEP_PAUSE: Duration = Duration::from_secs(1);
/// Time from the end of a pass to the next, with jitter of a fifth.
const PASS_PAUSE: Duration = Duration::from_secs(30);
/// Above this number of nodes each node scans less often, so that all nodes together scan as much
/// as this many.
const SCANNING_NODES: u64 = 10;
/// The most queues of a pattern that a node attends.
const MAX_QUEUES: usize = 10_000;

/// A report of queues that match the patterns.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// The index of the pattern, by the name of the queue.
    pub(crate) names: BTreeMap<String, usize>,
    /// Whether `names` has every existing queue that an earlier report named. If so, missing queues
    /// are gone.
    pub(crate) is_complete: bool,
}

/// The largest number of live nodes that beats and watches have reported for a queue since the last
/// pass.
#[derive(Default)]
pub(crate) struct Crowd(AtomicU64);

impl Crowd {
    pub(crate) fn saw(&self, nodes: u64) {
        self.0.fetch_max(nodes, Ordering::Relaxed);
    }

    /// The pause after a pass, given the pause of a node that is alone.
    fn stretched(&self, pause: Duration) -> Duration {
        let nodes = self.0.swap(0, Ordering::Relaxed).min(1_000_000);
        pause * nodes.max(SCANNING_NODES) as u32 / SCANNING_NODES as u32
    }

    /// The pause after a step of this duration, in a pass that only few nodes make without pauses.
    fn between(&self, took: Duration) -> Duration {
        let nodes = self.0.load(Ordering::Relaxed).min(1_000_000);
        took * (nodes / SCANNING_NODES) as u32
    }
}

/// Reports the queues that match the patterns. Never returns.
pub(crate) async fn run(
    servers: Arc<Servers>,
    patterns: Vec<Pattern>,
    crowd: Arc<Crowd>,
    health: Arc<SharedHealth>,
    report: impl Fn(Found) + Send + Sync + 'static,
) {
    let (heard, hearing) = unbounded_channel();
    let globs: Vec<_> = patterns.iter().map(Pattern::notice_glob).collect();
    let listening = new_queues::listen(&servers, &globs, |new| {
        let _ = heard.send(new); // the scanner runs as long as this
    });
    let mut scanner = Scanner::new(
        Arc::clone(&servers),
        patterns,
        crowd,
        health,
        Box::new(report),
        hearing,
    );
    tokio::select! {
        () = listening => {}
        () = scanner.run() => {}
    }
}

/// The function that takes the scanner's reports.
type Report = Box<dyn Fn(Found) + Send + Sync>;

struct Scanner {
    servers: Arc<Servers>,
    patterns: Vec<Pattern>,
    crowd: Arc<Crowd>,
    health: Arc<SharedHealth>,
    report: Report,
    hearing: UnboundedReceiver<NewQueue>,
    step_pause: Duration,
    pass_pause: Duration,
    /// The existing queues that earlier reports named, each with the index of its pattern. A
    /// pattern has at most [`MAX_QUEUES`] of them; further queues are left out until some are gone.
    reported: BTreeMap<String, usize>,
    /// How many queues of `reported` each pattern has.
    counts: Vec<usize>,
    /// The patterns for which this pass had to leave queues out.
    full: BTreeSet<usize>,
    /// The queues that this pass has found, and those that were created during it.
    found: Found,
    is_listening: bool,
    /// Whether notices of new queues may have been missed since this pass began.
    has_missed: bool,
    /// Whether this pass makes no pauses, because notices of new queues may have been missed before
    /// it.
    is_quick: bool,
    /// The next step begins at this instant or later.
    next_step: Instant,
    /// How many steps failed since the last successful one.
    failures: u32,
}

impl Scanner {
    fn new(
        servers: Arc<Servers>,
        patterns: Vec<Pattern>,
        crowd: Arc<Crowd>,
        health: Arc<SharedHealth>,
        report: Report,
        hearing: UnboundedReceiver<NewQueue>,
    ) -> Self {
        Self {
            servers,
            crowd,
            health,
            report,
            hearing,
            step_pause: STEP_PAUSE,
            pass_pause: PASS_PAUSE,
            reported: BTreeMap::new(),
            counts: vec![0; patterns.len()],
            patterns,
            full: BTreeSet::new(),
            found: Found::begun(),
            is_listening: false,
            has_missed: true,
            is_quick: false,
            next_step: Instant::now(),
            failures: 0,
        }
    }

    async fn run(&mut self) {
        // The scanner subscribes first, so that the first pass need not be repeated.
        if let Ok(new) = timeout(REACH_LIMIT, self.hearing.recv()).await {
            self.heard(new).await;
        }
        self.has_missed = true;
        loop {
            let start = Instant::now();
            self.is_quick = std::mem::take(&mut self.has_missed);
            let passed = self.pass().await;
            let pause = jittered(self.crowd.stretched(self.pass_pause));
            if let Some(steps) = passed
                && std::mem::take(&mut self.is_quick)
            {
                let seconds = (self.step_pause * steps + pause).as_secs();
                events::scan_time(steps, seconds, self.is_listening);
                // Delayed, so that a subscription that fails again and again does not cause endless
                // scanning.
                self.next_step = Instant::now() + start.elapsed();
            }
            self.wait_until(Instant::now() + pause).await;
        }
    }

    /// Waits until this instant and receives new queues meanwhile. Ends early when a pass without
    /// pauses is due.
    async fn wait_until(&mut self, until: Instant) {
        while !self.is_over() {
            let new = match self.hearing.try_recv() {
                Ok(new) => Some(new),
                // Without this check, a sleep would take at least a millisecond, as long as some
                // steps.
                Err(_) if until <= Instant::now() => return,
                Err(_) => tokio::select! {
                    new = self.hearing.recv() => new,
                    () = sleep_until(until.into()) => return,
                },
            };
            self.heard(new).await;
        }
    }

    /// Whether a pass without pauses must replace this one.
    fn is_over(&self) -> bool {
        self.has_missed && !self.is_quick
    }

    async fn heard(&mut self, new: Option<NewQueue>) {
        match new {
            Some(NewQueue::Created(name)) => self.created(name).await,
            Some(NewQueue::Listening) => (self.is_listening, self.has_missed) = (true, true),
            Some(NewQueue::Silent) => {
                // The next pass may be far away, so a lost connection counts until a step succeeds.
                if std::mem::take(&mut self.is_listening) {
                    self.health.scan_is_answered(false);
                }
            }
            None => std::future::pending().await, // the node ends
        }
    }

    /// Reports a created queue if it exists. The check is needed because channels belong to all
    /// databases of a server, and any user with the right can publish.
    async fn created(&mut self, name: String) {
        if self.reported.contains_key(&name) {
            return self.add([name]); // created again: the pass may have missed it
        }
        let is_wanted = self.patterns.iter().any(|pattern| pattern.matches(&name));
        if let Ok(keys) = Keys::of_queue(&name)
            && is_wanted
        {
            let control = RoutedLane::control(&self.servers.route(&keys));
            if let Ok(Ok(true)) = timeout(REACH_LIMIT, control.has(keys.meta())).await {
                self.add([name]);
            }
        }
    }

    /// Makes one pass over the key space of each server. It reports new names at once, and all
    /// names at its end. Returns the number of its steps, or `None` if another pass replaces it.
    async fn pass(&mut self) -> Option<u32> {
        self.found = Found::begun();
        self.full.clear();
        let links = loop {
            self.wait_until(self.next_step).await;
            if self.is_over() {
                return None;
            }
            let (links, failure) = self.servers.usable_links().await;
            if let Some(error) = failure {
                self.failed(&error);
            }
            if !links.is_empty() {
                break links;
            }
        };
        let (owners, is_only) = (self.servers.owner_changes(), links.len() == 1);
        let glob = match &self.patterns[..] {
            [only] => only.meta_glob(),
            _ => keys::meta_glob("*"),
        };
        let mut scan = QueueScan::over(&self.servers, glob, links);
        let mut steps = 0;
        while scan.address().is_some() {
            self.wait_until(self.next_step).await;
            if self.is_over() {
                return None;
            }
            let sent = Instant::now();
            match scan.next().await {
                Ok(names) => {
                    (steps, self.failures) = (steps + 1, 0);
                    self.health.scan_is_answered(true);
                    let pause = match self.is_quick {
                        true => self.crowd.between(sent.elapsed()),
                        false => self.step_pause,
                    };
                    self.next_step = Instant::now() + pause;
                    self.add(names.unwrap_or_default());
                }
                // A failed step on the only server is repeated from its cursor until it succeeds.
                // With several servers, the failed one is skipped until the next pass.
                Err(error) => {
                    self.failed(&error);
                    if !is_only {
                        scan.leave_server();
                    }
                }
            }
        }
        // A queue that moved during the pass may have been missed on both servers.
        self.found.is_complete &= owners == self.servers.owner_changes();
        for index in &self.full {
            events::too_many_queues(self.patterns[*index].text(), MAX_QUEUES);
        }
        let found = std::mem::replace(&mut self.found, Found::begun());
        if found.is_complete {
            self.reported.clone_from(&found.names);
            self.counts.fill(0);
            for index in found.names.values() {
                self.counts[*index] += 1;
            }
        }
        self.report(found);
        Some(steps)
    }

    /// Reports those of these queues that match a pattern and are new to this pass.
    fn add(&mut self, names: impl IntoIterator<Item = String>) {
        let mut new = BTreeMap::new();
        for name in names {
            if let Some(index) = self.pattern_of(&name)
                && self.found.names.insert(name.clone(), index).is_none()
            {
                new.insert(name, index);
            }
        }
        if !new.is_empty() {
            self.report(Found {
                names: new,
                is_complete: false,
            });
        }
    }

    /// The first pattern that matches the name and has room.
    fn pattern_of(&mut self, name: &str) -> Option<usize> {
        if let Some(index) = self.reported.get(name) {
            return Some(*index);
        }
        for (index, pattern) in self.patterns.iter().enumerate() {
            if !pattern.matches(name) {
                continue;
            }
            if self.counts[index] < MAX_QUEUES {
                self.counts[index] += 1;
                self.reported.insert(name.to_owned(), index);
                return Some(index);
            }
            self.full.insert(index);
        }
        None
    }

    /// Delays the next step: by a back-off if the step may succeed soon, otherwise by the time
    /// between two passes.
    fn failed(&mut self, error: &Error) {
        if self.failures == 0 {
            let patterns: Vec<_> = self.patterns.iter().map(Pattern::text).collect();
            events::scan_failed(&patterns.join(", "), error);
        }
        self.health.scan_is_answered(false);
        // A new master may keep its keys in another order, so this pass may miss some.
        self.found.is_complete = false;
        self.failures = self.failures.saturating_add(1);
        let pause = if error.is_retryable() {
            reconnect_delays().delay(self.failures, fastrand::f64())
        } else {
            jittered(self.pass_pause)
        };
        self.next_step = Instant::now() + pause.max(self.step_pause);
    }

    fn report(&self, found: Found) {
        (self.report)(found);
    }
}

impl Found {
    fn begun() -> Self {
        Self {
            names: BTreeMap::new(),
            is_complete: true,
        }
    }
}

/// A pause that is up to a fifth shorter or longer.
fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(0.8 + 0.4 * fastrand::f64())
}

#[cfg(test)]
mod tests;
