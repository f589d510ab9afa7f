//! How many scheduled messages are due when.

/// How many scheduled messages are due when: see [`Queue::dues`](crate::Queue::dues).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Dues {
    /// One number more than times were given: how many messages are due before the first time, from
    /// each time until before the next one, and at or after the last time.
    pub counts: Vec<u64>,
    /// When the last scheduled message is due, in Unix milliseconds; `None` if none is scheduled.
    pub last_ms: Option<u64>,
    /// The server's clock at the count, in Unix milliseconds. Of several partitions, that of the
    /// first.
    pub now_ms: u64,
}

impl Dues {
    /// Adds those of another partition.
    pub(crate) fn add(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.last_ms = self.last_ms.max(other.last_ms);
    }
}
