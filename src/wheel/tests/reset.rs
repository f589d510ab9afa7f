//! Changing the deadline of a timer.

use super::super::Wheel;
use super::{boundaries, fire, insert, with};

#[test]
fn reset_to_later_does_not_fire_at_the_old_deadline() {
    for when in boundaries().filter(|&when| when < u64::MAX) {
        for later in boundaries().filter(|&later| later > when) {
            let (mut wheel, [key]) = with([when]);
            assert!(wheel.reset(key, later));
            assert_eq!(wheel.deadline(key), Some(later));
            assert_eq!(fire(&mut wheel, later - 1), [0u64; 0], "{when} to {later}");
            assert_eq!(fire(&mut wheel, later).len(), 1, "{when} to {later}");
        }
    }
}

#[test]
fn reset_to_earlier_fires_at_the_new_deadline() {
    for when in boundaries() {
        for earlier in boundaries().filter(|&earlier| 0 < earlier && earlier < when) {
            let (mut wheel, [key]) = with([when]);
            assert!(wheel.reset(key, earlier));
            assert_eq!(
                fire(&mut wheel, earlier - 1),
                [0u64; 0],
                "{when} to {earlier}"
            );
            assert_eq!(fire(&mut wheel, earlier).len(), 1, "{when} to {earlier}");
        }
    }
}

#[test]
fn reset_to_later_then_earlier_fires_at_the_last_deadline() {
    for (first, later, last) in [
        (100, 9_000, 50),
        (100, 9_000, 100),
        (100, 9_000, 101),
        (100, 9_000, 8_999),
        (5_000, 300_000, 4_100),
    ] {
        let (mut wheel, [key]) = with([first]);
        wheel.reset(key, later);
        wheel.reset(key, last);
        assert_eq!(
            fire(&mut wheel, last - 1),
            [0u64; 0],
            "{first}, {later}, {last}"
        );
        assert_eq!(fire(&mut wheel, last).len(), 1, "{first}, {later}, {last}");
    }
}

#[test]
fn reset_to_the_past_fires_at_the_next_pop() {
    let (mut wheel, [key, _]) = with([5_000, 6_000]);
    assert_eq!(fire(&mut wheel, 1_000), [0u64; 0]);
    assert!(wheel.reset(key, 10));
    assert_eq!(wheel.next_expiration_exact(), Some(10));
    assert_eq!(fire(&mut wheel, 1_000), [5_000]);
}

#[test]
fn two_resets_to_much_later_fire_at_the_last_deadline() {
    let (mut wheel, [key]) = with([10]);
    wheel.reset(key, 70 * 86_400_000);
    assert_eq!(fire(&mut wheel, 86_400_000), [0u64; 0]);
    wheel.reset(key, 140 * 86_400_000);
    assert_eq!(fire(&mut wheel, 140 * 86_400_000 - 1), [0u64; 0]);
    assert_eq!(fire(&mut wheel, 140 * 86_400_000), [10]);
}

#[test]
fn reset_of_an_expired_unpopped_timer_postpones_it() {
    // The timer is alone in its slot, shares the slot, or is in a sorted run.
    for others in [0, 1, 50] {
        let mut wheel = Wheel::new();
        insert(&mut wheel, 90);
        let key = insert(&mut wheel, 100);
        for n in 0..others {
            insert(&mut wheel, 100 + n % 2);
        }
        assert_eq!(
            wheel.pop_expired(110).map(|expired| expired.value),
            Some(90)
        );
        assert!(wheel.reset(key, 200));
        assert_eq!(wheel.advance(199).count() as u64, others);
        assert_eq!(fire(&mut wheel, 200), [100]);
    }
}

#[test]
fn postponing_the_first_timer_makes_the_second_next() {
    let (mut wheel, [first, _]) = with([100, 200]);
    wheel.reset(first, 300);
    assert_eq!(wheel.next_expiration_exact(), Some(200));
    assert_eq!(fire(&mut wheel, 299), [200]);
    assert_eq!(wheel.next_expiration_exact(), Some(300));
    assert_eq!(fire(&mut wheel, 300), [100]);
}

#[test]
fn reset_to_the_same_deadline_changes_nothing() {
    let (mut wheel, [key]) = with([100]);
    assert!(wheel.reset(key, 100));
    assert_eq!(fire(&mut wheel, 99), [0u64; 0]);
    assert_eq!(fire(&mut wheel, 100), [100]);
    assert!(!wheel.reset(key, 100), "it has fired");
}

#[test]
fn an_overdue_timer_keeps_only_its_last_deadline() {
    let mut wheel = Wheel::new();
    wheel.pop_expired(1_000);
    let key = insert(&mut wheel, 30);
    insert(&mut wheel, 25);
    for n in 0..10_000 {
        assert!(wheel.reset(key, if n % 2 == 0 { 20 } else { 30 }));
    }
    assert!(wheel.overdue.entries() < 200, "the heap is swept");
    for _ in 0..10_000 {
        assert!(wheel.reset(key, 30));
    }
    assert!(wheel.overdue.entries() < 200, "the heap is swept");
    assert_eq!(wheel.next_expiration_exact(), Some(25));
    assert_eq!(fire(&mut wheel, 1_000), [25, 30]);
}

#[test]
fn a_timer_that_is_always_reset_in_time_never_fires() {
    let mut wheel = Wheel::new();
    let keys: Vec<_> = (0..1_000).map(|_| insert(&mut wheel, 30_000)).collect();
    for now in (0..1_000_000).step_by(1_000) {
        assert_eq!(wheel.pop_expired(now), None);
        for &key in &keys {
            assert!(wheel.reset(key, now + 30_000));
        }
    }
    assert_eq!(fire(&mut wheel, 999_000 + 29_999), [0u64; 0]);
    assert_eq!(fire(&mut wheel, 999_000 + 30_000).len(), 1_000);
}
