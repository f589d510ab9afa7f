//! Progress for the user: a bar on a terminal, on standard error.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use dueq::Queue;
use indicatif::{ProgressBar, ProgressStyle};

use crate::input::day;
use crate::replay::Tally;
use crate::schedule::Schedule;

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Draws nothing if standard error is not a terminal.
    pub(crate) fn new() -> Self {
        let style = ProgressStyle::with_template("{bar:40} {percent:>3} %  {msg}");
        Self {
            bar: ProgressBar::new(0)
                .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar())),
        }
    }

    pub(crate) fn say(&self, line: &str) {
        self.bar.suspend(|| eprintln!("{line}"));
    }

    /// Follows the replay from its start to `end`, for ever.
    pub(crate) async fn follow(
        &self,
        schedule: Schedule,
        end: Instant,
        tally: &Tally,
        queue: &Queue,
    ) {
        if self.bar.is_hidden() {
            return std::future::pending().await;
        }
        let total = end.saturating_duration_since(schedule.start());
        self.bar
            .set_length(u64::try_from(total.as_millis()).unwrap_or(u64::MAX));
        loop {
            let passed = schedule.start().elapsed().min(total);
            self.bar
                .set_position(u64::try_from(passed.as_millis()).unwrap_or(u64::MAX));
            // This is only display; the replay reports errors.
            let rated = queue.stats().await.map_or(0, |stats| stats.acked);
            let [delivered, cancelled] = [&tally.delivered, &tally.cancelled_in_time]
                .map(|number| number.load(Ordering::Relaxed));
            let day = day(schedule.time_s(Instant::now()));
            self.bar.set_message(format!(
                "{day}  {delivered} delivered, {cancelled} cancelled, {rated} rated"
            ));
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    pub(crate) fn clear(&self) {
        self.bar.finish_and_clear();
    }
}
