//! What lists show of a queue in addition to its counts: due times, recent events, workers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dueq::inspect::{HistoryResolution, NodeInfo};
use dueq::{Client, Error};

use crate::work::poll::ahead::{Due, whole};
use crate::work::poll::lately::{Lately, ended_in};
use crate::work::poll::parts::Part;

/// The greatest age of a value that is shown. The task reads a value again after an eighth of that, or
/// half of it if only all queues together are shown.
const MAX_AGE: Duration = Duration::from_secs(120);
/// The greatest age of values about a day.
const MAX_AGE_OF_DAY: Duration = Duration::from_secs(300);

/// The result of a call, with Redis's time if the call returns it.
pub(super) enum Value {
    Due(Due, u64),
    Lately(Lately, u64),
    Day(Day, u64),
    Nodes(Vec<NodeInfo>),
}

impl Value {
    /// Redis's time at the call.
    pub(super) fn now_ms(&self) -> Option<u64> {
        match self {
            Self::Due(_, ms) | Self::Lately(_, ms) | Self::Day(_, ms) => Some(*ms),
            Self::Nodes(_) => None,
        }
    }
}

/// The known details of a queue.
#[derive(Debug, Clone, Default)]
pub(crate) struct Known {
    pub(crate) due: Option<Aged<Due>>,
    pub(crate) lately: Option<Aged<Lately>>,
    pub(crate) day: Option<Aged<Day>>,
    pub(crate) nodes: Option<Aged<Vec<NodeInfo>>>,
}

/// A value, and the instant at which it was read.
pub(crate) type Aged<T> = (Arc<T>, Instant);

/// The events of the last 24 hours.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Day {
    pub(crate) cancelled: u64,
    pub(crate) ended: u64,
}

impl Known {
    /// The details without those that are too old.
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
    pub(super) fn add(&mut self, value: Value, now: Instant) {
        match value {
            Value::Due(due, _) => self.due = Some((Arc::new(due), now)),
            Value::Lately(lately, _) => self.lately = Some((Arc::new(lately), now)),
            Value::Day(day, _) => self.day = Some((Arc::new(day), now)),
            Value::Nodes(nodes) => self.nodes = Some((Arc::new(nodes), now)),
        }
    }
}

/// Reads a part of a queue's details. `now_ms` is the estimated time of Redis, `has_schedules` whether
/// its counts have schedules.
pub(super) async fn read(
    client: &Client,
    name: &str,
    part: Part,
    now_ms: u64,
    has_schedules: bool,
) -> Result<Value, Error> {
    let queue = client.queue(name)?;
    Ok(match part {
        Part::Due => {
            let (due, now_ms) = Due::read(&queue, now_ms, has_schedules).await?;
            Value::Due(due, now_ms)
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
