//! Reads what the plan says, until it is aborted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dueq::inspect::{HistoryPoint, HistoryResolution, NodeInfo, PartialRead};
use dueq::{Client, Error};
use tokio::task::JoinSet;

use crate::work::overview::plan::{Part, Step};
use crate::work::overview::state::{BARS, Day, Due, Lately, Shared};

/// How long a queue may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// The time of a bar of the next hour.
const BAR_MS: u64 = 300_000;
/// By how much the clock of Redis may differ from the expected one.
const MAX_SKEW_MS: u64 = 5_000;

/// The answer of a call, with the time of Redis if it tells it.
enum Value {
    Due(Due, u64),
    Lately(Lately, u64),
    Day(Day, u64),
    Nodes(Vec<NodeInfo>),
}

/// The end of a call. `None`: it failed, and what was known stays until it is too old.
struct Done {
    name: Arc<str>,
    part: Part,
    value: Option<Value>,
    /// The time of Redis that the call expected.
    expected_ms: Option<u64>,
}

pub(super) async fn run(shared: Arc<Shared>, client: Client) {
    let mut calls = JoinSet::new();
    shared.state().plan.restart();
    loop {
        let now = Instant::now();
        let (step, now_ms) = {
            let mut state = shared.state();
            (state.plan.next(now), state.now_ms(now))
        };
        let until = match step {
            Step::Ask(name, part) => {
                calls.spawn(call(client.clone(), name, part, now_ms));
                continue;
            }
            Step::Wait(until) => Some(until),
            Step::Idle => None,
        };
        let timer = async {
            match until {
                Some(until) => tokio::time::sleep_until(until.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = shared.looked.notified() => {}
            Some(done) = calls.join_next() => match done {
                Ok(done) => shared.done(done),
                // The task begins again with the next look.
                Err(error) => {
                    if let Ok(reason) = error.try_into_panic() {
                        std::panic::resume_unwind(reason);
                    }
                }
            },
            () = timer => {}
        }
    }
}

async fn call(client: Client, name: Arc<str>, part: Part, now_ms: Option<u64>) -> Done {
    let read = tokio::time::timeout(PATIENCE, read(&client, &name, part, now_ms)).await;
    Done {
        value: read.ok().and_then(Result::ok),
        expected_ms: now_ms,
        name,
        part,
    }
}

async fn read(
    client: &Client,
    name: &str,
    part: Part,
    now_ms: Option<u64>,
) -> Result<Value, Error> {
    let queue = client.queue(name)?;
    Ok(match part {
        Part::Due => {
            let from_ms = now_ms.unwrap_or_else(crate::edge::audit::now_ms);
            let times: Vec<_> = (0..=BARS as u64)
                .map(|bar| from_ms.saturating_add(bar * BAR_MS))
                .collect();
            let dues = whole(queue.dues_reached(&times).await?)?;
            // The first count is of the messages that are due now: no bar shows them.
            let mut bars = dues.counts.iter().copied().skip(1);
            let bars = std::array::from_fn(|_| bars.next().unwrap_or_default());
            Value::Due(Due(bars), dues.now_ms)
        }
        Part::Lately => {
            let history = whole(queue.history_reached(HistoryResolution::Minutes).await?)?;
            let now_ms = history.now_ms;
            Value::Lately(Lately::new(&history), now_ms)
        }
        Part::Day => {
            let history = whole(queue.history_reached(HistoryResolution::Hours).await?)?;
            let from_ms = history.now_ms.saturating_sub(86_400_000);
            let sum = history.sum(from_ms..u64::MAX).unwrap_or_default();
            let day = Day {
                cancelled: sum.cancelled,
                ended: ended_in(&sum),
            };
            Value::Day(day, history.now_ms)
        }
        Part::Nodes => Value::Nodes(whole(queue.nodes_reached().await?)?),
    })
}

/// What was read, if that is all: a part of it must not look like the whole.
fn whole<T>(reached: PartialRead<T>) -> Result<T, Error> {
    let first = reached.unread.into_iter().next();
    first.map_or(Ok(reached.value), |unread| Err(unread.error))
}

/// How many messages left the queue or died, at least. What expired has died, and counts as dead too,
/// or was dropped.
pub(crate) fn ended(acked: u64, cancelled: u64, died: u64, expired: u64) -> u64 {
    acked
        .saturating_add(cancelled)
        .saturating_add(died.max(expired))
}

fn ended_in(point: &HistoryPoint) -> u64 {
    ended(point.acked, point.cancelled, point.died, point.expired)
}

impl Lately {
    fn new(history: &dueq::inspect::QueueHistory) -> Self {
        let minute_ms = HistoryResolution::Minutes.slot_ms();
        let present = history.now_ms / minute_ms * minute_ms;
        let minute = history.sum(present.saturating_sub(minute_ms)..u64::MAX);
        let lateness = minute.unwrap_or_default().lateness;
        let hour = history.sum(0..u64::MAX).unwrap_or_default();
        Self {
            p50_us: lateness.quantile_us(0.5),
            p99_us: lateness.quantile_us(0.99),
            pushed: hour.pushed,
            ended: ended_in(&hour),
        }
    }
}

impl Shared {
    fn done(&self, done: Done) {
        let now = Instant::now();
        {
            let mut state = self.state();
            let is_kept = state.plan.ended(&done.name, done.part);
            let clock = match &done.value {
                Some(Value::Due(_, ms) | Value::Lately(_, ms) | Value::Day(_, ms)) => Some(*ms),
                _ => None,
            };
            if let Some(ms) = clock {
                state.clock = Some((now, ms));
                let expected = done.expected_ms.unwrap_or_else(crate::edge::audit::now_ms);
                if done.part == Part::Due && expected.abs_diff(ms) > MAX_SKEW_MS {
                    // The bars begin at a wrong time.
                    state.plan.again(&done.name, done.part);
                }
            }
            if is_kept && let Some(value) = done.value {
                let known = state.known.entry(done.name).or_default();
                match value {
                    Value::Due(due, _) => known.due = Some((Arc::new(due), now)),
                    Value::Lately(lately, _) => known.lately = Some((Arc::new(lately), now)),
                    Value::Day(day, _) => known.day = Some((Arc::new(day), now)),
                    Value::Nodes(nodes) => known.nodes = Some((Arc::new(nodes), now)),
                }
            }
        }
        self.answers.send_modify(|answers| *answers += 1);
    }
}
