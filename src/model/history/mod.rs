//! What a queue has done in each minute, hour and day, computed from records of its counters.

pub(crate) mod times;

use std::collections::BTreeMap;

pub use times::TimeHistogram;

/// The length of the slots of a [history](crate::Queue::history), by Redis's clock in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HistoryResolution {
    /// The last 60 minutes.
    Minutes,
    /// The last 168 hours: a week.
    Hours,
    /// The last 90 days.
    Days,
}

impl HistoryResolution {
    /// The length of a slot in milliseconds.
    pub fn slot_ms(self) -> u64 {
        match self {
            Self::Minutes => 60_000,
            Self::Hours => 3_600_000,
            Self::Days => 86_400_000,
        }
    }

    /// The name of the range in the protocol.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Minutes => "minutes",
            Self::Hours => "hours",
            Self::Days => "days",
        }
    }
}

/// What a queue has done, in each slot of time. See [`Queue::history`](crate::Queue::history).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueHistory {
    /// The length of the slots.
    pub resolution: HistoryResolution,
    /// Redis's clock at the call, in Unix milliseconds. This moment is within the present slot.
    pub now_ms: u64,
    /// The slots in which something happened, in order of time. The last one may be the present
    /// slot, which is not over.
    pub points: Vec<HistoryPoint>,
}

impl QueueHistory {
    /// Adds up all points that begin in this range of Unix milliseconds; `None` if there are none.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use dueq::inspect::HistoryResolution;
    ///
    /// let days = orders.history(HistoryResolution::Days).await?;
    /// if let Some(all) = days.sum(0..u64::MAX) {
    ///     println!("{} pushed, {} died", all.pushed, all.died);
    /// }
    /// # });
    /// ```
    pub fn sum(&self, range_ms: std::ops::Range<u64>) -> Option<HistoryPoint> {
        let mut points = self.points.iter();
        points
            .by_ref()
            .find(|point| range_ms.contains(&point.start_ms))
            .map(|first| {
                let mut sum = first.clone();
                for point in points.filter(|point| range_ms.contains(&point.start_ms)) {
                    sum.add(point);
                }
                sum
            })
    }
}

/// Defines the counters of a point and of a record, in the order in which records have them.
macro_rules! points {
    ($($(#[doc = $help:literal])+ $counter:ident,)+) => {
        /// What happened in one minute, hour or day, or in several of them.
        #[derive(Debug, Clone, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct HistoryPoint {
            /// When the slot begins, in Unix milliseconds of Redis's clock.
            pub start_ms: u64,
            /// When the slot ends; for the present slot, the time of the call.
            pub end_ms: u64,
            $($(#[doc = $help])+ pub $counter: u64,)+
            /// Messages that waited for their time at the end of the slot, or at the last report
            /// of a node in it.
            pub scheduled: u64,
            /// Messages that were ready at the time of `scheduled`.
            pub ready: u64,
            /// Messages that had a handler at the time of `scheduled`.
            pub leased: u64,
            /// Messages that were dead at the time of `scheduled`.
            pub dead: u64,
            /// The time from the due time to the start of the handler, for each message that a
            /// worker took.
            pub lateness: TimeHistogram,
            /// How long handlers ran.
            pub handling: TimeHistogram,
        }

        impl HistoryPoint {
            /// Adds a later point: counts and times add up, and the numbers of messages are
            /// replaced by the later ones.
            pub fn add(&mut self, later: &Self) {
                self.end_ms = self.end_ms.max(later.end_ms);
                $(self.$counter = self.$counter.saturating_add(later.$counter);)+
                (self.scheduled, self.ready) = (later.scheduled, later.ready);
                (self.leased, self.dead) = (later.leased, later.dead);
                self.lateness.add(&later.lateness);
                self.handling.add(&later.handling);
            }

            /// The counts by name, always in the same order. Later releases may add some.
            ///
            /// ```
            /// let counts = dueq::inspect::HistoryPoint::default().counts();
            /// assert!(counts.contains(&("pushed", 0)));
            /// ```
            pub fn counts(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($counter), self.$counter)),+]
            }

            /// Adds the counts between two records of the queue.
            fn add_counted(&mut self, counted: &Counted) {
                let mut counters = counted.counters.iter();
                $(self.$counter = self.$counter.saturating_add(counters.next().copied().unwrap_or(0));)+
                self.lateness.add(&counted.lateness);
                self.handling.add(&counted.handling);
            }
        }

        /// How many counters a record has.
        pub(crate) const COUNTERS: usize = [$(stringify!($counter)),+].len();
    };
}

