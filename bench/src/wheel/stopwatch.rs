//! Processor time: other work of this machine does not count.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The processor time of this thread since a start.
#[derive(Clone, Copy)]
pub(super) struct Stopwatch(Duration);

impl Stopwatch {
    pub(super) fn start() -> Self {
        Self(now())
    }

    pub(super) fn elapsed(self) -> Duration {
        now().saturating_sub(self.0)
    }
}

fn now() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}
