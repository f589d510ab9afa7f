//! The immutable result of the poller, which every list, stream and scrape reads.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dueq::QueueStats;

use crate::edge::problem::{Code, Problem};
use crate::wire::queues::{Counts, Listed};

/// The greatest age of a complete list of names, if scans are short.
const WHOLE_FOR: Duration = Duration::from_secs(300);

/// The queues and their counts, by the latest answers of Redis.
#[derive(Clone, Default)]
pub(crate) struct Snapshot {
    pub(super) queues: BTreeMap<Arc<str>, Arc<Entry>>,
    /// The instant of Redis's last answer.
    pub(super) answered: Option<Instant>,
    /// The begin of the last scan that found all names.
    pub(super) scanned: Option<Instant>,
    /// The duration of that scan.
    pub(super) scan_took: Duration,
    /// Whether the names were given, so that no scans are needed.
    pub(super) is_given: bool,
    /// Whether there are more queues than are polled.
    pub(super) is_cut: bool,
    /// Whether a viewer should wait for a later snapshot.
    pub(super) is_catching_up: bool,
    /// Why Redis does not answer now; `None` if it does.
    pub(super) failure: Option<Arc<str>>,
}

/// A queue of the snapshot.
#[derive(Clone, Default)]
pub(crate) struct Entry {
    counts: Option<Counted>,
    /// Counts of 10 s before or more, for rates.
    earlier: Option<Counted>,
    gap: Option<Gap>,
}

type Counted = (Arc<QueueStats>, Instant);

/// How many messages a second, lately.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rates {
    pub(crate) pushed: f64,
    pub(crate) acked: f64,
}

/// The time over which a rate is taken: at least, and at most. A longer one is of a pause of the
/// poller.
const LEAST_RATED: Duration = Duration::from_secs(10);
const MOST_RATED: Duration = Duration::from_secs(60);

/// Why a queue, or a part of it, cannot be read, and since when.
#[derive(Clone)]
struct Gap {
    why: Arc<str>,
    since: Instant,
    /// For how long the oldest due message had waited at the last complete answer.
    overdue_ms: u64,
}

impl Entry {
    /// The latest counts, of all partitions that could be read; `None` before the first answer.
    pub(crate) fn stats(&self) -> Option<&QueueStats> {
        self.counts.as_ref().map(|(stats, _)| &**stats)
    }

    /// The age of the counts.
    pub(crate) fn age(&self) -> Option<Duration> {
        self.counts.as_ref().map(|(_, at)| at.elapsed())
    }

    /// Why the queue, or a part of it, cannot be read.
    pub(crate) fn error(&self) -> Option<&str> {
        self.gap.as_ref().map(|gap| &*gap.why)
    }

    /// For how long the oldest due message has waited. The time grows while a part of the queue
    /// cannot be read, because messages that are due there may still be unclaimed.
    pub(crate) fn overdue_ms(&self) -> Option<u64> {
        let read = self.stats().map(|stats| stats.overdue_ms);
        read.max(self.gap.as_ref().map(|gap| {
            let passed = u64::try_from(gap.since.elapsed().as_millis());
            gap.overdue_ms.saturating_add(passed.unwrap_or(u64::MAX))
        }))
    }

    /// Whether both entries have the same content, whatever their age.
    pub(crate) fn says(&self, other: &Self) -> bool {
        self.stats() == other.stats() && self.error() == other.error()
    }

    /// The JSON of the queue for lists and events.
    pub(crate) fn listed(&self, name: &str) -> Listed {
        Listed {
            queue: name.to_owned(),
            counts: self.stats().map(|stats| Counts {
                overdue_ms: self.overdue_ms().unwrap_or_default(),
                ..stats.into()
            }),
            age_ms: self.age().map(ms),
            error: self.error().map(str::to_owned),
        }
    }

    /// The entry after an answer with all counts.
    pub(super) fn next(&self, stats: QueueStats, at: Instant) -> Self {
        let is_due = |(_, since): &&Counted| *since + LEAST_RATED <= at;
        let latest = self.counts.as_ref();
        Self {
            counts: Some((Arc::new(stats), at)),
            earlier: latest
                .filter(is_due)
                .or(self.earlier.as_ref())
                .or(latest)
                .cloned(),
            gap: None,
        }
    }

    /// The rates between the earlier counts and the latest ones; `None` if their distance is not fit.
    pub(crate) fn rates(&self) -> Option<Rates> {
        let ((earlier, since), (latest, at)) = (self.earlier.as_ref()?, self.counts.as_ref()?);
        let apart = at.duration_since(*since);
        let per_second = |count: fn(&QueueStats) -> u64| {
            count(latest).saturating_sub(count(earlier)) as f64 / apart.as_secs_f64()
        };
        (Duration::from_secs(1)..=MOST_RATED)
            .contains(&apart)
            .then(|| Rates {
                pushed: per_second(|stats| stats.pushed),
                acked: per_second(|stats| stats.acked),
            })
    }

