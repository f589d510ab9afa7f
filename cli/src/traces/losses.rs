//! Counts spans that were lost, and warns about them once a minute and at the end.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The time between two warnings.
const PERIOD: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct Losses {
    /// The spans that were lost since the last warning.
    spans: AtomicU64,
    state: Mutex<Warnings>,
}

#[derive(Debug, Default)]
struct Warnings {
    /// Why the last export failed.
    reason: Option<String>,
    last: Option<Instant>,
}

impl Losses {
    pub(super) fn add(&self, spans: u64) {
        self.spans.fetch_add(spans, Ordering::Relaxed);
    }

    /// Keeps the reason for the next warning.
    pub(super) fn because(&self, reason: String) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.reason = Some(reason);
    }

    /// Warns if spans were lost and the last warning is a minute ago.
    pub(super) fn report(&self) {
        self.warn(PERIOD);
    }

    /// Warns of all losses that no warning has counted: no later warning will.
    pub(super) fn report_rest(&self) {
        self.warn(Duration::ZERO);
    }

    /// Warns that the end of the program does not wait for the last spans.
    pub(super) fn at_the_end(&self) {
        self.report_rest();
        tracing::warn!(
            name: "dueq.traces_lost", target: "dueq",
            "the collector did not take the last spans in time: they are lost"
        );
    }

    fn warn(&self, period: Duration) {
        let Some((spans, reason)) = self.due(Instant::now(), period) else {
            return;
        };
        let error = reason
            .as_deref()
            .unwrap_or("they come faster than the collector takes them");
        tracing::warn!(name: "dueq.traces_lost", target: "dueq", spans, error, "spans were lost");
    }

    fn due(&self, now: Instant, period: Duration) -> Option<(u64, Option<String>)> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_early = state
            .last
            .is_some_and(|last| now.duration_since(last) < period);
        if is_early || self.spans.load(Ordering::Relaxed) == 0 {
            return None;
        }
        state.last = Some(now);
        Some((self.spans.swap(0, Ordering::Relaxed), state.reason.take()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_reported_once_a_minute_with_their_number() {
        let (losses, start) = (Losses::default(), Instant::now());
        assert_eq!(losses.due(start, PERIOD), None, "nothing is lost");
        let mut reported = Vec::new();
        for second in 0..130 {
            losses.add(10);
            losses.because(format!("reason {second}"));
            reported.extend(losses.due(start + Duration::from_secs(second), PERIOD));
        }
        let reason = |second: u64| Some(format!("reason {second}"));
        assert_eq!(
            reported,
            [(10, reason(0)), (600, reason(60)), (600, reason(120))]
        );
        let rest = losses.due(start + Duration::from_secs(130), Duration::ZERO);
        assert_eq!(rest, Some((90, reason(129))), "the end waits for no minute");
    }
}
