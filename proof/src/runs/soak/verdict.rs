//! Whether the soak stayed flat: pure arithmetic on the samples.

use serde::Serialize;

use super::mixture::LEAST_DELAY;
use super::sample::{Process, Sample};
use super::spread::Spread;

/// Memory is flat if it grows by no more than this share of its level over the second half of the time.
const MOST_GROWTH_PERCENT: f64 = 3.0;
/// Lateness is flat if its p99 in the last window is at most so many times that of the first.
const MOST_LATENESS_RATIO: f64 = 1.2;
/// The windows are ten minutes long, or a sixth of a shorter time.
const WINDOW_S: f64 = 600.0;

/// The counted part, in seconds from its start.
#[derive(Debug, Clone, Copy)]
pub(super) struct Length(pub(super) f64);

impl Length {
    fn window_s(self) -> f64 {
        WINDOW_S.min(self.0 / 6.0)
    }

    /// Whether an interval that ends then belongs to the first window, and whether to the last.
    /// Half a second of tolerance: samples are a little late.
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
    /// The measured maximum, of which the rate is half.
    pub(super) most: Option<f64>,
    pub(super) length: Length,
    pub(super) samples: &'a [Sample],
    /// The lateness of the first window, of the last, and of all.
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
    /// Pushed, and in the end neither acked nor cancelled.
    pub(super) unaccounted: i64,
    /// Leases that ran out.
    pub(super) crashed: u64,
    /// Deliveries before the due time.
    pub(super) early: u64,
    /// Cancels and reschedules that came too late, and deliveries of messages that were to be
    /// cancelled: no more than those.
    pub(super) too_late: u64,
    pub(super) unwanted: u64,
    /// Calls with an unexpected outcome, and the last of them.
    pub(super) failed: u64,
    pub(super) failure: Option<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct Verdict {
    pub(super) rate_per_s: u64,
    pub(super) most_per_s: Option<f64>,
    pub(super) duration_s: f64,
    pub(super) window_s: f64,
    /// Lateness of messages that were not due at once.
    pub(super) late_p50_ms: Option<f64>,
    pub(super) late_p99_ms: Option<f64>,
    pub(super) late_max_ms: Option<f64>,
    pub(super) first_p99_ms: Option<f64>,
    pub(super) last_p99_ms: Option<f64>,
    pub(super) lateness_ratio: Option<f64>,
    pub(super) behind_p99_ms: Option<f64>,
    pub(super) behind_max_ms: Option<f64>,
    pub(super) memory: Memory,
    pub(super) descriptors: ByProcess<Descriptors>,
    /// Processor time over time, of a core.
    pub(super) cores: ByProcess<f64>,
    /// Processor time that the host withheld from this machine, in cores: that lateness is not the
    /// queue's.
    pub(super) stolen_cores: Stolen,
    #[serde(flatten)]
    pub(super) totals: Totals,
    pub(super) memory_flat: bool,
    pub(super) descriptors_flat: bool,
    pub(super) lateness_flat: bool,
    /// All three.
    pub(super) flat: bool,
    /// 99 % were stored within the shortest delay after their intended push, so that the lateness
    /// is the queue's.
    pub(super) pace_kept: bool,
    /// No message early, none delivered after its cancel, none lost, no call failed.
    pub(super) sound: bool,
}

/// In the mean of the first window, of the last, and in the worst interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Stolen {
    pub(super) first: f64,
    pub(super) last: f64,
    pub(super) most: f64,
}

#[derive(Debug, Serialize)]
pub(super) struct ByProcess<T> {
    node: T,
    producer: T,
    redis: T,
}

#[derive(Debug, Serialize)]
pub(super) struct Memory {
    node: Option<Growth>,
    producer: Option<Growth>,
    redis: Option<Growth>,
    redis_data: Option<Growth>,
}

/// The change of memory over the second half of the time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Growth {
    pub(super) level_kib: f64,
    pub(super) kib_per_hour: f64,
    pub(super) percent_per_hour: f64,
    /// Over the second half itself.
    pub(super) percent: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Descriptors {
    pub(super) min: u64,
    pub(super) max: u64,
    /// The maximum in the first window, and in the last.
    pub(super) first_max: u64,
    pub(super) last_max: u64,
}

