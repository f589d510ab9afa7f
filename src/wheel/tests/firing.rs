//! Which timers fire, when, and in which order.

use super::super::Wheel;
use super::{boundaries, fire, insert, with};

#[test]
fn a_timer_does_not_fire_before_its_deadline() {
    for when in boundaries().filter(|&when| when > 0) {
        let (mut wheel, _) = with([when]);
        assert_eq!(fire(&mut wheel, when - 1), [0u64; 0], "{when}");
        assert_eq!(fire(&mut wheel, when), [when]);
    }
}

#[test]
fn a_timer_fires_on_its_tick_from_any_position() {
    for position in boundaries() {
        for delay in boundaries().filter(|&delay| delay > 0) {
            let Some(when) = position.checked_add(delay) else {
                continue;
            };
            let mut wheel = Wheel::new();
            assert_eq!(wheel.pop_expired(position), None);
            insert(&mut wheel, when);
            assert_eq!(
                fire(&mut wheel, when - 1),
                [0u64; 0],
                "{delay} from {position}"
            );
            assert_eq!(fire(&mut wheel, when), [when], "{delay} from {position}");
        }
    }
}

#[test]
fn a_jump_over_all_boundaries_keeps_the_order_of_deadlines() {
    let mut wheel = Wheel::new();
    let mut deadlines: Vec<u64> = boundaries().collect();
    deadlines.iter().rev().for_each(|&when| {
        insert(&mut wheel, when);
    });
    deadlines.sort_unstable();
    assert_eq!(fire(&mut wheel, u64::MAX), deadlines);
}

#[test]
fn steps_over_all_boundaries_fire_each_timer_on_its_tick() {
    let mut wheel = Wheel::new();
    let mut deadlines: Vec<u64> = boundaries().collect();
    deadlines.iter().for_each(|&when| {
        insert(&mut wheel, when);
    });
    deadlines.sort_unstable();
    for same in deadlines.chunk_by(|a, b| a == b) {
        assert!(same[0] == 0 || fire(&mut wheel, same[0] - 1).is_empty());
        assert_eq!(fire(&mut wheel, same[0]), same);
    }
}

#[test]
fn the_maximum_deadline_never_fires_early() {
    let (mut wheel, _) = with([u64::MAX]);
    for now in boundaries().filter(|&now| now < u64::MAX) {
        assert_eq!(fire(&mut wheel, now), [0u64; 0], "{now}");
    }
    assert_eq!(fire(&mut wheel, u64::MAX), [u64::MAX]);
}

#[test]
fn a_past_deadline_fires_at_the_next_pop() {
    let (mut wheel, _) = with([500]);
    assert_eq!(fire(&mut wheel, 1_000), [500]);
    insert(&mut wheel, 1_001);
    for when in [900, 3, 1_000, 0] {
        insert(&mut wheel, when);
    }
    assert_eq!(wheel.next_expiration(), Some(0));
    assert_eq!(fire(&mut wheel, 1_000), [0, 3, 900, 1_000]);
}

#[test]
fn a_time_before_now_changes_nothing() {
    let (mut wheel, _) = with([100, 200]);
    assert_eq!(fire(&mut wheel, 150), [100]);
    assert_eq!(fire(&mut wheel, 20), [0u64; 0]);
    assert_eq!(wheel.now(), 150);
    insert(&mut wheel, 120);
    assert_eq!(fire(&mut wheel, 20), [120], "the time has been 150");
    assert_eq!(fire(&mut wheel, 199), [0u64; 0]);
    assert_eq!(fire(&mut wheel, 200), [200]);
}

#[test]
fn due_timers_that_were_not_taken_out_stay_due() {
    let (mut wheel, _) = with([10, 20, 30, 40]);
    assert_eq!(
        wheel.advance(35).next().map(|expired| expired.value),
        Some(10)
    );
    assert_eq!(wheel.len(), 3);
    let _ = wheel.advance(35);
    assert_eq!(fire(&mut wheel, 35), [20, 30]);
    assert_eq!(wheel.len(), 1);
}

