//! Which of two replies is the newer one: calls go by several connections, so their replies overtake one another.

use std::time::Instant;

use crate::protocol::replies::Header;

/// The newest reply that was taken in.
#[derive(Default)]
pub(crate) struct NewestReply(Option<Taken>);

struct Taken {
    incarnation: String,
    seq: i64,
    now_us: i64,
    at: Instant,
}

/// What a reply says about the queue, beside the newest one before it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// It is older: what it says of the queue is out of date.
    Stale,
    /// The queue is the same, or there is still none.
    Same,
    /// The queue was made, or this is the first reply.
    Made,
    /// The store was emptied: the queue is gone, or another one has its name.
    Emptied,
}

impl NewestReply {
    /// Takes a reply in at this instant, unless it is older than the newest.
    pub(crate) fn take(&mut self, header: &Header, at: Instant) -> News {
        let news = match &self.0 {
            Some(taken) if taken.is_newer_than(header) => return News::Stale,
            Some(taken) if taken.incarnation == header.incarnation => News::Same,
            Some(taken) if !taken.incarnation.is_empty() => News::Emptied,
            _ => News::Made,
        };
        self.0 = Some(Taken {
            incarnation: header.incarnation.clone(),
            seq: header.seq,
            now_us: header.now_us,
            at,
        });
        news
    }

    /// Whether no queue is known.
    pub(crate) fn has_no_queue(&self) -> bool {
        self.0
            .as_ref()
            .is_none_or(|taken| taken.incarnation.is_empty())
    }
}

impl Taken {
    fn is_newer_than(&self, header: &Header) -> bool {
        // A call that was sent after this reply had come is the newer one, whatever it says: after a failover to a replica that
        // lagged, or on a server whose clock was set back, both numbers begin again below.
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
        }
    }

    #[test]
    fn a_late_reply_of_the_old_queue_is_stale() {
        let (start, mut newest) = (Instant::now(), NewestReply::default());
        assert!(newest.has_no_queue());
        assert_eq!(newest.take(&header(start, "", 0, 1_000), start), News::Made);
        assert!(newest.has_no_queue());
        assert_eq!(
            newest.take(&header(start, "a", 5, 2_000), start + MS),
            News::Made
        );
        assert_eq!(
            newest.take(&header(start + 2 * MS, "b", 1, 9_000), start + 3 * MS),
            News::Emptied
        );
        assert_eq!(
            newest.take(&header(start, "a", 6, 8_999), start + 4 * MS),
            News::Stale
        );
        assert_eq!(
            newest.take(&header(start, "", 0, 8_999), start + 4 * MS),
            News::Stale
        );
        assert_eq!(
            newest.take(&header(start + 4 * MS, "b", 2, 9_001), start + 5 * MS),
            News::Same
        );
        assert_eq!(
            newest.take(&header(start + 6 * MS, "", 0, 9_100), start + 7 * MS),
            News::Emptied
        );
        assert_eq!(
            newest.take(&header(start + 6 * MS, "c", 1, 9_200), start + 7 * MS),
            News::Made
        );
    }

    #[test]
    fn in_one_queue_seq_decides_and_then_the_clock() {
        let (start, mut newest) = (Instant::now(), NewestReply::default());
        newest.take(&header(start, "a", 5, 2_000), start + MS);
        assert_eq!(
            newest.take(&header(start, "a", 4, 3_000), start + MS),
            News::Stale
        );
        assert_eq!(
            newest.take(&header(start, "a", 5, 1_999), start + MS),
            News::Stale
        );
        assert_eq!(
            newest.take(&header(start, "a", 5, 2_001), start + MS),
            News::Same
        );
        assert_eq!(
            newest.take(&header(start, "a", 6, 1_000), start + MS),
            News::Same
        );
    }

    #[test]
    fn a_call_sent_later_is_newer_whatever_it_says() {
        let (start, mut newest) = (Instant::now(), NewestReply::default());
        newest.take(&header(start, "a", 500, 9_000_000), start + MS);
        // A replica that lagged, and whose clock is behind, has taken over.
        assert_eq!(
            newest.take(&header(start + 2 * MS, "a", 400, 8_000_000), start + 3 * MS),
            News::Same
        );
        assert_eq!(
            newest.take(&header(start + 4 * MS, "b", 1, 7_000_000), start + 5 * MS),
            News::Emptied
        );
    }
}
