//! Tests of `next_expiration` and `next_expiration_exact`.

use super::super::Wheel;
use super::{boundaries, fire, insert, with};

#[test]
fn next_expiration_is_none_only_for_an_empty_wheel() {
    let mut wheel = Wheel::new();
    assert_eq!(wheel.next_expiration(), None);
    assert_eq!(wheel.next_expiration_exact(), None);
    let key = insert(&mut wheel, u64::MAX);
    assert!(wheel.next_expiration().is_some());
    wheel.remove(key);
    assert_eq!(
        wheel.next_expiration(),
        None,
        "removing the last timer ends the wait"
    );
    assert_eq!(wheel.next_expiration_exact(), None);
}

#[test]
fn any_deadline_is_reached_with_at_most_eleven_wake_ups() {
    for position in boundaries() {
        for when in boundaries().filter(|&when| when > position) {
            let mut wheel = Wheel::new();
            wheel.pop_expired(position);
            insert(&mut wheel, when);
            let (mut steps, mut now) = (0, position);
            while let Some(next) = wheel.next_expiration() {
                assert!(now < next && next <= when, "{position} to {when}");
                now = next;
                steps += 1;
                wheel.pop_expired(now);
            }
            assert_eq!(now, when, "fired at its deadline");
            assert!(steps <= 11, "{position} to {when}");
        }
    }
}

#[test]
fn a_timer_in_half_a_minute_causes_at_most_three_wake_ups() {
    let start = 1_700_000_000_123;
    for delay in [30_000, 29_999, 31_415] {
        let mut wheel = Wheel::new();
        wheel.pop_expired(start);
        insert(&mut wheel, start + delay);
        let mut steps = 0;
        while let Some(next) = wheel.next_expiration() {
            wheel.pop_expired(next);
            steps += 1;
        }
        assert!(steps <= 3);
    }
}

#[test]
fn next_expiration_is_in_the_future_once_nothing_is_due() {
    let (mut wheel, keys) = with([100, 101, 163, 164, 165, 5_000]);
    for (now, key) in (0..6_000).zip(keys.iter().cycle()) {
        wheel.advance(now).for_each(drop);
        assert!(wheel.next_expiration().is_none_or(|next| next > now));
        wheel.reset(*key, now + now % 70);
        wheel.advance(now).for_each(drop);
        assert!(wheel.next_expiration().is_none_or(|next| next > now));
    }
}

#[test]
fn next_expiration_is_not_in_the_future_if_a_timer_is_due() {
    let (mut wheel, _) = with([100, 4_000, 4_001, 4_002, 4_100, 90_000]);
    for _ in 0..5 {
        assert!(wheel.next_expiration() <= Some(5_000));
        assert!(wheel.pop_expired(5_000).is_some());
    }
    assert!(wheel.next_expiration() > Some(5_000));
}

#[test]
fn cancelled_timers_cause_no_wake_up() {
    let (mut wheel, keys) = with([100, 101, 102, 500_000]);
    for key in &keys[..3] {
        wheel.remove(*key);
    }
    assert!(wheel.next_expiration() > Some(102));
}

#[test]
fn exact_expiration_is_the_earliest_within_a_slot() {
    let (mut wheel, keys) = with([5_003, 5_001, 5_002, 5_001]);
    assert_eq!(wheel.next_expiration_exact(), Some(5_001));
    wheel.remove(keys[1]);
    assert_eq!(wheel.next_expiration_exact(), Some(5_001));
    wheel.remove(keys[3]);
    assert_eq!(wheel.next_expiration_exact(), Some(5_002));
    wheel.reset(keys[0], 5_000);
    assert_eq!(wheel.next_expiration_exact(), Some(5_000));
}

#[test]
fn exact_expiration_skips_timers_reset_to_later() {
    let (mut wheel, keys) = with([100, 110, 120, 5_000, 300_000]);
    for key in &keys[..3] {
        wheel.reset(*key, 400_000);
    }
    assert_eq!(wheel.next_expiration_exact(), Some(5_000));
    wheel.reset(keys[3], 350_000);
    assert_eq!(wheel.next_expiration_exact(), Some(300_000));
    assert_eq!(fire(&mut wheel, 200_000), [0u64; 0]);
    assert_eq!(wheel.next_expiration_exact(), Some(300_000));
}

#[test]
fn next_expiration_changes_nothing() {
    let (mut wheel, _) = with([700, 70, 7]);
    for _ in 0..3 {
        assert_eq!(wheel.next_expiration_exact(), Some(7));
        assert_eq!(wheel.next_expiration(), Some(7));
    }
    assert_eq!(fire(&mut wheel, 700), [7, 70, 700]);
}
