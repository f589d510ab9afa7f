//! The state of the poller. Requests and the poller's task share it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dueq::admin::NewQueue;
use dueq::inspect::{NodeInfo, PartialRead};
use dueq::{Error, QueueStats};
use tokio::sync::{Notify, watch};

use crate::edge::audit;
use crate::edge::auth::NamePattern;
use crate::edge::shown::shown;
use crate::wire::causes::{LATE_MS, LateMinute, WaitCause};
use crate::wire::queues::Queue;
use crate::work::poll::details::{Known, Value};
use crate::work::poll::late::LateQueues;
use crate::work::poll::parts::{Part, View};
use crate::work::poll::plan::{Answer, Plan};
use crate::work::poll::snapshot::{Entry, Snapshot};

/// The longest time for a step of a scan, or for the read of a part. The library's own call would
/// go on for longer.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);
/// If no question was answered for this time, all of Redis counts as unreachable, not only some of
/// its servers.
const AWAY: Duration = Duration::from_secs(3);
/// The least time between two snapshots while answers arrive.
const PUBLISH_PAUSE: Duration = Duration::from_millis(200);
/// The most by which Redis's clock may differ from its estimate.
const MAX_SKEW_MS: u64 = 5_000;

/// The state that requests and the task share.
pub(super) struct Shared {
    /// The patterns of the served queues; empty for all.
    pub(super) patterns: Vec<NamePattern>,
    state: Mutex<State>,
    /// Notified after a look or a creation of a queue: the task may have work.
    pub(super) woken: Notify,
    pub(super) snapshot: watch::Sender<Arc<Snapshot>>,
    /// Incremented with each answer about details, not about counts.
    pub(super) answers: watch::Sender<u64>,
}

pub(super) struct State {
    pub(super) plan: Plan,
    /// The next snapshot to publish.
    pub(super) next: Snapshot,
    is_changed: bool,
    published: Instant,
    /// The known details of queues.
    known: HashMap<Arc<str>, Known>,
    /// An instant, and Redis's clock at that instant.
    clock: Option<(Instant, u64)>,
    late: LateQueues,
    /// Since when the task runs.
    begun: Option<Instant>,
}

/// Why a call failed.
pub(super) enum Failed {
    Redis(Error),
    Late,
}

impl Failed {
    fn text(&self) -> String {
        match self {
            Self::Redis(error) => shown(&error.to_string()),
            Self::Late => format!("no answer within {} ms", PATIENCE.as_millis()),
        }
    }

    /// Whether Redis is unreachable. False if only the queue cannot be read.
    fn is_of_server(&self) -> bool {
        match self {
            Self::Redis(error) => error.is_retryable(),
            Self::Late => true,
        }
    }
}

