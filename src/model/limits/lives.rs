//! Whether a queue keeps the lives of its messages.

use std::time::Duration;

use super::QueueLimits;
use crate::model::due::ceil_ms;
use crate::model::stats::QueueStats;

impl QueueLimits {
    /// Lets the queue keep the life of each message: who pushed it and when, each attempt with its
    /// worker, start and error, and what operators did. It is kept until the message ends, and for
    /// this time after that: 0 to 100 years. Off unless set.
    ///
    /// [`StoredMessage::life`](crate::StoredMessage::life) has the last 20 events of a message, and
    /// [`Queue::life_of`](crate::Queue::life_of) those of one that has ended. A life takes about 110
    /// bytes of Redis's memory, and about 90 more for each attempt, and one that is kept after its
    /// end about 270; a push, claim and ack cost Redis about 28 % more instructions. Lives of ended messages are kept while they are fewer than half of
    /// [`max_remembered`](QueueLimits::max_remembered).
    ///
    /// It raises the queue to layout 5, which cannot be undone: releases before 0.2 and clients that
    /// do not know it refuse such a queue.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use dueq::QueueLimits;
    /// use std::time::Duration;
    ///
    /// orders.configure(QueueLimits::new().keep_life_for(Duration::from_secs(3_600))).await?;
    /// orders.push("rate it").id("order:42").await?;
    /// for delivery in orders.claim(1, Duration::from_secs(30)).await? {
    ///     delivery.ack().await?;
    /// }
    /// let life = orders.life_of("order:42").await?;
    /// let what: Vec<&str> = life.iter().map(|event| event.what.as_str()).collect();
    /// assert_eq!(what, ["push", "ack"]);
    /// # });
    /// ```
    #[must_use]
    pub fn keep_life_for(self, time: Duration) -> Self {
        self.with("life_keep_ms", ceil_ms(time).to_string())
    }

    /// Lets the queue keep no lives any more. What it has of a message goes with the message.
    #[must_use]
    pub fn keep_no_life(self) -> Self {
        self.with("life_keep_ms", String::new())
    }

    /// Keeps lives as the queue with these stats does.
    pub(super) fn keep_life_as(self, stats: &QueueStats) -> Self {
        match stats.keep_life_ms {
            None => self.keep_no_life(),
            Some(ms) => self.keep_life_for(Duration::from_millis(ms)),
        }
    }
}
