//! The lateness and run times of messages that one node's handlers took, counted until a beat
//! reports them.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::model::history::times::{BUCKETS, TimeHistogram, bucket_of};

/// Counts times until they are reported. Memory is allocated with the first time, because a node
/// may attend thousands of quiet partitions.
#[derive(Default)]
pub(super) struct Reports(OnceLock<Box<Counts>>);

/// The counts of lateness and of run times.
type Counts = [[AtomicU32; BUCKETS]; 2];

/// The counts that a beat reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Report([[u64; BUCKETS]; 2]);

impl Reports {
    pub(super) fn late(&self, lateness: Duration) {
        self.count(0, lateness);
    }

    pub(super) fn handled(&self, took: Duration) {
        self.count(1, took);
    }

    fn count(&self, which: usize, time: Duration) {
        let us = u64::try_from(time.as_nanos().div_ceil(1_000)).unwrap_or(u64::MAX);
        self.counts()[which][bucket_of(us)].fetch_add(1, Ordering::Relaxed);
    }

    /// Whether any time was counted since the last report.
    pub(super) fn has_times(&self) -> bool {
        let counts = self
            .0
            .get()
            .into_iter()
            .flat_map(|counts| counts.iter().flatten());
        { counts }.any(|count| count.load(Ordering::Relaxed) > 0)
    }

    /// Takes the counts since the last report.
    pub(super) fn take(&self) -> Report {
        let mut report = Report([[0; BUCKETS]; 2]);
        if let Some(counts) = self.0.get() {
            for (taken, count) in report.0.iter_mut().flatten().zip(counts.iter().flatten()) {
                *taken = count.swap(0, Ordering::Relaxed).into();
            }
        }
        report
    }

    /// Adds the counts of a report again that did not reach Redis.
    pub(super) fn give_back(&self, report: &Report) {
        for (count, taken) in self
            .counts()
            .iter()
            .flatten()
            .zip(report.0.iter().flatten())
        {
            let taken = u32::try_from(*taken).unwrap_or(u32::MAX);
            count.fetch_add(taken, Ordering::Relaxed);
        }
    }

    fn counts(&self) -> &Counts {
        let zeros = || std::array::from_fn(|_| std::array::from_fn(|_| AtomicU32::new(0)));
        self.0.get_or_init(|| Box::new(zeros()))
    }
}

impl Report {
    /// Encodes the report as the argument of a beat.
    pub(super) fn text(&self) -> String {
        let [lateness, handling] = self.0.each_ref().map(TimeHistogram::text);
        format!("{lateness}|{handling}")
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::partition::{Partition, Presence};
    use crate::server::fake::{Fake, usual};
    use crate::server::servers::Servers;

    #[test]
    fn a_report_has_what_was_counted_since_the_last_one() {
        let reports = Reports::default();
        assert!(!reports.has_times());
        assert_eq!(reports.take().text(), "|");
        reports.late(Duration::from_micros(128));
        reports.late(Duration::from_nanos(128_001));
        reports.handled(Duration::MAX);
        assert!(reports.has_times());
        let first = reports.take();
        assert_eq!(first.text(), "0 1 1|67 1");
        assert!(!reports.has_times());
        reports.late(Duration::from_micros(1));
        reports.give_back(&first);
        assert_eq!(reports.take().text(), "0 2 1|67 1", "with those given back");
    }

    #[tokio::test]
    async fn a_report_is_repeated_only_if_redis_has_not_counted_it() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let record = Arc::clone(&seen);
        let server = Fake::start(move |_, words| {
            let answer = if words[0] == "EVALSHA" {
                let mut seen = record.lock().expect("no panic");
                seen.push(words.last().cloned().unwrap_or_default());
                Some(match seen.len() {
                    1 => "-LAYOUT of a later release\r\n".to_owned(),
                    2 => "-ERR it broke script: 0123, on @user_script:9.\r\n".to_owned(),
                    _ => "*0\r\n".to_owned(),
                })
            } else {
                usual(&words)
            };
            ready(answer)
        })
        .await;
        let url = format!("redis://127.0.0.1:{}/", server.port);
        let partition = Partition::only("orders", &Servers::at(&url)).expect("a name");
        partition.late(Duration::from_micros(1));
        for (expected, left) in [("0 1|", true), ("0 1|", false), ("|", false)] {
            let reply = partition.beat("node", Presence::Leave, None, true).await;
            assert!(reply.is_err());
            let seen = seen.lock().expect("no panic");
            assert_eq!(seen.last().map(String::as_str), Some(expected));
            assert_eq!(partition.has_times(), left, "after {expected}");
        }
    }
}
