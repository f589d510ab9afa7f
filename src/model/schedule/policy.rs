//! What becomes of fires that were missed, and of ticks that overlap.

use std::fmt;

/// What happens to fires that no worker took at once: Redis or all workers were away, the queue was
/// paused, or older messages waited before them.
///
/// [`ScheduleInfo::missed`](crate::ScheduleInfo::missed) counts the fires that are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Missed {
    /// The newest makes a tick, however late.
    #[default]
    One,
    /// The newest makes a tick if it is at most 10 s late, or as late as
    /// [`within`](crate::Schedule::within) says.
    Skip,
    /// Each makes a tick, the oldest first: those of the last 24 h, or as
    /// [`within`](crate::Schedule::within) says, and of them the newest `max`.
    All {
        /// 1 to 100,000; 1,000 is a good number.
        max: u64,
    },
}

/// What becomes of a fire while an earlier tick of the schedule waits or is with a handler. Dead
/// ticks do not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Overlap {
    /// It makes a tick: several ticks of the schedule may run at the same time.
    #[default]
    Allow,
    /// It makes none. [`ScheduleInfo::overlapped`](crate::ScheduleInfo::overlapped) counts it.
    Skip,
    /// It makes a tick, and the earlier ones that wait are removed. One that a handler has goes on.
    Replace,
}

impl fmt::Display for Missed {
    /// As the program's files name it: `one`, `skip` or `all`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::One => "one",
            Self::Skip => "skip",
            Self::All { .. } => "all",
        })
    }
}

impl fmt::Display for Overlap {
    /// As the program's files name it: `allow`, `skip` or `replace`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Allow => "allow",
            Self::Skip => "skip",
            Self::Replace => "replace",
        })
    }
}
