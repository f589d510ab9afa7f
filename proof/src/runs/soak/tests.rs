//! The arithmetic of the verdict, on constructed samples.

use super::sample::{Process, Sample};
use super::spread::Spread;
use super::verdict::{
    Descriptors, Growth, Length, Seen, Stolen, Totals, Verdict, descriptors, growth, slope, stolen,
};

const HOUR: Length = Length(3_600.0);

/// A sample every 10 s for an hour.
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

fn judged(samples: &[Sample], last_ms: u64, behind_ms: u64, totals: Totals) -> Verdict {
    let (first, last) = (always(100), always(last_ms));
    Verdict::new(&Seen {
        rate: 1_000,
        most: Some(2_000.4),
        length: HOUR,
        samples,
        late: [&first, &last, &last],
        behind: &always(behind_ms),
        totals,
    })
}

#[test]
fn stolen_cores_of_both_windows_and_the_worst_interval() {
    let samples = hour(|sample| {
        sample.stolen_cores = match sample.at_s {
            at_s if at_s <= 600.0 => 0.1,
            at_s if at_s > 3_000.0 => 0.2,
            1_000.0 => 1.5,
            _ => 0.0,
        };
    });
    assert_eq!(
        stolen(&samples, HOUR),
        Stolen {
            first: 0.1,
            last: 0.2,
            most: 1.5
        }
    );
    assert_eq!(
        stolen(&[], HOUR),
        Stolen {
            first: 0.0,
            last: 0.0,
            most: 0.0
        }
    );
}

#[test]
fn the_slope_is_that_of_the_nearest_line() {
    assert_eq!(slope(&[(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)]), Some(2.0));
    assert_eq!(
        slope(&[(0.0, 1.0), (1.0, 0.0), (2.0, 3.0), (3.0, 2.0)])
            .map(|slope| (slope * 10.0).round()),
        Some(6.0)
    );
    assert_eq!(slope(&[(1.0, 3.0), (1.0, 5.0)]), None);
    assert_eq!(slope(&[(1.0, 3.0)]), None);
    assert_eq!(slope(&[]), None);
}

#[test]
fn growth_is_that_of_the_second_half() {
    // Grows by half in the first half, then by 1 KiB a second.
    let samples = hour(|sample| {
        sample.node.resident_kib = if sample.at_s <= 1_800.0 {
            sample.at_s
        } else {
            30_000.0 + sample.at_s
        };
    });
    let found = growth(&samples, HOUR, |sample| sample.node.resident_kib).expect("enough points");
    let Growth {
        level_kib,
        kib_per_hour,
        percent_per_hour,
        percent,
    } = found;
    assert!((kib_per_hour - 3_600.0).abs() < 1.0, "{found:?}");
    assert!((32_600.0..32_800.0).contains(&level_kib), "{found:?}");
    assert!(
        (percent_per_hour - 11.0).abs() < 0.1 && (percent - 5.5).abs() < 0.1,
        "{found:?}"
    );
    assert_eq!(
        growth(&samples[..100], HOUR, |sample| sample.node.resident_kib),
        None
    );
}

#[test]
fn windows_are_ten_minutes_or_a_sixth() {
    assert_eq!(HOUR.windows(10.1), (true, false));
    assert_eq!(HOUR.windows(600.2), (true, false));
    assert_eq!(HOUR.windows(610.1), (false, false));
    // The interval that ends there is before the last ten minutes.
    assert_eq!(HOUR.windows(3_000.2), (false, false));
    assert_eq!(HOUR.windows(3_010.1), (false, true));
    assert_eq!(HOUR.windows(3_600.3), (false, true));
    let short = Length(120.0);
    assert_eq!(
        [10.0, 20.0, 30.0, 100.0, 110.0, 120.0].map(|at_s| short.windows(at_s)),
        [
            (true, false),
            (true, false),
            (false, false),
            (false, false),
            (false, true),
            (false, true)
        ]
    );
    let hours = Length(36_000.0);
    assert_eq!(
        (hours.windows(600.0), hours.windows(35_500.0)),
        ((true, false), (false, true))
    );
}

#[test]
fn descriptors_of_both_windows_are_told() {
    let samples =
        hour(|sample| sample.node.descriptors = if sample.at_s > 3_200.0 { 21 } else { 20 });
    let found = descriptors(&samples, HOUR, |sample| &sample.node);
    assert_eq!(
        found,
        Descriptors {
            min: 20,
            max: 21,
            first_max: 20,
            last_max: 21
        }
    );
}

