//! The capacity limit of a wheel, and the limit on the work of one call.

use super::super::{Full, Wheel};
use super::{fire, insert, with};

#[test]
fn insert_at_the_capacity_limit_returns_the_value() {
    let mut wheel = Wheel::with_capacity_limit(2);
    let first = insert(&mut wheel, 10);
    insert(&mut wheel, 20);
    assert_eq!(wheel.insert(30, 30), Err(Full(30)));
    assert_eq!(wheel.len(), 2);

    assert_eq!(wheel.remove(first), Some(10));
    insert(&mut wheel, 30);
    assert_eq!(wheel.insert(40, 40), Err(Full(40)));

    assert_eq!(fire(&mut wheel, 20), [20]);
    insert(&mut wheel, 40);
    wheel.clear();
    insert(&mut wheel, 50);
    insert(&mut wheel, 60);
    assert!(wheel.insert(70, 70).is_err());
}

#[test]
fn full_implements_debug_whatever_its_value() {
    struct Opaque;
    let mut wheel = Wheel::with_capacity_limit(0);
    let Err(full) = wheel.insert(1, Opaque) else {
        panic!("no room at all")
    };
    assert_eq!(full.to_string(), "the wheel is at its capacity limit");
    assert_eq!(format!("{full:?}"), "Full(..)");
}

#[test]
fn len_counts_a_timer_cancelled_in_its_firing_tick() {
    let (mut wheel, [_, second, _]) = with([10, 10, 10]);
    assert!(wheel.pop_expired(10).is_some());
    assert_eq!(wheel.len(), 2);
    wheel.remove(second);
    assert_eq!(wheel.len(), 1);
    assert!(wheel.pop_expired(10).is_some());
    assert_eq!((wheel.len(), wheel.is_empty()), (0, true));
}

#[test]
fn limited_work_does_not_change_the_order_of_firing() {
    for work in [1, 2, 3, 7, 31, 32, 33, 1_000, 100_000] {
        let mut wheel = Wheel::new();
        let mut deadlines: Vec<u64> = (0..5_000).map(|n| n * 7919 % 100_003).collect();
        deadlines.iter().for_each(|&when| {
            insert(&mut wheel, when);
        });
        deadlines.sort_unstable();
        let mut fired = Vec::new();
        let mut calls = 0;
        while wheel.next_expiration().is_some_and(|next| next <= 200_000) {
            calls += 1;
            assert!(
                calls * work <= 12 * 5_000 + work,
                "every call makes progress"
            );
            fired.extend(
                wheel
                    .advance_limited(200_000, work)
                    .map(|expired| expired.value),
            );
        }
        assert_eq!(fired, deadlines, "by {work}");
    }
}

#[test]
fn a_call_touches_at_most_work_entries() {
    let mut wheel = Wheel::new();
    for _ in 0..100_000 {
        insert(&mut wheel, 1_000_000);
    }
    let (mut calls, mut fired) = (0, 0);
    while !wheel.is_empty() {
        let mut due = wheel.advance_limited(2_000_000, 1_000);
        fired += due.by_ref().count();
        assert!(due.work_left() == 0 || wheel.is_empty());
        calls += 1;
    }
    assert_eq!(fired, 100_000);
    // Each entry is touched about five times: three levels down, into the run, and out.
    assert!((300..=600).contains(&calls), "{calls}");
}

#[test]
fn timers_set_while_a_slot_is_half_spread_fire_in_order() {
    for work in 1..200 {
        let mut wheel = Wheel::new();
        for n in 0..100 {
            insert(&mut wheel, 4_096 + n * 40);
        }
        let mut fired: Vec<u64> = wheel
            .advance_limited(9_000, work)
            .map(|expired| expired.value)
            .collect();
        let from = fired.last().copied().unwrap_or(0);
        for when in [from, 4_097, 5_000, 8_191, 8_192] {
            insert(&mut wheel, when.max(from));
        }
        fired.extend(fire(&mut wheel, 9_000));
        assert!(fired.is_sorted(), "after {work}");
        assert_eq!(fired.len(), 105);
    }
}

#[test]
fn zero_work_only_sets_the_time() {
    let (mut wheel, _) = with([10]);
    assert_eq!(wheel.advance_limited(20, 0).count(), 0);
    assert_eq!((wheel.now(), wheel.len()), (20, 1));
    assert_eq!(fire(&mut wheel, 0), [10]);
}
