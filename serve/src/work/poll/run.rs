//! The task of the poller: it makes the calls that the plan decides.

use std::sync::Arc;
use std::time::Instant;

use dueq::admin::QueueScan;
use dueq::inspect::PartialRead;
use dueq::{Client, Error, QueueStats};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::edge::auth::NamePattern;
use crate::work::poll::details::{self, Value};
use crate::work::poll::parts::Part;
use crate::work::poll::plan::Step;
use crate::work::poll::state::{Failed, PATIENCE, Shared};

/// A scan between two of its steps, and the instant at which it began.
type Scan = (QueueScan, Instant);

/// The result of a call that has ended.
enum Done {
    Asked(Arc<str>, Result<Box<PartialRead<QueueStats>>, Error>),
    Scanned(Scan, Result<Option<Vec<String>>, Failed>),
    /// The result of reading a part; `None` if it failed. The number is Redis's time that the call
    /// assumed.
    Read(Arc<str>, Part, Option<Value>, u64),
}

/// Polls until the task is aborted.
pub(super) async fn run(shared: Arc<Shared>, client: Client) {
    let is_given = {
        let mut state = shared.state();
        state.begin(Instant::now());
        state.next.is_given
    };
    let patterns = patterns_of(&client, &shared.patterns);
    tokio::select! {
        () = client.new_queues(&patterns, |new| shared.heard(new)), if !is_given => {}
        () = poll(&shared, &client) => {}
    }
}

async fn poll(shared: &Shared, client: &Client) {
    let mut calls = JoinSet::new();
    let mut scan: Option<Scan> = None;
    loop {
        let (step, publish, now_ms) = {
            let (mut state, now) = (shared.state(), Instant::now());
            (state.plan.next(now), state.publish_at(), state.now_ms(now))
        };
        let client = client.clone();
        let wake = match step {
            Step::Ask(name) => {
                calls.spawn(ask(client, name));
                continue;
            }
            Step::Read(name, part) => {
                let has_schedules = shared.state().has_schedules(&name);
                calls.spawn(read(client, name, part, now_ms, has_schedules));
                continue;
            }
            Step::Scan => {
                let scan = scan.take();
                let scan = scan.unwrap_or_else(|| (client.scan_queues(), Instant::now()));
                calls.spawn(step_of(scan));
                continue;
            }
            Step::Wait(until) => Some(until),
            Step::Idle => None,
        };
        let wake = [wake, publish].into_iter().flatten().min();
        let timer = async {
            match wake {
                Some(until) => tokio::time::sleep_until(until.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = shared.woken.notified() => {}
            Some(done) = calls.join_next() => match done {
                Ok(done) => scan = shared.done(done).or(scan),
                // The poller is restarted by the next look.
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                Err(_) => {}
            },
            () = timer => {}
        }
        shared.publish();
    }
}

async fn ask(client: Client, name: Arc<str>) -> Done {
    let asked = async { client.queue(&name)?.stats_reached().await };
    let asked = asked.await;
    Done::Asked(name, asked.map(Box::new))
}

async fn read(
    client: Client,
    name: Arc<str>,
    part: Part,
    now_ms: u64,
    has_schedules: bool,
) -> Done {
    let read = details::read(&client, &name, part, now_ms, has_schedules);
    let read = timeout(PATIENCE, read).await;
    Done::Read(name, part, read.ok().and_then(Result::ok), now_ms)
}

async fn step_of((mut scan, begun): Scan) -> Done {
    let names = match timeout(PATIENCE, scan.next()).await {
        Ok(names) => names.map_err(Failed::Redis),
        Err(_) => Err(Failed::Late),
    };
    Done::Scanned((scan, begun), names)
}

impl Shared {
    /// Handles the result of a call. Returns the scan if it goes on.
    fn done(&self, done: Done) -> Option<Scan> {
        let (mut state, now) = (self.state(), Instant::now());
        match done {
            Done::Asked(name, result) => state.asked(&name, result, now),
            Done::Scanned(scan, Ok(names)) => {
                let served = |names: Vec<String>| {
                    let served = names.into_iter().filter(|name| self.serves(name));
                    served.collect::<Vec<_>>()
                };
                let goes_on = names.is_some();
                state.scanned(names.map(served), scan.1, now);
                return goes_on.then_some(scan);
            }
            Done::Scanned(_, Err(failed)) => state.scan_failed(&failed, now),
            Done::Read(name, part, value, expected_ms) => {
                state.read(name, part, value, expected_ms);
                drop(state);
                self.answers.send_modify(|answers| *answers += 1);
            }
        }
        None
    }
}

/// The patterns of queues whose creation to listen for. If the library finds one too costly,
/// listens for all queues.
fn patterns_of(client: &Client, patterns: &[NamePattern]) -> Vec<dueq::QueuePattern> {
    let made = patterns.iter().map(|of| client.pattern(of.text()));
    let made: Result<Vec<_>, _> = made.collect();
    let made = made.ok().filter(|made| !made.is_empty());
    made.unwrap_or_else(|| client.pattern("*").into_iter().collect())
}