#[test]
fn what_stays_as_it_is_is_flat() {
    let verdict = judged(&hour(|_| {}), 119, 10, Totals::default());
    assert_eq!(verdict.complaints(), Vec::<&str>::new());
    assert!(
        verdict.flat && verdict.memory_flat && verdict.descriptors_flat && verdict.lateness_flat
    );
    assert_eq!(
        (verdict.window_s, verdict.most_per_s),
        (600.0, Some(2_000.0))
    );
    let json = serde_json::to_value(&verdict).expect("JSON");
    assert_eq!(
        (&json["cores"]["node"], &json["early"]),
        (&0.25.into(), &0.into())
    );
    // Shrinking is flat, and so are fluctuation and a burst of descriptors in between.
    let shrinking = hour(|sample| {
        sample.node.resident_kib -= sample.at_s;
        sample.redis.resident_kib += if (sample.at_s as u64).is_multiple_of(20) {
            100.0
        } else {
            -100.0
        };
        sample.redis.descriptors += u64::from((1_000.0..1_500.0).contains(&sample.at_s)) * 5;
    });
    assert!(judged(&shrinking, 50, 10, Totals::default()).flat);
}

#[test]
fn what_grows_is_not() {
    type Look = fn(&mut Sample);
    let grow: [Look; 4] = [
        |sample| sample.node.resident_kib += sample.at_s / 4.0,
        |sample| sample.producer.resident_kib += sample.at_s / 4.0,
        |sample| sample.redis.resident_kib += sample.at_s / 4.0,
        |sample| sample.redis_data_kib += sample.at_s / 8.0,
    ];
    for look in grow {
        let verdict = judged(&hour(look), 100, 10, Totals::default());
        assert!(!verdict.memory_flat && !verdict.flat, "{verdict:?}");
        assert_eq!(verdict.complaints(), ["memory is not flat"]);
    }
    let open: [Look; 3] = [
        |sample| sample.node.descriptors += sample.at_s as u64 / 3_000,
        |sample| sample.producer.descriptors += sample.at_s as u64 / 3_000,
        |sample| sample.redis.descriptors += sample.at_s as u64 / 3_000,
    ];
    for look in open {
        assert_eq!(
            judged(&hour(look), 100, 10, Totals::default()).complaints(),
            ["file descriptors are not flat"]
        );
    }
    assert_eq!(
        judged(&hour(|_| {}), 121, 10, Totals::default()).complaints(),
        ["lateness is not flat"]
    );
}

#[test]
fn a_missed_pace_and_wrong_messages_are_reported() {
    let slow = judged(&hour(|_| {}), 100, 1_000, Totals::default());
    assert!(
        slow.flat && !slow.pace_kept && slow.complaints()[0].contains("pace"),
        "{slow:?}"
    );
    for totals in [
        Totals {
            early: 1,
            ..Totals::default()
        },
        Totals {
            unaccounted: 1,
            ..Totals::default()
        },
        Totals {
            unaccounted: -1,
            ..Totals::default()
        },
        Totals {
            failed: 1,
            ..Totals::default()
        },
        Totals {
            unwanted: 2,
            too_late: 1,
            ..Totals::default()
        },
    ] {
        let verdict = judged(&hour(|_| {}), 100, 10, totals);
        assert!(
            verdict.flat && !verdict.sound && verdict.complaints().len() == 1,
            "{verdict:?}"
        );
    }
    assert!(
        judged(
            &hour(|_| {}),
            100,
            10,
            Totals {
                unwanted: 1,
                too_late: 1,
                ..Totals::default()
            }
        )
        .sound
    );
}

#[test]
fn nothing_seen_is_not_flat() {
    let nothing = Spread::new().expect("bounds");
    let late = [&nothing, &nothing, &nothing];
    let seen = Seen {
        rate: 1,
        most: None,
        length: HOUR,
        samples: &[],
        late,
        behind: &nothing,
        totals: Totals::default(),
    };
    let verdict = Verdict::new(&seen);
    assert!(
        !verdict.memory_flat
            && !verdict.descriptors_flat
            && !verdict.lateness_flat
            && !verdict.pace_kept
    );
}
