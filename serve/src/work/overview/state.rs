//! What is known of each queue, and what is to be read.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dueq::inspect::NodeInfo;
use tokio::sync::watch;

use crate::work::overview::plan::{Plan, View};

/// How old a value may be that is shown: the task reads it again after a fourth of that.
const MAX_AGE: Duration = Duration::from_secs(60);
/// The greatest age of the values of a day.
const MAX_AGE_OF_DAY: Duration = Duration::from_secs(300);

/// How many bars show the next hour: one for each 5 minutes.
pub(super) const BARS: usize = 12;

/// What is known of a queue.
#[derive(Debug, Clone, Default)]
pub(crate) struct Known {
    pub(crate) due: Option<Aged<Due>>,
    pub(crate) lately: Option<Aged<Lately>>,
    pub(crate) day: Option<Aged<Day>>,
    pub(crate) nodes: Option<Aged<Vec<NodeInfo>>>,
}

/// A value and when it was read.
pub(crate) type Aged<T> = (Arc<T>, Instant);

/// How many messages fall due in each 5 minutes of the next hour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Due(pub(crate) [u64; BARS]);

/// What happened lately.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Lately {
    /// The lateness in the last full minute and the present one.
    pub(crate) p50_us: Option<u64>,
    pub(crate) p99_us: Option<u64>,
    /// Messages pushed in the last hour.
    pub(crate) pushed: u64,
    /// Messages that ended in it.
    pub(crate) ended: u64,
}

/// What happened in 24 hours.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Day {
    pub(crate) cancelled: u64,
    pub(crate) ended: u64,
}

pub(super) struct Shared {
    pub(super) state: Mutex<State>,
    /// Somebody looked: the task may have work.
    pub(super) looked: tokio::sync::Notify,
    /// Grows with each answer.
    pub(super) answers: watch::Sender<u64>,
}

pub(super) struct State {
    pub(super) plan: Plan,
    pub(super) known: HashMap<Arc<str>, Known>,
    /// The clock of Redis at some instant.
    pub(super) clock: Option<(Instant, u64)>,
}

impl Known {
    /// What is known and not too old.
    pub(super) fn fresh(&self, now: Instant) -> Self {
        fn kept<T>(value: &Option<Aged<T>>, now: Instant, max: Duration) -> Option<Aged<T>> {
            let fresh = value.as_ref().filter(|(_, at)| now < *at + max);
            fresh.map(|(value, at)| (Arc::clone(value), *at))
        }
        Self {
            due: kept(&self.due, now, MAX_AGE),
            lately: kept(&self.lately, now, MAX_AGE),
            day: kept(&self.day, now, MAX_AGE_OF_DAY),
            nodes: kept(&self.nodes, now, MAX_AGE),
        }
    }
}

impl State {
    /// The present time of Redis, if a call has told it.
    pub(super) fn now_ms(&self, now: Instant) -> Option<u64> {
        let (at, ms) = self.clock?;
        let passed = u64::try_from(now.duration_since(at).as_millis()).unwrap_or(u64::MAX);
        Some(ms.saturating_add(passed))
    }
}

impl Shared {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn look(&self, view: View, names: &[&str]) {
        let mut state = self.state();
        let now = Instant::now();
        for name in names {
            if let Some(dropped) = state.plan.look(view, name, now) {
                state.known.remove(&dropped);
            }
        }
    }

    /// How many parts of these queues have no answer yet.
    pub(super) fn unanswered(&self, view: View, names: &[&str]) -> usize {
        let state = self.state();
        let unanswered = |name: &&str| state.plan.unanswered(view, name);
        names.iter().map(unanswered).sum()
    }

    /// What is known and not too old.
    pub(super) fn fresh(&self, names: &[&str]) -> HashMap<Arc<str>, Known> {
        let state = self.state();
        let known = names
            .iter()
            .filter_map(|name| state.known.get_key_value(*name));
        known
            .map(|(name, known)| (Arc::clone(name), known.fresh(Instant::now())))
            .collect()
    }
}