impl Shared {
    pub(super) fn new(patterns: &[NamePattern]) -> Self {
        let (names, now) = (listed(patterns), Instant::now());
        let first = Snapshot {
            is_given: names.is_some(),
            is_catching_up: true,
            ..Snapshot::default()
        };
        Self {
            patterns: patterns.to_vec(),
            snapshot: watch::Sender::new(Arc::new(first.clone())),
            state: Mutex::new(State {
                plan: Plan::new(names, now),
                next: first,
                is_changed: false,
                published: now,
                known: HashMap::new(),
                clock: None,
                late: LateQueues::default(),
                begun: None,
            }),
            woken: Notify::new(),
            answers: watch::Sender::new(0),
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A viewer looks at the counts of these queues; without names, of all queues.
    pub(super) fn look<'a>(&self, names: impl IntoIterator<Item = &'a str>) {
        let mut state = self.state();
        state.plan.look(names, Instant::now());
        self.wait_if_catching_up(&state);
    }

    /// A viewer looks at a list with the details of these queues.
    pub(super) fn look_at(&self, view: View, names: &[&str]) {
        let mut state = self.state();
        let now = Instant::now();
        state.plan.look([], now);
        for name in names {
            if let Some(dropped) = state.plan.parts.look(view, name, now) {
                state.known.remove(&dropped);
            }
        }
        self.wait_if_catching_up(&state);
    }

    /// Marks the snapshot after a pause as old, so that a viewer waits for a later one.
    fn wait_if_catching_up(&self, state: &State) {
        if state.plan.is_catching_up() {
            self.snapshot.send_if_modified(|snapshot| {
                let is_new = !snapshot.is_catching_up;
                if is_new {
                    Arc::make_mut(snapshot).is_catching_up = true;
                }
                is_new
            });
        }
    }

    /// The number of these queues' parts that were never read.
    pub(super) fn unanswered(&self, view: View, names: &[&str]) -> usize {
        let state = self.state();
        let unanswered = |name: &&str| state.plan.parts.unanswered(view, name);
        names.iter().map(unanswered).sum()
    }

    /// The known details that are not too old.
    pub(super) fn fresh(&self, names: &[&str]) -> HashMap<Arc<str>, Known> {
        let state = self.state();
        let known = names
            .iter()
            .filter_map(|name| state.known.get_key_value(*name));
        known
            .map(|(name, known)| (Arc::clone(name), known.fresh(Instant::now())))
            .collect()
    }

    /// Whether the server serves this queue.
    pub(super) fn serves(&self, name: &str) -> bool {
        self.patterns.is_empty() || self.patterns.iter().any(|pattern| pattern.matches(name))
    }

    pub(super) fn heard(&self, new: NewQueue) {
        let now = Instant::now();
        match new {
            NewQueue::Created(name) if self.serves(&name) => self.state().plan.created(name, now),
            NewQueue::Listening => self.state().plan.missed(now),
            NewQueue::Created(_) | NewQueue::Silent => return,
        }
        self.woken.notify_one();
    }

    /// Publishes changes: with a least interval, or at once if that ends the wait of a viewer.
    pub(super) fn publish(&self) {
        let mut state = self.state();
        let is_catching_up = state.plan.is_catching_up();
        let ends_wait = self.snapshot.borrow().is_catching_up && !is_catching_up;
        let is_time = state.published.elapsed() >= PUBLISH_PAUSE;
        if ends_wait || (state.is_changed && is_time) {
            let is_cut = state.plan.is_cut();
            (state.next.is_catching_up, state.next.is_cut) = (is_catching_up, is_cut);
            self.snapshot.send_replace(Arc::new(state.next.clone()));
            (state.is_changed, state.published) = (false, Instant::now());
        }
    }
}

impl State {
    /// The task begins.
    pub(super) fn begin(&mut self, now: Instant) {
        self.plan.restart(now);
        self.begun.get_or_insert(now);
    }

    /// The late minutes of this queue, and since when the task has watched.
    pub(super) fn late(&self, name: &str, now: Instant) -> (Vec<LateMinute>, Option<u64>) {
        let now_ms = self.now_ms(now);
        let since = self.begun.map(|begun| {
            let passed = u64::try_from(now.duration_since(begun).as_millis());
            now_ms.saturating_sub(passed.unwrap_or(u64::MAX))
        });
        (self.late.of(name, now_ms), since)
    }

    /// When the next snapshot is to be published; `None` if nothing has changed.
    pub(super) fn publish_at(&self) -> Option<Instant> {
        self.is_changed.then(|| self.published + PUBLISH_PAUSE)
    }

    /// The estimated time of Redis; the local time if no call has returned Redis's.
    pub(super) fn now_ms(&self, now: Instant) -> u64 {
        let Some((at, ms)) = self.clock else {
            return audit::now_ms();
        };
        let passed = u64::try_from(now.duration_since(at).as_millis()).unwrap_or(u64::MAX);
        ms.saturating_add(passed)
    }

    /// Whether the queue's counts have schedules.
    pub(super) fn has_schedules(&self, name: &str) -> bool {
        let stats = self.next.queues.get(name).and_then(|entry| entry.stats());
        stats.is_some_and(|stats| stats.schedules > 0)
    }

    /// The read of a part has ended. `None`: it failed, and the last value is kept until it is too
    /// old.
    pub(super) fn read(
        &mut self,
        name: Arc<str>,
        part: Part,
        value: Option<Value>,
        expected_ms: u64,
    ) {
        let now = Instant::now();
        let is_kept = self.plan.parts.ended(&name, part);
        let Some(value) = value else {
            return;
        };
        if let Some(ms) = value.now_ms() {
            self.clock = Some((now, ms));
            if part == Part::Due && expected_ms.abs_diff(ms) > MAX_SKEW_MS {
                // The estimate was wrong, so the bars begin at a wrong time: read again.
                self.plan.parts.again(&name, part);
            }
        }
        if is_kept {
            self.known.entry(name).or_default().add(value, now);
        }
    }

