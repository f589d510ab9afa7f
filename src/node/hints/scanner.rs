//! Finds the queues that match the patterns of a worker: it hears of new ones, and scans for those of
//! which it did not hear.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{sleep_until, timeout};

use crate::error::Error;
use crate::protocol::keys::{self, Keys};
use crate::protocol::pattern::Pattern;
use crate::server::new_queues::{self, NewQueue};
use crate::server::patience::{REACH_LIMIT, reconnect_delays};
use crate::server::queue_scan::QueueScan;
use crate::server::route::RoutedLane;
use crate::server::servers::Servers;
use crate::telemetry::events;

/// Time between two steps: a node looks at 1,000 keys a second at most, but for the pass after it has
/// begun to listen.
const STEP_PAUSE: Duration = Duration::from_secs(1);
/// Time from the end of a pass to the next, with jitter of a fifth.
const PASS_PAUSE: Duration = Duration::from_secs(30);
/// Above this number of nodes the passes become rarer: all nodes together scan as much as so many.
const SCANNING_NODES: u64 = 10;
/// How many queues of a pattern a node attends at most.
const MAX_QUEUES: usize = 10_000;

/// Queues of the patterns.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// By name the index of the pattern.
    pub(crate) names: BTreeMap<String, usize>,
    /// Whether `names` has every queue that earlier reports named and that still exists.
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

    /// The pause after a step that took so long, in a pass that few nodes make without pauses.
    fn between(&self, took: Duration) -> Duration {
        let nodes = self.0.load(Ordering::Relaxed).min(1_000_000);
        took * (nodes / SCANNING_NODES) as u32
    }
}

/// Reports the queues that match. Never returns.
pub(crate) async fn run(
    servers: Arc<Servers>,
    patterns: Vec<Pattern>,
    crowd: Arc<Crowd>,
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
        Box::new(report),
        hearing,
    );
    tokio::select! {
        () = listening => {}
        () = scanner.run() => {}
    }
}

/// Where it reports.
type Report = Box<dyn Fn(Found) + Send + Sync>;

struct Scanner {
    servers: Arc<Servers>,
    patterns: Vec<Pattern>,
    crowd: Arc<Crowd>,
    report: Report,
    hearing: UnboundedReceiver<NewQueue>,
    step_pause: Duration,
    pass_pause: Duration,
    /// The queues that earlier reports named and that still exist, with their patterns. Each pattern
    /// has at most [`MAX_QUEUES`]: others are left out until some of them go.
    reported: BTreeMap<String, usize>,
    /// How many of them each pattern has.
    counts: Vec<usize>,
    /// The patterns that had to leave queues out in this pass.
    full: BTreeSet<usize>,
    /// What this pass has found, and of what the node heard meanwhile.
    found: Found,
    is_listening: bool,
    /// Whether creations may have been missed since this pass began.
    has_missed: bool,
    /// Whether this pass makes no pauses, because creations may have been missed before it.
    is_quick: bool,
    /// The next step begins no earlier.
    next_step: Instant,
    /// Steps that failed since the last one that succeeded.
    failures: u32,
}

impl Scanner {
    fn new(
        servers: Arc<Servers>,
        patterns: Vec<Pattern>,
        crowd: Arc<Crowd>,
        report: Report,
        hearing: UnboundedReceiver<NewQueue>,
    ) -> Self {
        Self {
            servers,
            crowd,
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
        // First it listens, so that the first pass need not be repeated.
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
                // A subscription that fails again and again does not make it scan all the time.
                self.next_step = Instant::now() + start.elapsed();
            }
            self.wait_until(Instant::now() + pause).await;
        }
    }

    /// Waits until then, and takes what is heard meanwhile. Ends early when a pass without pauses is
    /// due.
    async fn wait_until(&mut self, until: Instant) {
        while !self.is_over() {
            let new = match self.hearing.try_recv() {
                Ok(new) => Some(new),
                // A sleep takes a millisecond at least, as long as some steps.
                Err(_) if until <= Instant::now() => return,
                Err(_) => tokio::select! {
                    new = self.hearing.recv() => new,
                    () = sleep_until(until.into()) => return,
                },
            };
            self.heard(new).await;
        }
    }

    /// Whether a pass without pauses takes the place of this one.
    fn is_over(&self) -> bool {
        self.has_missed && !self.is_quick
    }

    async fn heard(&mut self, new: Option<NewQueue>) {
        match new {
            Some(NewQueue::Created(name)) => self.created(name).await,
            Some(NewQueue::Listening) => (self.is_listening, self.has_missed) = (true, true),
            Some(NewQueue::Silent) => self.is_listening = false,
            None => std::future::pending().await, // the node ends
        }
    }

    /// Reports the queue if it exists: channels belong to all databases of a server, and whoever has
    /// the right can publish.
    async fn created(&mut self, name: String) {
        if self.reported.contains_key(&name) {
            return self.add([name]); // created again: this pass may have missed it
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

    /// One pass over the key space of each server: how many steps it made, or `None` if another one
    /// takes its place. New names are reported as soon as they are seen, and all at its end.
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
                    let pause = match self.is_quick {
                        true => self.crowd.between(sent.elapsed()),
                        false => self.step_pause,
                    };
                    self.next_step = Instant::now() + pause;
                    self.add(names.unwrap_or_default());
                }
                // A failed step on the only server is repeated from its cursor until it succeeds. A
                // server of several is left out until the next pass.
                Err(error) => {
                    self.failed(&error);
                    if !is_only {
                        scan.leave_server();
                    }
                }
            }
        }
        // A queue that moved meanwhile may have been missed on both of its servers.
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

    /// Reports those of these queues that match and are new to this pass.
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

    /// The first pattern that matches and has room.
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

    /// Delays the next step: with back-off if it may succeed soon, for the time between two passes
    /// if not.
    fn failed(&mut self, error: &Error) {
        if self.failures == 0 {
            let patterns: Vec<_> = self.patterns.iter().map(Pattern::text).collect();
            events::scan_failed(&patterns.join(", "), error);
        }
        // A new master may keep its keys in another order: this pass may miss some.
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