points! {
    /// Messages pushed.
    pushed,
    /// Deliveries made.
    claimed,
    /// Deliveries acked.
    acked,
    /// Deliveries settled with `again`.
    repeated,
    /// Deliveries settled with `retry` that were scheduled again.
    retried,
    /// Deliveries released.
    released,
    /// Leases that expired.
    crashed,
    /// Messages that died.
    died,
    /// Messages cancelled.
    cancelled,
    /// Dead messages revived.
    requeued,
    /// Messages purged.
    purged,
    /// Dead messages trimmed by age or number.
    trimmed,
    /// Messages that expired.
    expired,
    /// Deliveries settled with `throttle`.
    throttled,
    /// Deliveries settled with `snooze` that were scheduled again.
    snoozed,
}

impl HistoryPoint {
    /// Converts a count of this point into a rate per second. For the present slot only the time
    /// that has passed counts.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use dueq::inspect::HistoryResolution;
    ///
    /// for point in orders.history(HistoryResolution::Hours).await?.points {
    ///     println!("{} pushes a second", point.per_second(point.pushed));
    /// }
    /// # });
    /// ```
    pub fn per_second(&self, count: u64) -> f64 {
        let ms = self.end_ms.saturating_sub(self.start_ms).max(1);
        count as f64 * 1_000.0 / ms as f64
    }
}

/// The counters of a partition: since its creation, or between two records.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) counters: [u64; COUNTERS],
    pub(crate) lateness: TimeHistogram,
    pub(crate) handling: TimeHistogram,
}

/// The counters and states of a partition at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) at_ms: u64,
    pub(crate) counted: Counted,
    /// The numbers of scheduled, ready, leased and dead messages.
    pub(crate) states: [u64; 4],
}

impl Counted {
    /// The counts between the record `earlier` and this one. After a failover a count may be
    /// smaller than before; then the difference is 0.
    fn since(&self, earlier: &Self) -> Self {
        let pairs = self.counters.iter().zip(&earlier.counters);
        let mut counters = [0; COUNTERS];
        for (rest, (now, then)) in counters.iter_mut().zip(pairs) {
            *rest = now.saturating_sub(*then);
        }
        Self {
            counters,
            lateness: self.lateness.since(&earlier.lateness),
            handling: self.handling.since(&earlier.handling),
        }
    }
}