    /// Keeps the workers of a queue that a route has just read, if viewers look at them.
    pub(super) fn saw_nodes(&mut self, name: &str, nodes: Vec<NodeInfo>) {
        if let Some(known) = self.known.get_mut(name) {
            known.add(Value::Nodes(nodes), Instant::now());
        }
    }

    /// A step of the scan that began at `begun` has found these names; `None` if the scan has
    /// ended.
    pub(super) fn scanned(&mut self, names: Option<Vec<String>>, begun: Instant, now: Instant) {
        let is_last = names.is_none();
        self.plan.scanned(names.unwrap_or_default(), is_last, now);
        if is_last {
            self.next.scanned = Some(begun);
            self.next.scan_took = now - begun;
        }
        self.answered(now);
    }

    /// A server of a cluster may be gone: a new scan asks which servers there are.
    pub(super) fn scan_failed(&mut self, failed: &Failed, now: Instant) {
        self.plan.scan_failed(now);
        self.failed(failed);
    }

    pub(super) fn asked(
        &mut self,
        name: &Arc<str>,
        result: Result<Box<PartialRead<QueueStats>>, Error>,
        now: Instant,
    ) {
        let known = self.next.queues.get(name);
        let known = known.map(|known| Entry::clone(known)).unwrap_or_default();
        let causes = causes(name, &result);
        let (entry, answer) = match result {
            Ok(reached) => match reached.gap() {
                Some(gap) => {
                    let entry = known.unread(Some(reached.value), &shown(&gap), now);
                    (entry, Answer::Known)
                }
                None if reached.value == QueueStats::default() => {
                    self.next.queues.remove(name);
                    self.late.forget(name);
                    self.plan.asked(name, Answer::Absent, now);
                    return self.answered(now);
                }
                None => (known.next(reached.value, now), Answer::Known),
            },
            Err(error) => {
                let failed = Failed::Redis(error);
                let entry = known.unread(None, &failed.text(), now);
                if failed.is_of_server() {
                    self.failed(&failed);
                    (entry, Answer::Failed)
                } else {
                    (entry, Answer::Known)
                }
            }
        };
        let overdue_ms = entry.overdue_ms().unwrap_or_default();
        if overdue_ms > LATE_MS && !causes.is_empty() {
            self.late.saw(name, self.now_ms(now), overdue_ms, &causes);
        }
        self.next.queues.insert(Arc::clone(name), Arc::new(entry));
        self.plan.asked(name, answer, now);
        if answer != Answer::Failed {
            self.answered(now);
        }
    }

    fn answered(&mut self, now: Instant) {
        (self.next.answered, self.next.failure) = (Some(now), None);
        self.is_changed = true;
    }

    fn failed(&mut self, failed: &Failed) {
        self.is_changed = true;
        let answered = self.next.answered;
        if answered.is_some_and(|answered| answered.elapsed() < AWAY) {
            return;
        }
        self.late.saw_no_answer(self.now_ms(Instant::now()));
        let text = failed.text();
        if self.next.failure.is_none() {
            tracing::warn!(name: "dueq_serve.poll_failed", error = %text, "the counts of the queues grow old");
        }
        self.next.failure = Some(text.into());
    }
}

/// Why messages of the queue wait.
fn causes(name: &str, asked: &Result<Box<PartialRead<QueueStats>>, Error>) -> Vec<WaitCause> {
    let Ok(reached) = asked else {
        return vec![WaitCause::Unread];
    };
    let mut causes = WaitCause::of(&Queue::new(name, reached));
    if reached.gap().is_some() {
        causes.push(WaitCause::Unread);
    }
    causes
}

/// The names of the served queues, if no pattern has wildcards.
fn listed(patterns: &[NamePattern]) -> Option<Vec<String>> {
    let names = patterns.iter().map(|pattern| pattern.name());
    let names: Option<Vec<_>> = names.map(|name| name.map(str::to_owned)).collect();
    names.filter(|names| !names.is_empty())
}
