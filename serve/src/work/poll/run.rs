//! The task of the poller: does what the plan says.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dueq::admin::{NewQueue, QueueScan};
use dueq::inspect::PartialRead;
use dueq::{Client, Error, QueueStats};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use crate::edge::auth::NamePattern;
use crate::edge::shown::shown;
use crate::work::poll::plan::{Answer, Plan, Step};
use crate::work::poll::snapshot::{Entry, Snapshot};

/// How long a step of a scan may take. A call of the library is patient for longer.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long no question may have been answered until Redis is away, and not only some of its servers.
const AWAY: Duration = Duration::from_secs(3);
/// Between two snapshots while answers come.
const PUBLISH_PAUSE: Duration = Duration::from_millis(200);

/// How many names of looked-at queues wait for the poller: it takes them within milliseconds.
pub(super) const MAX_LOOKS: usize = 10_000;

/// What the poller and its task share.
pub(super) struct Shared {
    /// The patterns of the served queues; none for all.
    pub(super) patterns: Vec<NamePattern>,
    pub(super) looks: Mutex<Looks>,
    pub(super) looked: Notify,
    pub(super) snapshot: watch::Sender<Arc<Snapshot>>,
}

/// Who has looked since the task took it.
#[derive(Default)]
pub(super) struct Looks {
    pub(super) is_any: bool,
    pub(super) names: Vec<String>,
    pub(super) last: Option<Instant>,
}