/// The points of a queue from the records of its partitions. Each partition's records are in order
/// of time.
pub(crate) fn points(
    resolution: HistoryResolution,
    now_ms: u64,
    partitions: &[Vec<Record>],
) -> Vec<HistoryPoint> {
    let slot_ms = resolution.slot_ms();
    let mut points: BTreeMap<u64, HistoryPoint> = BTreeMap::new();
    for pair in partitions.iter().flat_map(|records| records.windows(2)) {
        let [before, after] = pair else { continue };
        let counted = after.counted.since(&before.counted);
        if counted != Counted::default() {
            let slot = after.at_ms / slot_ms;
            points.entry(slot).or_default().add_counted(&counted);
        }
    }
    for (slot, point) in &mut points {
        point.start_ms = slot * slot_ms;
        let slot_end = point.start_ms.saturating_add(slot_ms);
        point.end_ms = slot_end.min(now_ms.max(point.start_ms));
        for records in partitions {
            // A partition without a record in this slot has not changed since its record before.
            let known = records
                .iter()
                .rfind(|record| record.at_ms / slot_ms <= *slot);
            let [scheduled, ready, leased, dead] = known.map_or([0; 4], |record| record.states);
            point.scheduled = point.scheduled.saturating_add(scheduled);
            point.ready = point.ready.saturating_add(ready);
            point.leased = point.leased.saturating_add(leased);
            point.dead = point.dead.saturating_add(dead);
        }
    }
    points.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(at_ms: u64, pushed: u64, scheduled: u64, lateness: &str) -> Record {
        let mut counters = [0; COUNTERS];
        counters[0] = pushed;
        counters[COUNTERS - 1] = 2 * pushed;
        Record {
            at_ms,
            counted: Counted {
                counters,
                lateness: TimeHistogram::parse(lateness).expect("a histogram"),
                handling: TimeHistogram::default(),
            },
            states: [scheduled, 0, 0, 3],
        }
    }

    #[test]
    fn points_are_differences_in_the_slot_of_the_later_record() {
        let records = vec![
            record(59_999, 10, 1, "2 1"),
            record(119_000, 13, 2, "2 5"),
            // Nothing was counted between these records.
            record(125_000, 13, 9, "2 5"),
            record(600_000, 14, 4, "2 5 1"),
        ];
        let points = points(HistoryResolution::Minutes, 615_000, &[records]);
        let shown: Vec<_> = points
            .iter()
            .map(|point| (point.start_ms, point.end_ms, point.pushed, point.scheduled))
            .collect();
        assert_eq!(shown, [(60_000, 120_000, 3, 2), (600_000, 615_000, 1, 4)]);
        assert_eq!(points[0].snoozed, 6, "the last counter");
        assert_eq!(points[0].lateness.count(), 4);
        assert_eq!(points[0].per_second(points[0].pushed), 0.05);
        assert_eq!(points[1].per_second(30), 2.0);
    }

    #[test]
    fn partitions_add_up_and_a_quiet_one_keeps_its_messages() {
        let busy = vec![record(0, 0, 0, ""), record(3_600_000, 5, 7, "0 5")];
        let quiet = vec![record(0, 2, 100, ""), record(7_200_000, 2, 100, "")];
        let late = vec![record(3_600_001, 9, 50, ""), record(7_200_000, 10, 60, "")];
        let points = points(HistoryResolution::Hours, 7_200_000, &[busy, quiet, late]);
        let shown: Vec<_> = points
            .iter()
            .map(|point| (point.start_ms, point.pushed, point.scheduled, point.dead))
            .collect();
        assert_eq!(shown, [(3_600_000, 5, 157, 9), (7_200_000, 1, 167, 9)]);
    }

    #[test]
    fn counters_that_a_failover_undid_count_as_zero() {
        let records = vec![record(0, 10, 0, "0 9"), record(60_000, 7, 0, "0 5")];
        assert_eq!(points(HistoryResolution::Minutes, 60_000, &[records]), []);
    }

    #[test]
    fn a_sum_has_the_points_that_begin_in_its_range() {
        let records = vec![
            record(0, 0, 0, ""),
            record(60_000, 1, 5, "0 1"),
            record(120_000, 3, 6, "0 3"),
            record(180_000, 7, 8, "0 7"),
        ];
        let history = QueueHistory {
            resolution: HistoryResolution::Minutes,
            now_ms: 200_000,
            points: points(HistoryResolution::Minutes, 200_000, &[records]),
        };
        let sum = history.sum(60_000..180_000).expect("two points");
        assert_eq!((sum.start_ms, sum.end_ms), (60_000, 180_000));
        assert_eq!((sum.pushed, sum.scheduled), (3, 6));
        assert_eq!(sum.lateness.count(), 3);
        assert_eq!(history.sum(1..2), None);
    }
}