#[test]
fn a_timer_set_between_two_due_ones_fires_between_them() {
    let (mut wheel, _) = with([100, 4_000]);
    assert_eq!(
        wheel.pop_expired(5_000).map(|expired| expired.value),
        Some(100)
    );
    for when in [4_001, 3_999, 2_000, 50] {
        insert(&mut wheel, when);
    }
    assert_eq!(fire(&mut wheel, 5_000), [50, 2_000, 3_999, 4_000, 4_001]);
}

#[test]
fn a_due_timer_that_is_removed_does_not_fire() {
    // The timers are in a slot that is fired directly, in a slot that is sorted first, or overdue.
    for spread in [0, 1, 40, 1_000] {
        let mut wheel = Wheel::new();
        let keys: Vec<_> = (0..100)
            .map(|n| insert(&mut wheel, 10_000 + n * spread))
            .collect();
        let now = 10_000 + 100 * spread;
        assert_eq!(wheel.advance(now).take(10).count(), 10);
        for &key in &keys[50..60] {
            assert!(wheel.remove(key).is_some());
        }
        assert_eq!(wheel.remove(keys[0]), None, "it has fired");
        assert_eq!(wheel.len(), 80);
        assert_eq!(wheel.advance(now).count(), 80);
    }
}

#[test]
fn deadlines_64_ticks_apart_are_not_confused() {
    // In a single ring of 64 slots, these deadlines would share a slot.
    let (mut wheel, _) = with([5, 5 + 64, 5 + 64 * 64, 5 + 64 * 64 * 64]);
    for when in [5, 69, 4_101, 262_149] {
        assert_eq!(fire(&mut wheel, when - 1), [0u64; 0]);
        assert_eq!(fire(&mut wheel, when), [when]);
    }
}

#[test]
fn a_hundred_thousand_timers_fire_on_time() {
    let mut wheel = Wheel::new();
    for n in 0..100_000 {
        insert(&mut wheel, 1 + n * 7919 % 100_003);
    }
    let mut fired = 0;
    for now in 1..=100_003 {
        for expired in wheel.advance(now) {
            assert_eq!(expired.deadline, now);
            fired += 1;
        }
    }
    assert_eq!((fired, wheel.len()), (100_000, 0));
}

#[test]
fn drain_returns_timers_that_are_not_due() {
    let (mut wheel, _) = with([1, 2, 300_000, u64::MAX]);
    assert_eq!(fire(&mut wheel, 1), [1]);
    let mut unprocessed: Vec<u64> = wheel.drain().map(|(_, value)| value).collect();
    unprocessed.sort_unstable();
    assert_eq!(unprocessed, [2, 300_000, u64::MAX]);
    assert_eq!((wheel.len(), wheel.next_expiration()), (0, None));
    assert_eq!(fire(&mut wheel, u64::MAX), [0u64; 0]);
}

#[test]
fn drain_works_while_timers_are_due() {
    let (mut wheel, _) = with([10, 11, 12, 13, 90]);
    assert_eq!(wheel.advance(50).take(2).count(), 2);
    insert(&mut wheel, 3);
    assert_eq!(wheel.drain().count(), 4);
    insert(&mut wheel, 60);
    assert_eq!(fire(&mut wheel, 100), [60]);
}

#[test]
fn clear_keeps_the_time_of_the_wheel() {
    let (mut wheel, _) = with([10]);
    wheel.pop_expired(100);
    insert(&mut wheel, 1_000);
    wheel.clear();
    assert_eq!(wheel.now(), 100);
    insert(&mut wheel, 101);
    assert_eq!(fire(&mut wheel, 100), [0u64; 0]);
    assert_eq!(fire(&mut wheel, 101), [101]);
}
