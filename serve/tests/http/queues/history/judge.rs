//! The events that a test has counted itself, and their comparison with a history.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

const MINUTE_MS: u64 = 60_000;
/// The ratio of a bucket's upper to its lower bound. The first bucket ends at 128 µs.
const BUCKET: f64 = 1.4143;
const FIRST_BUCKET_US: f64 = 128.0;
/// The most by which the test's clock reading differs from the node's for one event, unless the
/// system suspends the thread between the two.
const BESIDE_US: f64 = 5_000.0;

/// An event, and by when the history must contain it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Event {
    /// The event happened after this time.
    pub(super) from_ms: u64,
    /// A report before this time contained the event.
    pub(super) until_ms: u64,
}

impl Event {
    /// An event of the current round.
    pub(super) fn at(from_ms: u64) -> Self {
        Self {
            from_ms,
            until_ms: u64::MAX,
        }
    }
}

/// A duration, known by a lower and an upper bound that the test measured.
#[derive(Debug, Clone, Copy)]
pub(super) struct Taken {
    pub(super) least_us: u64,
    pub(super) most_us: u64,
}

/// The events between two times. Nothing happens just before the first and just after the second.
#[derive(Debug, Default)]
pub(super) struct Round {
    pub(super) from_ms: u64,
    pub(super) until_ms: u64,
    /// Whether no report about the round can be lost.
    pub(super) is_quiet: bool,
    pub(super) lateness: Vec<Taken>,
    pub(super) handling: Vec<Taken>,
}

/// All events that the test has counted.
#[derive(Debug, Default)]
pub(super) struct Truth {
    pub(super) pushed: Vec<Event>,
    pub(super) acked: Vec<Event>,
    pub(super) retried: Vec<Event>,
    pub(super) died: Vec<Event>,
    pub(super) cancelled: Vec<Event>,
    pub(super) rounds: Vec<Round>,
}

/// The extent of the comparison.
#[derive(Debug, Default)]
pub(super) struct Compared {
    pub(super) edges: usize,
    /// The number of minute edges at which every counter had one certain value on each side.
    pub(super) exact_edges: usize,
    pub(super) slots: usize,
    pub(super) percentiles: usize,
    /// The largest ratio of a reported percentile to the true one.
    pub(super) largest_factor: f64,
    /// The number of durations that the history lacks, because the reply to their report was lost.
    pub(super) missing_times: u64,
}