    /// The entry after an answer without counts, or with those of only some partitions.
    pub(super) fn unread(&self, stats: Option<QueueStats>, why: &str, at: Instant) -> Self {
        let read = stats.map(|stats| (Arc::new(stats), at));
        let before = || self.stats().map_or(0, |stats| stats.overdue_ms);
        Self {
            counts: read.or_else(|| self.counts.clone()),
            earlier: self.earlier.clone(),
            gap: Some(Gap {
                why: why.into(),
                since: self.gap.as_ref().map_or(at, |gap| gap.since),
                overdue_ms: self.gap.as_ref().map_or_else(before, |gap| gap.overdue_ms),
            }),
        }
    }
}

impl Snapshot {
    pub(crate) fn get(&self, name: &str) -> Option<&Arc<Entry>> {
        self.queues.get(name)
    }

    /// The queues in the order of their names; with `name`, only those after it.
    pub(crate) fn after(&self, name: Option<&str>) -> impl Iterator<Item = (&Arc<str>, &Entry)> {
        let from = name.map_or(Bound::Unbounded, Bound::Excluded);
        let range = self.queues.range::<str, _>((from, Bound::Unbounded));
        range.map(|(name, entry)| (name, &**entry))
    }

    /// The time since Redis's last answer; `None` if it never answered.
    pub(crate) fn age(&self) -> Option<Duration> {
        self.answered.map(|at| at.elapsed())
    }

    /// [`Snapshot::age`] in milliseconds; a problem if Redis has never answered.
    pub(crate) fn known_age_ms(&self) -> Result<u64, Problem> {
        match (self.age(), self.failure()) {
            (Some(age), _) => Ok(ms(age)),
            (None, Some(failure)) => Err(Problem::new(Code::RedisUnavailable, failure)),
            (None, None) => {
                let detail = "Redis has not answered yet; try again";
                Err(Problem::new(Code::RedisUnavailable, detail))
            }
        }
    }

    /// The rates of these queues together; `None` if none is known.
    pub(crate) fn rates(&self, names: &[&str]) -> Option<Rates> {
        let entries = names.iter().filter_map(|name| self.queues.get(*name));
        let rates = entries.filter_map(|entry| entry.rates());
        rates.reduce(|sum, rates| Rates {
            pushed: sum.pushed + rates.pushed,
            acked: sum.acked + rates.acked,
        })
    }

    /// Whether the poller has woken from a pause and not asked every queue yet.
    pub(crate) fn is_catching_up(&self) -> bool {
        self.is_catching_up
    }

    /// The age of the list of names. `None` before the first scan has ended, and if the names were
    /// given.
    pub(crate) fn names_age_ms(&self) -> Option<u64> {
        self.scanned.map(|begun| ms(begun.elapsed()))
    }

    /// Whether the list of names is complete, apart from queues created recently.
    pub(crate) fn is_whole(&self) -> bool {
        // With many keys a scan takes long, because it makes pauses, and the next one takes as long
        // again.
        let limit = WHOLE_FOR + 2 * self.scan_took;
        let is_scanned = self.scanned.is_some_and(|begun| begun.elapsed() <= limit);
        (self.is_given || is_scanned) && !self.is_cut
    }

    /// Why Redis does not answer now; `None` if it does.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
impl Snapshot {
    /// A snapshot with one queue, for tests.
    pub(crate) fn with_queue(name: &str, answered: Instant, asked: Instant, is_away: bool) -> Self {
        let entry = Arc::new(Entry::default().next(QueueStats::default(), asked));
        Self {
            queues: BTreeMap::from([(name.into(), entry)]),
            answered: Some(answered),
            failure: is_away.then(|| "away".into()),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_ten_to_sixty_seconds() {
        let (begin, mut entry) = (Instant::now(), Entry::default());
        let mut rate_after = |seconds: u64, acked: u64| {
            let mut stats = QueueStats::default();
            stats.acked = acked;
            entry = entry.next(stats, begin + Duration::from_secs(seconds));
            entry.rates().map(|rates| rates.acked)
        };
        assert_eq!(rate_after(0, 100), None);
        assert_eq!(rate_after(2, 104), Some(2.0));
        assert_eq!(rate_after(12, 204), Some(10.0));
        // The counts of the second 12 are 10 s old, those of the second 2 are not used any more.
        assert_eq!(rate_after(24, 204), Some(0.0));
        assert_eq!(rate_after(26, 10), Some(0.0), "the queue was created again");
        assert_eq!(rate_after(1_000, 50_000), None, "a pause is no present");
    }
}
