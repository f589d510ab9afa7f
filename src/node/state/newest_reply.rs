//! Decides which of two replies is newer. Calls use several connections, so replies arrive out of
//! order.

use std::time::Instant;

use crate::protocol::replies::Header;

/// The newest reply so far.
#[derive(Default)]
pub(crate) struct NewestReply {
    newest: Option<Newest>,
}

struct Newest {
    incarnation: String,
    seq: i64,
    now_us: i64,
    /// When the reply arrived.
    at: Instant,
}

/// How a reply compares with the newest one before it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The reply is older: its state of the queue is out of date.
    Stale,
    /// The reply is newer, and about the same queue, or there is still no queue.
    SameQueue,
    /// The reply is newer, and the queue was created since, or this is the first reply.
    NewQueue,
    /// The reply is newer, and the queue of the reply before is gone: the store was emptied or
    /// replaced.
    Emptied,
}

impl NewestReply {
    /// Compares a reply that arrived at this instant, and keeps it unless it is older.
    pub(crate) fn compare(&mut self, header: &Header, at: Instant) -> Verdict {
        let verdict = match &self.newest {
            Some(newest) if newest.is_newer_than(header) => return Verdict::Stale,
            Some(newest) if newest.incarnation == header.incarnation => Verdict::SameQueue,
            Some(newest) if !newest.incarnation.is_empty() => Verdict::Emptied,
            _ => Verdict::NewQueue,
        };
        self.newest = Some(Newest {
            incarnation: header.incarnation.clone(),
            seq: header.seq,
            now_us: header.now_us,
            at,
        });
        verdict
    }

    /// Whether the newest reply, if any, found no queue.
    pub(crate) fn has_no_queue(&self) -> bool {
        self.newest
            .as_ref()
            .is_none_or(|newest| newest.incarnation.is_empty())
    }
}

impl Newest {
    fn is_newer_than(&self, header: &Header) -> bool {
        // A call that was sent after the newest reply had arrived has a newer reply, whatever its
        // numbers. After a failover to a lagging replica, or when a clock is set back, both numbers
        // drop.
        if header.sent > self.at {
            return false;
        }
        if header.incarnation == self.incarnation {
            (header.seq, header.now_us) < (self.seq, self.now_us)
        } else {
            header.now_us < self.now_us
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn header(sent: Instant, incarnation: &str, seq: i64, now_us: i64) -> Header {
        Header {
            sent,
            now_us,
            incarnation: incarnation.into(),
            seq,
            head_ms: None,
            lease_deadline_ms: None,
            paused: false,
            epoch: None,
        }
    }

    #[test]
    fn a_late_reply_of_the_old_queue_is_stale() {
        let start = Instant::now();
        let mut newest = NewestReply::default();
        assert!(newest.has_no_queue());
        // Each row: when the call was sent, its reply, when that arrived, and the verdict.
        let replies = [
            (0, "", 0, 1_000, 0, Verdict::NewQueue),
            (0, "a", 5, 2_000, 1, Verdict::NewQueue),
            (2, "b", 1, 9_000, 3, Verdict::Emptied),
            (0, "a", 6, 8_999, 4, Verdict::Stale),
            (0, "", 0, 8_999, 4, Verdict::Stale),
            (4, "b", 2, 9_001, 5, Verdict::SameQueue),
            (6, "", 0, 9_100, 7, Verdict::Emptied),
            (6, "c", 1, 9_200, 7, Verdict::NewQueue),
        ];
        for (sent, incarnation, seq, now_us, at, verdict) in replies {
            let header = header(start + sent * MS, incarnation, seq, now_us);
            let found = newest.compare(&header, start + at * MS);
            assert_eq!(found, verdict, "{incarnation} {seq} {now_us}");
            let no_queue = incarnation.is_empty() && verdict != Verdict::Stale;
            assert_eq!(newest.has_no_queue(), no_queue, "{incarnation} {seq}");
        }
    }

    #[test]
    fn replies_of_one_queue_are_ordered_by_seq_before_clock() {
        let start = Instant::now();
        let mut newest = NewestReply::default();
        newest.compare(&header(start, "a", 5, 2_000), start + MS);
        for (seq, now_us, verdict) in [
            (4, 3_000, Verdict::Stale),
            (5, 1_999, Verdict::Stale),
            (5, 2_001, Verdict::SameQueue),
            (6, 1_000, Verdict::SameQueue),
        ] {
            let found = newest.compare(&header(start, "a", seq, now_us), start + MS);
            assert_eq!(found, verdict, "{seq} {now_us}");
        }
    }

    #[test]
    fn a_call_sent_later_is_newer_whatever_its_numbers() {
        let start = Instant::now();
        let mut newest = NewestReply::default();
        newest.compare(&header(start, "a", 500, 9_000_000), start + MS);
        // A lagging replica with a slower clock has become the master.
        let after_failover = header(start + 2 * MS, "a", 400, 8_000_000);
        assert_eq!(
            newest.compare(&after_failover, start + 3 * MS),
            Verdict::SameQueue
        );
        let replaced = header(start + 4 * MS, "b", 1, 7_000_000);
        assert_eq!(newest.compare(&replaced, start + 5 * MS), Verdict::Emptied);
    }
}