impl Truth {
    fn counters(&self) -> [(&'static str, &[Event]); 5] {
        [
            ("pushed", &self.pushed),
            ("acked", &self.acked),
            ("retried", &self.retried),
            ("died", &self.died),
            ("cancelled", &self.cancelled),
        ]
    }

    /// Ends a round, after the history has all its events and workers have reported all its
    /// durations. With `reported_ms`, checks that each event of a quiet round was reported within
    /// that time.
    pub(super) fn close(&mut self, now_ms: u64, reported_ms: Option<u64>) {
        let Some(round) = self.rounds.last_mut() else {
            return;
        };
        if !round.is_quiet {
            round.until_ms = now_ms;
        }
        let (until_ms, is_quiet) = (round.until_ms, round.is_quiet);
        let lists = [
            &mut self.pushed,
            &mut self.acked,
            &mut self.retried,
            &mut self.died,
            &mut self.cancelled,
        ];
        for event in lists
            .into_iter()
            .flatten()
            .filter(|event| event.until_ms == u64::MAX)
        {
            let reported = reported_ms
                .filter(|_| is_quiet)
                .map(|ms| event.from_ms + ms);
            event.until_ms = until_ms.min(reported.unwrap_or(u64::MAX));
        }
    }

    /// Whether the history contains all events of the test.
    pub(super) fn is_whole_in(&self, history: &Value) -> bool {
        let sum = &history["sum"];
        let is_whole = |(name, events): (&str, &[Event])| sum[name] == events.len();
        self.counters().into_iter().all(is_whole)
    }

    /// Compares a history in minutes with the counted events.
    pub(super) fn compare(&self, history: &Value) -> Result<Compared> {
        let points: Vec<_> = history["points"]
            .as_array()
            .context("points")?
            .iter()
            .collect();
        let from_ms = history["from_ms"].as_u64().context("a time")?;
        let mut compared = Compared::default();
        for (name, events) in self.counters() {
            let counted = history["sum"][name].as_u64().unwrap_or(0);
            ensure!(
                counted == events.len() as u64,
                "{name}: {counted}, not {}",
                events.len()
            );
        }
        let times = self
            .rounds
            .iter()
            .map(|round| round.handling.len() as u64)
            .sum::<u64>();
        let counted = history["sum"]["handling"]["count"].as_u64().unwrap_or(0);
        compared.missing_times = times
            .checked_sub(counted)
            .context("more times than handlers")?;
        for slot in 0..points.len() {
            let edge_ms = from_ms + slot as u64 * MINUTE_MS;
            if self.rounds.iter().all(|round| round.until_ms < edge_ms)
                || self.rounds.iter().all(|round| round.from_ms >= edge_ms)
            {
                continue;
            }
            compared.edges += 1;
            let mut is_exact = true;
            for (name, events) in self.counters() {
                let before = points[..slot]
                    .iter()
                    .map(|point| point[name].as_u64().unwrap_or(0));
                let before: u64 = before.sum();
                let least = events
                    .iter()
                    .filter(|event| event.until_ms < edge_ms)
                    .count() as u64;
                let most = events
                    .iter()
                    .filter(|event| event.from_ms < edge_ms)
                    .count() as u64;
                ensure!(
                    (least..=most).contains(&before),
                    "{name} before {edge_ms}: {before}, not {least} to {most}"
                );
                is_exact &= least == most;
            }
            compared.exact_edges += usize::from(is_exact);
        }
        for (slot, point) in points.iter().enumerate() {
            let start_ms = from_ms + slot as u64 * MINUTE_MS;
            self.compare_times(start_ms, point, &mut compared)?;
        }
        Ok(compared)
    }

    /// Compares the percentiles of a slot, if no round overlaps the slot's edges.
    fn compare_times(&self, start_ms: u64, point: &Value, compared: &mut Compared) -> Result<()> {
        let end_ms = start_ms + MINUTE_MS;
        let touches = |round: &&Round| round.from_ms < end_ms && round.until_ms >= start_ms;
        let rounds: Vec<_> = self.rounds.iter().filter(touches).collect();
        let is_within = |round: &&Round| round.from_ms >= start_ms && round.until_ms < end_ms;
        let is_quiet = rounds.iter().all(|round| round.is_quiet);
        if rounds.is_empty() || !is_quiet || !rounds.iter().all(is_within) {
            return Ok(());
        }
        compared.slots += 1;
        for (name, taken) in [
            (
                "lateness",
                rounds
                    .iter()
                    .flat_map(|round| &round.lateness)
                    .collect::<Vec<_>>(),
            ),
            (
                "handling",
                rounds.iter().flat_map(|round| &round.handling).collect(),
            ),
        ] {
            let times = &point[name];
            ensure!(
                times["count"] == taken.len(),
                "{name} of {point}, not {}",
                taken.len()
            );
            let sorted = |of: fn(&Taken) -> u64| {
                let mut times: Vec<_> = taken.iter().map(|taken| of(taken)).collect();
                times.sort_unstable();
                times
            };
            let (least, most) = (
                sorted(|taken| taken.least_us),
                sorted(|taken| taken.most_us),
            );
            for (field, part) in [("p50_us", 0.5), ("p90_us", 0.9), ("p99_us", 0.99)] {
                let rank = ((taken.len() as f64 * part).ceil() as usize).clamp(1, taken.len());
                let (least, most) = (least[rank - 1] as f64, most[rank - 1] as f64);
                let shown = times[field].as_u64().context("a percentile")? as f64;
                let highest = (most + BESIDE_US).max(FIRST_BUCKET_US) * BUCKET + 1.0;
                ensure!(
                    (least..=highest).contains(&shown),
                    "{name} {field} of the minute {start_ms}: {shown}, not {least} to {most} and a bucket"
                );
                compared.percentiles += 1;
                let factor = shown / most.max(FIRST_BUCKET_US);
                compared.largest_factor = compared.largest_factor.max(factor);
            }
        }
        Ok(())
    }
}
