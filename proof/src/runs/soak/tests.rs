//! Tests the arithmetic of the verdict on made-up samples.

use dueq_testkit::report::Report;

use super::sample::{Process, Sample};
use super::spread::Spread;
use super::verdict::{Length, Seen, Totals, growth, judge, slope};

const HOUR: Length = Length(3_600.0);

/// An hour with a sample every 10 s.
fn hour(look: impl Fn(&mut Sample)) -> Vec<Sample> {
    let process = Process {
        resident_kib: 10_000.0,
        descriptors: 20,
        cores: 0.25,
    };
    (1..=360)
        .map(|i| {
            let (node, producer, redis) = (process.clone(), process.clone(), process.clone());
            let at_s = f64::from(i) * 10.0;
            let mut sample = Sample {
                at_s,
                node,
                producer,
                redis,
                redis_data_kib: 5_000.0,
                ..Sample::default()
            };
            look(&mut sample);
            sample
        })
        .collect()
}

fn always(ms: u64) -> Spread {
    let mut spread = Spread::new().expect("bounds");
    (0..1_000).for_each(|_| spread.record(ms * 1_000));
    spread
}

/// The names of the rules that these samples break.
fn broken(samples: &[Sample], last_ms: u64, behind_ms: u64, totals: Totals) -> Vec<String> {
    let (first, last) = (always(100), always(last_ms));
    let seen = Seen {
        rate: 1_000,
        most: Some(2_000.4),
        length: HOUR,
        samples,
        late: [&first, &last, &last],
        behind: &always(behind_ms),
        totals,
    };
    let mut report = Report::default();
    judge(&mut report, &seen);
    report.failures(true)
}

fn only(broken: &[String], words: &str) {
    assert!(broken.len() == 1 && broken[0].contains(words), "{broken:?}");
}

#[test]
fn slope_is_that_of_the_least_squares_line() {
    assert_eq!(slope(&[(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)]), Some(2.0));
    let points = [(0.0, 1.0), (1.0, 0.0), (2.0, 3.0), (3.0, 2.0)];
    let found = slope(&points).expect("a line");
    assert!((found - 0.6).abs() < 0.01, "{found}");
    assert_eq!(slope(&[(1.0, 3.0), (1.0, 5.0)]), None);
    assert_eq!(slope(&[(1.0, 3.0)]), None);
    assert_eq!(slope(&[]), None);
}

#[test]
fn growth_is_measured_over_the_second_half() {
    // The usage grows by half in the first half, then by 1 KiB per second.
    let samples = hour(|sample| {
        sample.node.resident_kib = if sample.at_s <= 1_800.0 {
            sample.at_s
        } else {
            30_000.0 + sample.at_s
        };
    });
    let node = |sample: &Sample| sample.node.resident_kib;
    let found = growth(&samples, HOUR, node).expect("enough points");
    assert!((found - 5.5).abs() < 0.1, "{found:?}");
    assert_eq!(growth(&samples[..100], HOUR, node), None);
}

#[test]
fn window_lasts_ten_minutes_or_a_sixth_of_the_soak() {
    assert_eq!(HOUR.windows(600.2), (true, false));
    assert_eq!(HOUR.windows(610.1), (false, false));
    // An interval that ends there lies before the last ten minutes.
    assert_eq!(HOUR.windows(3_000.2), (false, false));
    assert_eq!(HOUR.windows(3_010.1), (false, true));
    let short = Length(120.0);
    assert_eq!(short.windows(20.0), (true, false));
    assert_eq!(short.windows(30.0), (false, false));
    assert_eq!(short.windows(110.0), (false, true));
}

#[test]
fn steady_or_shrinking_usage_is_no_finding() {
    let none = Vec::<String>::new();
    assert_eq!(broken(&hour(|_| {}), 119, 10, Totals::default()), none);
    // Shrinking counts as flat, and so do fluctuation and a short burst of descriptors.
    let shrinking = hour(|sample| {
        sample.node.resident_kib -= sample.at_s;
        sample.redis.resident_kib += match (sample.at_s as u64).is_multiple_of(20) {
            true => 100.0,
            false => -100.0,
        };
        sample.redis.descriptors += u64::from((1_000.0..1_500.0).contains(&sample.at_s)) * 5;
    });
    assert_eq!(broken(&shrinking, 50, 10, Totals::default()), none);
}

#[test]
fn growing_usage_is_a_finding() {
    type Look = fn(&mut Sample);
    let grow: [(Look, &str); 7] = [
        (
            |of| of.node.resident_kib += of.at_s / 4.0,
            "memory of the node",
        ),
        (
            |of| of.producer.resident_kib += of.at_s / 4.0,
            "memory of the producer",
        ),
        (
            |of| of.redis.resident_kib += of.at_s / 4.0,
            "memory of Redis",
        ),
        (
            |of| of.redis_data_kib += of.at_s / 8.0,
            "memory of the data",
        ),
        (
            |of| of.node.descriptors += of.at_s as u64 / 3_000,
            "descriptors of the node",
        ),
        (
            |of| of.producer.descriptors += of.at_s as u64 / 3_000,
            "descriptors of the producer",
        ),
        (
            |of| of.redis.descriptors += of.at_s as u64 / 3_000,
            "descriptors of Redis",
        ),
    ];
    for (look, words) in grow {
        only(&broken(&hour(look), 100, 10, Totals::default()), words);
    }
    let late = broken(&hour(|_| {}), 121, 10, Totals::default());
    only(&late, "ratio of the two");
}

#[test]
fn verdict_reports_a_missed_pace_and_wrong_messages() {
    let slow = broken(&hour(|_| {}), 100, 1_000, Totals::default());
    only(&slow, "behind its pace");
    let totals = |early, unaccounted, failed, unwanted| Totals {
        early,
        unaccounted,
        failed,
        unwanted,
        too_late: 1,
        ..Totals::default()
    };
    let wrong = [
        totals(1, 0, 0, 0),
        totals(0, 1, 0, 0),
        totals(0, -1, 0, 0),
        totals(0, 0, 1, 0),
        totals(0, 0, 0, 2),
    ];
    for totals in wrong {
        only(&broken(&hour(|_| {}), 100, 10, totals), "messages");
    }
    assert!(broken(&hour(|_| {}), 100, 10, totals(0, 0, 0, 1)).is_empty());
}

#[test]
fn soak_without_samples_is_not_flat() {
    let nothing = Spread::new().expect("bounds");
    let seen = Seen {
        rate: 1,
        most: None,
        length: HOUR,
        samples: &[],
        late: [&nothing, &nothing, &nothing],
        behind: &nothing,
        totals: Totals::default(),
    };
    let mut report = Report::default();
    judge(&mut report, &seen);
    assert_eq!(report.failures(false).len(), 4 + 3 + 1 + 1);
}
