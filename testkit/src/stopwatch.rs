//! A stopwatch for upper limits in tests.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How often the time is counted.
const STEP: Duration = Duration::from_millis(5);
/// What one step counts at most.
const MOST: Duration = Duration::from_millis(20);

/// Measures how long this process could run. While the machine stands still, or gives this process
/// no processor, it stands still as well, so that no test fails because a machine is slow.
#[derive(Debug, Clone, Copy)]
pub struct Stopwatch(Duration);

impl Stopwatch {
    /// Starts to measure.
    #[must_use]
    pub fn start() -> Self {
        Self(ran())
    }

    /// The time since the start, without standstills.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        ran() - self.0
    }
}

/// How long this process has run since the first call.
fn ran() -> Duration {
    static RAN_US: OnceLock<&'static AtomicU64> = OnceLock::new();
    let ran_us = RAN_US.get_or_init(|| {
        let ran_us: &AtomicU64 = Box::leak(Box::default());
        std::thread::spawn(|| count(ran_us));
        ran_us
    });
    Duration::from_micros(ran_us.load(Ordering::Relaxed))
}

fn count(ran_us: &AtomicU64) {
    let mut last = Instant::now();
    loop {
        std::thread::sleep(STEP);
        let now = Instant::now();
        let step = (now - last).min(MOST);
        last = now;
        // A step has at most 20,000 us.
        ran_us.fetch_add(step.as_micros() as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_time_is_measured_and_never_exceeds_the_real_one() {
        let (real, watch) = (Instant::now(), Stopwatch::start());
        while watch.elapsed() < Duration::from_millis(100) {
            std::thread::sleep(STEP);
        }
        assert!(watch.elapsed() <= real.elapsed() + MOST);
    }
}
