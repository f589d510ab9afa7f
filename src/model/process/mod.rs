//! What a worker tells with its beats of the process that it runs in, and workers by process.

pub(crate) mod workers;

/// The process of a worker, as the worker told it with a beat: see
/// [`NodeInfo::process`](crate::inspect::NodeInfo::process). A worker tells it about every 4 s, and
/// of a parked queue with each beat.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct ProcessInfo {
    /// The name of its host.
    pub host: String,
    /// Its process id on that host.
    pub pid: u32,
    /// The program, and its version if [`name_program`](crate::inspect::name_program) told it.
    pub program: String,
    /// When the worker started, in Unix milliseconds, by the server's clock.
    pub started_ms: u64,
    /// How many handlers of the worker may run at once. 0 for a worker that only serves pulls.
    pub concurrency: usize,
    /// How many handlers of the worker ran. They may be of any of its queues.
    pub running: usize,
    /// When the worker told this, in Unix milliseconds, by the server's clock.
    pub told_ms: u64,
}

impl ProcessInfo {
    /// Reads what META keeps of a beat: `<ms> @<up ms> <pid> <concurrency> <running> <host> <program>`.
    /// `None` if another client told something else.
    pub(crate) fn parse(kept: &str) -> Option<Self> {
        let (told_ms, text) = kept.split_once(" @")?;
        let told_ms: u64 = told_ms.parse().ok()?;
        let mut words = text.splitn(6, ' ');
        let up_ms: u64 = words.next()?.parse().ok()?;
        Some(Self {
            pid: words.next()?.parse().ok()?,
            concurrency: words.next()?.parse().ok()?,
            running: words.next()?.parse().ok()?,
            host: words.next()?.to_owned(),
            program: words.next()?.to_owned(),
            started_ms: told_ms.saturating_sub(up_ms),
            told_ms,
        })
    }

    /// Adds what another worker of the process told.
    pub(crate) fn with(self, other: Self) -> Self {
        let (newest, older) = if self.told_ms < other.told_ms {
            (other, self)
        } else {
            (self, other)
        };
        Self {
            started_ms: newest.started_ms.min(older.started_ms),
            concurrency: newest.concurrency.saturating_add(older.concurrency),
            running: newest.running.saturating_add(older.running),
            ..newest
        }
    }
}

/// What [`Queue::drain_nodes`](crate::Queue::drain_nodes) or
/// [`Queue::resume_nodes`](crate::Queue::resume_nodes) did for a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[must_use = "after `Gone` and `Full` nothing was changed"]
pub enum DrainOutcome {
    /// It is as asked, perhaps since an earlier call.
    Done,
    /// The queue has no live node with this id.
    Gone,
    /// 100 other nodes of the queue are drained already.
    Full,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_beat_told_is_read() {
        let read = ProcessInfo::parse("5000 @1000 7 64 3 host shop 1.4");
        let read = read.expect("a process");
        assert_eq!((read.started_ms, read.told_ms, read.pid), (4_000, 5_000, 7));
        assert_eq!((read.concurrency, read.running), (64, 3));
        assert_eq!(
            (read.host.as_str(), read.program.as_str()),
            ("host", "shop 1.4")
        );
    }

    #[test]
    fn other_texts_tell_no_process() {
        for kept in [
            "",
            "5",
            "5 @",
            "5 @1 2 3 4",
            "5 @1 2 3 4 host",
            "x @1 2 3 4 h p",
        ] {
            assert_eq!(ProcessInfo::parse(kept), None, "{kept}");
        }
    }
}
