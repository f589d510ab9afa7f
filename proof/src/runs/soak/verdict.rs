//! Decides whether the soak stayed flat, by arithmetic on the samples alone.

use dueq_testkit::report::{Report, rounded};
use serde::Serialize;
use serde_json::json;

use super::mixture::LEAST_DELAY;
use super::sample::{Process, Sample};
use super::spread::Spread;

/// Memory is flat if it grows by at most this percentage of its level over the second half of the
/// time.
const MOST_GROWTH_PERCENT: f64 = 3.0;
/// Lateness is flat if its p99 in the last window is at most this many times that of the first
/// window.
const MOST_LATENESS_RATIO: f64 = 1.2;
/// The length of a window: ten minutes, or a sixth of a shorter soak.
const WINDOW_S: f64 = 600.0;

/// The length of the counted part, in seconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Length(pub(super) f64);

impl Length {
    fn window_s(self) -> f64 {
        WINDOW_S.min(self.0 / 6.0)
    }

    /// Whether an interval that ends at `at_s` belongs to the first window; and whether to the
    /// last. Half a second is tolerated, because samples are a little late.
    pub(super) fn windows(self, at_s: f64) -> (bool, bool) {
        (
            at_s <= self.window_s() + 0.5,
            at_s > self.0 - self.window_s() + 0.5,
        )
    }
}

/// The input of a verdict.
pub(super) struct Seen<'a> {
    pub(super) rate: u64,
    /// The measured maximum rate. The soak runs at half of it.
    pub(super) most: Option<f64>,
    pub(super) length: Length,
    pub(super) samples: &'a [Sample],
    /// The lateness in the first window, in the last window, and in the whole counted part.
    pub(super) late: [&'a Spread; 3],
    pub(super) behind: &'a Spread,
    pub(super) totals: Totals,
}

/// Counts of the whole run, including the warm-up and the end.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Totals {
    pub(super) pushed: u64,
    pub(super) acked: u64,
    pub(super) retried: u64,
    pub(super) cancelled: u64,
    /// Messages that were pushed, and at the end neither acked nor cancelled.
    pub(super) unaccounted: i64,
    /// Leases that expired.
    pub(super) crashed: u64,
    /// Deliveries before the due time.
    pub(super) early: u64,
    /// Cancels and reschedules that came too late; and deliveries of messages that should have been
    /// cancelled, which must not be more.
    pub(super) too_late: u64,
    pub(super) unwanted: u64,
    /// Calls with an unexpected outcome; below, the last of them.
    pub(super) failed: u64,
    pub(super) failure: Option<String>,
}

/// A process; and the names of its figures: growth, first and last descriptors, cores.
type Of = (fn(&Sample) -> &Process, [&'static str; 3]);

const PROCESSES: [Of; 3] = [
    (
        |sample| &sample.node,
        [
            "memory of the node, growth in %",
            "descriptors of the node, last window",
            "cores of the node",
        ],
    ),
    (
        |sample| &sample.producer,
        [
            "memory of the producer, growth in %",
            "descriptors of the producer, last window",
            "cores of the producer",
        ],
    ),
    (
        |sample| &sample.redis,
        [
            "memory of Redis, growth in %",
            "descriptors of Redis, last window",
            "cores of Redis",
        ],
    ),
];

/// Adds all figures and rules: memory, descriptors and lateness stay flat, the pace is kept, and no
/// message is early, lost or delivered after its cancel.
pub(super) fn judge(report: &mut Report, seen: &Seen<'_>) {
    let Seen {
        length,
        samples,
        late: [first, last, all],
        totals,
        ..
    } = seen;
    report.scenario("soak");
    report.figure("rate_per_s", seen.rate);
    report.figure("most_per_s", seen.most.map(f64::round));
    report.figure("duration_s", length.0);
    let late = [0.5, 0.99, 1.0].map(|part| all.quantile_ms(part));
    report.figure("lateness p50, p99, max, ms", json!(late));
    for (of, [memory, descriptors, cores]) in PROCESSES {
        let grown = growth(samples, *length, |sample| of(sample).resident_kib);
        flat(report, memory, grown);
        let [before, after] = most_descriptors(samples, *length, of);
        let is_met = before > 0 && after <= before;
        report.rule(descriptors, after, format!("at most {before}"), is_met);
        let sum: f64 = samples.iter().map(|sample| of(sample).cores).sum();
        report.figure(cores, rounded(sum / samples.len().max(1) as f64));
    }
    let grown = growth(samples, *length, |sample| sample.redis_data_kib);
    flat(report, "memory of the data, growth in %", grown);
    let (first, last) = (first.quantile_ms(0.99), last.quantile_ms(0.99));
    report.figure(
        "p99 of the first and the last window, ms",
        json!([first, last]),
    );
    let ratio = first.zip(last).map(|(first, last)| last / first.max(0.001));
    report.rule(
        "ratio of the two",
        ratio.map(rounded),
        format!("at most {MOST_LATENESS_RATIO}"),
        ratio.is_some_and(|ratio| ratio <= MOST_LATENESS_RATIO),
    );
    let stolen = samples.iter().map(|sample| sample.stolen_cores);
    let stolen = stolen.fold(0.0, f64::max);
    report.figure("stolen cores, worst interval", rounded(stolen));
    // 99 % of messages must be stored within the shortest delay after their intended push, so that
    // measured lateness is the queue's.
    let (behind, most) = (seen.behind.quantile_ms(0.99), LEAST_DELAY.as_millis());
    report.rule(
        "producer behind its pace, p99 ms",
        behind,
        format!("below {most}; if not, the rate is too high for this machine"),
        behind.is_some_and(|ms| ms < most as f64),
    );
    let is_sound = totals.early == 0
        && totals.unaccounted == 0
        && totals.failed == 0
        && totals.unwanted <= totals.too_late;
    let wanted = "none early, unaccounted or failed, and unwanted not above too_late";
    report.rule("messages", json!(totals), wanted, is_sound);
}

fn flat(report: &mut Report, name: &'static str, grown: Option<f64>) {
    let is_met = grown.is_some_and(|percent| percent <= MOST_GROWTH_PERCENT);
    let text = format!("at most {MOST_GROWTH_PERCENT}");
    report.rule(name, grown.map(rounded), text, is_met);
}

/// The growth over the second half of the time, as a percentage of the level.
pub(super) fn growth(
    samples: &[Sample],
    length: Length,
    kib: impl Fn(&Sample) -> f64,
) -> Option<f64> {
    let points: Vec<_> = samples
        .iter()
        .filter(|sample| sample.at_s > length.0 / 2.0)
        .map(|sample| (sample.at_s, kib(sample)))
        .collect();
    let level = points.iter().map(|point| point.1).sum::<f64>() / points.len() as f64;
    Some(100.0 * slope(&points)? * length.0 / 2.0 / level)
}

/// The slope of the least-squares line; `None` if the points do not determine one.
pub(super) fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let n = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / n;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let across: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
    let both: f64 = points
        .iter()
        .map(|point| (point.0 - x) * (point.1 - y))
        .sum();
    (across > 0.0).then(|| both / across)
}

/// The most open descriptors in the first window; and in the last.
fn most_descriptors(samples: &[Sample], length: Length, of: fn(&Sample) -> &Process) -> [u64; 2] {
    let within = |is: fn((bool, bool)) -> bool| {
        let samples = samples.iter();
        let samples = samples.filter(|sample| is(length.windows(sample.at_s)));
        samples
            .map(|sample| of(sample).descriptors)
            .max()
            .unwrap_or(0)
    };
    [within(|(first, _)| first), within(|(_, last)| last)]
}
