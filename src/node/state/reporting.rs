//! Decides which beats of a node carry a report for the history. Pure.

use std::time::{Duration, Instant};

/// The shortest time between two reports of one partition, because a beat with a report costs Redis
/// more.
pub(crate) const REPORT_INTERVAL: Duration = Duration::from_secs(5);

/// The shortest time between two beats that tell of the process: every fourth beat, because such a
/// beat costs Redis an eighth more.
const TELL_INTERVAL: Duration = Duration::from_millis(3_500);

/// What a node has reported about one partition.
#[derive(Default)]
pub(crate) struct Reporting {
    last: Option<Instant>,
    /// The number of changes of the queue at the last report. `None` before the first report, or
    /// after a failed beat.
    reported: Option<i64>,
    /// The number of changes of the queue at the last reply.
    seen: i64,
    /// When a beat last told of the process.
    told: Option<Instant>,
}

impl Reporting {
    /// Records the number of changes of the queue in a reply.
    pub(crate) fn saw(&mut self, seq: i64) {
        self.seen = seq;
    }

    /// Whether a beat that is sent now has a report. `has_times` says that handlers of this node
    /// took messages. The leader also reports changes that others made, so that a history has the
    /// pushes of a queue whose messages are due much later.
    pub(crate) fn is_due(&mut self, has_times: bool, is_leader: bool, now: Instant) -> bool {
        let rests = |last| now.saturating_duration_since(last) < REPORT_INTERVAL;
        let is_changed = is_leader && self.reported != Some(self.seen);
        if self.last.is_some_and(rests) || !has_times && !is_changed {
            return false;
        }
        self.last = Some(now);
        self.reported = Some(self.seen);
        true
    }

    /// Whether a beat that is sent now tells of the process.
    pub(crate) fn tells(&mut self, now: Instant) -> bool {
        let rests = |told| now.saturating_duration_since(told) < TELL_INTERVAL;
        let tells = !self.told.is_some_and(rests);
        if tells {
            self.told = Some(now);
        }
        tells
    }

    /// Records that a beat failed, whose report may not have arrived. The next report contains the
    /// changes again.
    pub(crate) fn failed(&mut self) {
        (self.reported, self.told) = (None, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_is_told_first_every_4_s_and_after_a_failure() {
        let (mut reporting, start) = (Reporting::default(), Instant::now());
        let tells =
            |reporting: &mut Reporting, ms| reporting.tells(start + Duration::from_millis(ms));
        let told: Vec<_> = (0..6).map(|n| tells(&mut reporting, n * 900)).collect();
        assert_eq!(told, [true, false, false, false, true, false]);
        reporting.failed();
        assert!(tells(&mut reporting, 5_400));
    }

    #[test]
    fn a_leader_reports_changes_at_most_every_5_s() {
        let (mut reporting, start) = (Reporting::default(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        assert!(!reporting.is_due(false, false, at(0)), "a standby");
        reporting.saw(7);
        assert!(reporting.is_due(false, true, at(0)), "its first report");
        assert!(!reporting.is_due(false, true, at(6_000)), "no change");
        reporting.saw(8);
        assert!(!reporting.is_due(false, false, at(6_000)), "a standby");
        assert!(reporting.is_due(false, true, at(6_000)));
        reporting.saw(9);
        assert!(!reporting.is_due(false, true, at(10_999)), "too early");
        assert!(reporting.is_due(false, true, at(11_000)));
    }

    #[test]
    fn every_node_reports_times_and_a_failed_report_is_repeated() {
        let (mut reporting, start) = (Reporting::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(reporting.is_due(true, false, at(0)));
        assert!(!reporting.is_due(true, false, at(4)));
        assert!(reporting.is_due(true, true, at(5)));
        assert!(!reporting.is_due(false, true, at(10)));
        reporting.failed();
        assert!(reporting.is_due(false, true, at(10)));
    }
}
