//! For how long the oldest due message of a queue may have waited, as far as replies tell. Pure.

use std::time::{Duration, Instant};

/// A lower bound of the due time of the oldest waiting message: it became due at this instant or
/// later.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OldestDue {
    /// The bound; `None` while no message is known to wait.
    since: Option<Instant>,
    /// When a reply last reported that no message waits; `None` if none has.
    empty_at: Option<Instant>,
}

impl OldestDue {
    pub(crate) fn new() -> Self {
        Self {
            since: None,
            empty_at: None,
        }
    }

    /// Records a reply with a message that was due at this instant.
    pub(crate) fn due_since(&mut self, due: Instant) {
        self.since = Some(self.since.map_or(due, |since| since.min(due)));
    }

    /// Records a reply that messages wait, without a due time: they became due after the last reply
    /// that reported none.
    pub(crate) fn some_wait(&mut self, now: Instant) {
        if self.since.is_none() {
            // Before the first reply, a message may have waited for any time.
            self.since = self
                .empty_at
                .or(now.checked_sub(Duration::from_secs(86_400)));
        }
    }

    /// Records a claim that took messages up to one due at `last`, and left others. The others
    /// became due no earlier, because claims take messages in the order of their due times.
    pub(crate) fn taken_until(&mut self, last: Option<Instant>) {
        if last.is_some() {
            self.since = last;
        }
    }

    /// Records that a call sent at `sent` found no waiting message.
    pub(crate) fn none_waits(&mut self, sent: Instant) {
        self.since = None;
        self.empty_at = Some(sent);
    }

    /// For how long the oldest message may have waited.
    pub(crate) fn waited(&self, now: Instant) -> Duration {
        self.since
            .map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn bound_of_the_oldest_message_follows_claims_and_replies() {
        let start = Instant::now();
        let mut oldest = OldestDue::new();
        assert_eq!(oldest.waited(start), Duration::ZERO);
        oldest.some_wait(start);
        assert!(oldest.waited(start) > 3_600 * S, "for an unknown time");
        oldest.taken_until(Some(start));
        assert_eq!(oldest.waited(start + S), S);
        oldest.none_waits(start + 2 * S);
        assert_eq!(oldest.waited(start + 3 * S), Duration::ZERO);
        oldest.some_wait(start + 5 * S);
        assert_eq!(oldest.waited(start + 5 * S), 3 * S, "since the last claim");
        oldest.due_since(start + 4 * S);
        assert_eq!(
            oldest.waited(start + 5 * S),
            3 * S,
            "a later one changes nothing"
        );
    }
}