impl Shared {
    pub(super) fn looks(&self) -> MutexGuard<'_, Looks> {
        self.looks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The end of a call.
enum Done {
    Asked(Arc<str>, Result<Box<PartialRead<QueueStats>>, Error>),
    Scanned(QueueScan, Result<Option<Vec<String>>, Failed>),
}

/// Why a call failed.
enum Failed {
    Redis(Error),
    Late,
}

struct Task {
    shared: Arc<Shared>,
    client: Client,
    plan: Plan,
    /// The scan between two steps, and when it began.
    scan: Option<QueueScan>,
    scan_begun: Instant,
    next: Snapshot,
    is_changed: bool,
    published: Instant,
    calls: JoinSet<Done>,
    new: UnboundedReceiver<NewQueue>,
}

/// Polls until it is aborted.
pub(super) async fn run(shared: Arc<Shared>, client: Client) {
    let now = Instant::now();
    let names = listed(&shared.patterns);
    let (heard, new) = unbounded_channel();
    let patterns = patterns_of(&client, &shared.patterns);
    let mut next = Snapshot::clone(&shared.snapshot.borrow());
    let is_given = names.is_some();
    next.is_given = is_given;
    let mut plan = Plan::new(names, now);
    // After a panic: the queues that were known before.
    plan.scanned(
        next.queues.keys().map(ToString::to_string).collect(),
        false,
        now,
    );
    let mut task = Task {
        shared,
        client: client.clone(),
        plan,
        scan: None,
        scan_begun: now,
        next,
        is_changed: false,
        published: now,
        calls: JoinSet::new(),
        new,
    };
    let polling = async {
        loop {
            task.step().await;
        }
    };
    tokio::select! {
        () = client.new_queues(&patterns, |new| drop(heard.send(new))), if !is_given => {}
        () = polling => {}
    }
}

impl Task {
    async fn step(&mut self) {
        let now = Instant::now();
        let wake = match self.plan.next(now) {
            Step::Ask(name) => return self.ask(name),
            Step::Scan => return self.scan(),
            Step::Wait(until) => Some(until),
            Step::Idle => None,
        };
        let publish = self.is_changed.then(|| self.published + PUBLISH_PAUSE);
        let wake = [wake, publish].into_iter().flatten().min();
        let shared = Arc::clone(&self.shared);
        let timer = async {
            match wake {
                Some(until) => tokio::time::sleep_until(until.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = shared.looked.notified() => {}
            Some(done) = self.calls.join_next() => match done {
                Ok(done) => self.done(done),
                // The next look starts the poller again.
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                Err(_) => {}
            },
            Some(new) = self.new.recv() => self.heard(new),
            () = timer => {}
        }
        self.publish();
    }

    /// Tells the plan who has looked.
    fn take_looks(&mut self, looks: &mut Looks) {
        if std::mem::take(&mut looks.is_any) {
            let names = std::mem::take(&mut looks.names);
            self.plan.look(names, Instant::now());
        }
    }

    fn heard(&mut self, new: NewQueue) {
        let now = Instant::now();
        match new {
            NewQueue::Created(name) if serves(&self.shared.patterns, &name) => {
                self.plan.created(name, now);
            }
            NewQueue::Listening => self.plan.missed(now),
            NewQueue::Created(_) | NewQueue::Silent => {}
        }
    }

    fn ask(&mut self, name: Arc<str>) {
        let client = self.client.clone();
        self.calls.spawn(async move {
            let asked = async { client.queue(&name)?.stats_reached().await };
            Done::Asked(Arc::clone(&name), asked.await.map(Box::new))
        });
    }

    fn scan(&mut self) {
        let mut scan = self.scan.take().unwrap_or_else(|| {
            self.scan_begun = Instant::now();
            self.client.scan_queues()
        });
        self.calls.spawn(async move {
            let names = within(scan.next()).await;
            Done::Scanned(scan, names)
        });
    }

    fn done(&mut self, done: Done) {
        let now = Instant::now();
        match done {
            Done::Asked(name, result) => self.asked(&name, result, now),
            Done::Scanned(scan, Ok(Some(names))) => {
                let patterns = &self.shared.patterns;
                let names = names.into_iter().filter(|name| serves(patterns, name));
                self.plan.scanned(names.collect(), false, now);
                self.scan = Some(scan);
                self.answered(now);
            }
            Done::Scanned(_, Ok(None)) => {
                self.plan.scanned(Vec::new(), true, now);
                self.next.scanned = Some(self.scan_begun);
                self.next.scan_took = now - self.scan_begun;
                self.answered(now);
            }
            // A server of a cluster may be gone: a new scan asks which ones there are.
            Done::Scanned(_, Err(failed)) => {
                self.plan.scan_failed(now);
                self.failed(&failed);
            }
        }
    }

    fn asked(
        &mut self,
        name: &Arc<str>,
        result: Result<Box<PartialRead<QueueStats>>, Error>,
        now: Instant,
    ) {
        let known = self.next.queues.get(name);
        let known = known.map(|known| Entry::clone(known)).unwrap_or_default();
        let (entry, answer) = match result {
            Ok(reached) => match reached.gap() {
                Some(gap) => {
                    let entry = known.unread(Some(reached.value), &shown(&gap), now);
                    (entry, Answer::Known)
                }
                None if reached.value == QueueStats::default() => {
                    self.next.queues.remove(name);
                    self.plan.asked(name, Answer::Absent, now);
                    return self.answered(now);
                }
                None => (Entry::known(reached.value, now), Answer::Known),
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
        let text = failed.text();
        if self.next.failure.is_none() {
            tracing::warn!(name: "dueq_serve.poll_failed", error = %text, "the counts of the queues grow old");
        }
        self.next.failure = Some(text.into());
    }

    /// Publishes what has changed, not too often; at once if that ends somebody's wait. Who looks
    /// and finds that the poller may have paused begins to wait under the same lock.
    fn publish(&mut self) {
        let shared = Arc::clone(&self.shared);
        let mut looks = shared.looks();
        self.take_looks(&mut looks);
        let is_catching_up = self.plan.is_catching_up();
        let ends_wait = shared.snapshot.borrow().is_catching_up && !is_catching_up;
        let is_time = self.published.elapsed() >= PUBLISH_PAUSE;
        if ends_wait || (self.is_changed && is_time) {
            (self.next.is_catching_up, self.next.is_cut) = (is_catching_up, self.plan.is_cut());
            shared.snapshot.send_replace(Arc::new(self.next.clone()));
            (self.is_changed, self.published) = (false, Instant::now());
        }
    }
}

impl Failed {
    fn text(&self) -> String {
        match self {
            Self::Redis(error) => shown(&error.to_string()),
            Self::Late => format!("no answer within {} ms", PATIENCE.as_millis()),
        }
    }

    /// Whether Redis is away, and not only the queue unreadable.
    fn is_of_server(&self) -> bool {
        match self {
            Self::Redis(error) => error.is_retryable(),
            Self::Late => true,
        }
    }
}

async fn within<T>(call: impl Future<Output = Result<T, Error>>) -> Result<T, Failed> {
    match tokio::time::timeout(PATIENCE, call).await {
        Ok(result) => result.map_err(Failed::Redis),
        Err(_) => Err(Failed::Late),
    }
}

/// The patterns to listen for: all queues, if the library takes one of them for too costly.
fn patterns_of(client: &Client, patterns: &[NamePattern]) -> Vec<dueq::QueuePattern> {
    let made = patterns.iter().map(|of| client.pattern(of.text()));
    let made: Result<Vec<_>, _> = made.collect();
    let made = made.ok().filter(|made| !made.is_empty());
    made.unwrap_or_else(|| client.pattern("*").into_iter().collect())
}

fn serves(patterns: &[NamePattern], name: &str) -> bool {
    patterns.is_empty() || patterns.iter().any(|pattern| pattern.matches(name))
}

/// The names of the served queues, if the patterns are names only.
fn listed(patterns: &[NamePattern]) -> Option<Vec<String>> {
    let names = patterns.iter().map(|pattern| pattern.name());
    let names: Option<Vec<_>> = names.map(|name| name.map(str::to_owned)).collect();
    names.filter(|names| !names.is_empty())
}