impl Verdict {
    pub(super) fn new(seen: &Seen<'_>) -> Self {
        let Seen {
            length,
            samples,
            late: [first, last, all],
            totals,
            ..
        } = seen;
        let memory = Memory {
            node: growth(samples, *length, |sample| sample.node.resident_kib),
            producer: growth(samples, *length, |sample| sample.producer.resident_kib),
            redis: growth(samples, *length, |sample| sample.redis.resident_kib),
            redis_data: growth(samples, *length, |sample| sample.redis_data_kib),
        };
        let descriptors = by_process(|of| descriptors(samples, *length, of));
        let mean = |of: fn(&Sample) -> &Process| {
            samples.iter().map(|sample| of(sample).cores).sum::<f64>() / samples.len().max(1) as f64
        };
        let (first_p99_ms, last_p99_ms) = (first.quantile_ms(0.99), last.quantile_ms(0.99));
        let lateness_ratio = first_p99_ms
            .zip(last_p99_ms)
            .map(|(first, last)| last / first.max(0.001));
        let behind_p99_ms = seen.behind.quantile_ms(0.99);
        let memory_flat = [
            memory.node,
            memory.producer,
            memory.redis,
            memory.redis_data,
        ]
        .iter()
        .all(|growth| growth.is_some_and(|growth| growth.percent <= MOST_GROWTH_PERCENT));
        let descriptors_flat = [descriptors.node, descriptors.producer, descriptors.redis]
            .iter()
            .all(|open| open.first_max > 0 && open.last_max <= open.first_max);
        let lateness_flat = lateness_ratio.is_some_and(|ratio| ratio <= MOST_LATENESS_RATIO);
        Self {
            rate_per_s: seen.rate,
            most_per_s: seen.most.map(f64::round),
            duration_s: length.0,
            window_s: length.window_s(),
            late_p50_ms: all.quantile_ms(0.5),
            late_p99_ms: all.quantile_ms(0.99),
            late_max_ms: all.quantile_ms(1.0),
            first_p99_ms,
            last_p99_ms,
            lateness_ratio: lateness_ratio.map(rounded),
            behind_p99_ms,
            behind_max_ms: seen.behind.quantile_ms(1.0),
            memory,
            descriptors,
            cores: by_process(|of| rounded(mean(of))),
            stolen_cores: stolen(samples, *length),
            totals: totals.clone(),
            memory_flat,
            descriptors_flat,
            lateness_flat,
            flat: memory_flat && descriptors_flat && lateness_flat,
            pace_kept: behind_p99_ms.is_some_and(|ms| ms < LEAST_DELAY.as_millis() as f64),
            sound: totals.early == 0
                && totals.unaccounted == 0
                && totals.failed == 0
                && totals.unwanted <= totals.too_late,
        }
    }

    /// The reasons why it is not sound.
    pub(super) fn complaints(&self) -> Vec<&'static str> {
        [
            (self.memory_flat, "memory is not flat"),
            (self.descriptors_flat, "file descriptors are not flat"),
            (self.lateness_flat, "lateness is not flat"),
            (
                self.pace_kept,
                "the producer did not keep its pace: the rate is too high for this machine",
            ),
            (
                self.sound,
                "messages were early, lost or delivered after their cancel, or calls failed",
            ),
        ]
        .into_iter()
        .filter_map(|(held, complaint)| (!held).then_some(complaint))
        .collect()
    }
}

fn by_process<T>(value: impl Fn(fn(&Sample) -> &Process) -> T) -> ByProcess<T> {
    ByProcess {
        node: value(|sample| &sample.node),
        producer: value(|sample| &sample.producer),
        redis: value(|sample| &sample.redis),
    }
}

pub(super) fn growth(
    samples: &[Sample],
    length: Length,
    kib: impl Fn(&Sample) -> f64,
) -> Option<Growth> {
    let points: Vec<_> = samples
        .iter()
        .filter(|sample| sample.at_s > length.0 / 2.0)
        .map(|sample| (sample.at_s / 3_600.0, kib(sample)))
        .collect();
    let kib_per_hour = slope(&points)?;
    let level_kib = points.iter().map(|point| point.1).sum::<f64>() / points.len() as f64;
    let percent_per_hour = 100.0 * kib_per_hour / level_kib;
    Some(Growth {
        level_kib: rounded(level_kib),
        kib_per_hour: rounded(kib_per_hour),
        percent_per_hour: rounded(percent_per_hour),
        percent: rounded(percent_per_hour * length.0 / 2.0 / 3_600.0),
    })
}

/// The slope of the least-squares line; `None` if the points do not define one.
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

pub(super) fn descriptors(
    samples: &[Sample],
    length: Length,
    of: fn(&Sample) -> &Process,
) -> Descriptors {
    let all = |within: fn((bool, bool)) -> bool| {
        let samples = samples
            .iter()
            .filter(move |sample| within(length.windows(sample.at_s)));
        samples.map(move |sample| of(sample).descriptors)
    };
    Descriptors {
        min: all(|_| true).min().unwrap_or(0),
        max: all(|_| true).max().unwrap_or(0),
        first_max: all(|(first, _)| first).max().unwrap_or(0),
        last_max: all(|(_, last)| last).max().unwrap_or(0),
    }
}

pub(super) fn stolen(samples: &[Sample], length: Length) -> Stolen {
    let mean = |within: fn((bool, bool)) -> bool| {
        let stolen = samples
            .iter()
            .filter(|sample| within(length.windows(sample.at_s)))
            .map(|sample| sample.stolen_cores);
        let (sum, count) = stolen.fold((0.0, 0.0_f64), |(sum, count), stolen| {
            (sum + stolen, count + 1.0)
        });
        rounded(sum / count.max(1.0))
    };
    let most = samples
        .iter()
        .map(|sample| sample.stolen_cores)
        .fold(0.0, f64::max);
    Stolen {
        first: mean(|(first, _)| first),
        last: mean(|(_, last)| last),
        most: rounded(most),
    }
}

/// To three decimals.
fn rounded(figure: f64) -> f64 {
    (figure * 1_000.0).round() / 1_000.0
}
