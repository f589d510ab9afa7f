//! Histories made by hand that violate each rule.

use std::collections::{HashMap, HashSet};

use super::declared::{Declared, all, name};
use super::history::Grant;
use super::judge::{Counted, Failure, Judged, Run, judge};
use super::operator::Done;

const EVERY: u64 = 50;

struct Made {
    counted: Counted,
    grants: HashMap<String, Vec<Grant>>,
    stored: HashSet<String>,
    operator: Done,
    failures: Vec<Failure>,
}

/// Four fires from 1,000 ms on: two ticks, one missed, one paused.
fn sound() -> Made {
    let grants = [1_000, 1_100].map(|ms| (id(ms), vec![granted(ms * 1_000 + 500, 1)]));
    Made {
        counted: Counted {
            since_ms: 1_000,
            last_ms: 1_150,
            made: 2,
            dropped: [1, 0, 1],
        },
        grants: grants.into(),
        stored: HashSet::new(),
        operator: Done::default(),
        failures: Vec::new(),
    }
}

fn id(ms: u64) -> String {
    format!("{}@{ms}", name(0))
}

fn granted(us: u64, attempt: u64) -> Grant {
    Grant {
        us,
        attempt,
        deadline_us: us + 2_000_000,
        acked_us: None,
        is_settled: false,
    }
}

fn judged(made: &Made) -> Judged {
    let first = all().remove(&name(0)).expect("the first");
    let declared: HashMap<String, Declared> = [(name(0), first)].into();
    judge(&Run {
        declared: &declared,
        counted: &[(name(0), made.counted)].into(),
        grants: &made.grants,
        stored: &made.stored,
        operator: &made.operator,
        failures: &made.failures,
    })
}

fn assert_found(made: &Made, text: &str) {
    let judged = judged(made);
    let texts = judged.violations.texts();
    assert!(texts.len() == 1 && texts[0].contains(text), "{texts:?}");
}

fn assert_sound(made: &Made) {
    assert_eq!(judged(made).violations.summary(), None);
}

#[test]
fn sound_history_holds() {
    assert_sound(&sound());
    let mut none_yet = sound();
    none_yet.grants.clear();
    none_yet.counted = Counted {
        since_ms: 1_000,
        last_ms: 990,
        made: 0,
        dropped: [0; 3],
    };
    assert_sound(&none_yet);
}

#[test]
fn lost_and_doubled_counts_are_found() {
    let mut made = sound();
    made.counted.dropped[0] += 1;
    assert_found(&made, "4 fires, but 2 made + 2 missed");
    made.counted.dropped = [0, 0, 1];
    assert_found(&made, "are 3");
}

#[test]
fn tick_that_nobody_saw_is_found() {
    let mut made = sound();
    made.grants.remove(&id(1_100));
    assert_found(&made, "2 ticks are made, 1 seen");
    made.stored.insert(id(1_100));
    assert_sound(&made);
}

#[test]
fn tick_that_is_not_counted_is_found() {
    let mut made = sound();
    made.grants.insert(id(1_050), vec![granted(1_050_000, 1)]);
    assert_found(&made, "2 ticks are made, 3 granted");
    made.failures = vec![Failure {
        from_us: 1_049_000,
        until_us: 1_051_000,
    }];
    assert_sound(&made);
}

#[test]
fn second_grant_needs_a_crash_or_a_failover() {
    let mut made = sound();
    let grants = made.grants.get_mut(&id(1_000)).expect("grants");
    grants.push(granted(4_000_000, 1));
    assert_found(&made, "without a recorded crash");
    let window = |from_us, until_us| Failure { from_us, until_us };
    made.failures = vec![window(2_000_000, 3_000_000)];
    assert_found(&made, "without a recorded crash");
    made.failures = vec![window(1_000_000, 1_000_600)];
    assert_sound(&made);
    made.failures.clear();
    made.grants.get_mut(&id(1_000)).expect("grants")[1].attempt = 2;
    assert_sound(&made);
    assert_eq!(judged(&made).after_crashes, 1);
    made.grants.get_mut(&id(1_000)).expect("grants")[1].us = 2_000_000;
    assert_found(&made, "before its lease ran out");
}

#[test]
fn grant_after_an_ack_is_found() {
    let mut made = sound();
    let grants = made.grants.get_mut(&id(1_000)).expect("grants");
    grants[0].acked_us = Some(1_001_000);
    grants.push(granted(4_000_000, 2));
    assert_found(&made, "after its ack");
    made.failures = vec![Failure {
        from_us: 1_000_900,
        until_us: 1_002_000,
    }];
    assert_sound(&made);
}

#[test]
fn early_grant_is_found() {
    let mut made = sound();
    made.grants.get_mut(&id(1_000)).expect("grants")[0].us = 999_999;
    assert_found(&made, "granted at 999999 us");
}

#[test]
fn tick_of_no_fire_needs_an_operator() {
    let mut made = sound();
    made.grants.insert(id(1_001), vec![granted(1_001_000, 1)]);
    assert_found(&made, "matches neither a fire nor a trigger");
    made.operator.triggered.insert(id(1_001));
    assert_sound(&made);
    made.operator.triggered.clear();
    made.operator.unknown = vec![(name(0), 990, 2_000)];
    made.grants.insert("x".to_owned(), Vec::new());
    assert_found(&made, "x is no tick");
    assert_eq!(EVERY, all()[&name(0)].every_ms);
}
