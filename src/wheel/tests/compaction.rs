//! Compaction removes stale entries and no others.

use super::super::{Key, Wheel};
use super::model::Random;
use super::{fire, insert};

/// The most stale entries and unused chunk entries of a wheel with 704 slots, beyond twice its
/// timers.
const SLACK: usize = 704 * 2 * 128;

#[test]
fn compaction_keeps_keys_valid() {
    let mut wheel = Wheel::new();
    let keys: Vec<Key> = (0..100_000)
        .map(|n| insert(&mut wheel, 1_000_000 + n))
        .collect();
    for (n, &key) in keys.iter().enumerate() {
        if n % 10 != 3 {
            assert!(wheel.remove(key).is_some());
        }
    }
    let (entries, _) = wheel.slots.footprint();
    assert!(entries < 21_000, "{entries} entries for 10,000 timers");
    for (n, &key) in keys.iter().enumerate() {
        assert_eq!(wheel.get(key).is_some(), n % 10 == 3);
    }
    let expected: Vec<u64> = (0..100_000)
        .filter(|n| n % 10 == 3)
        .map(|n| 1_000_000 + n)
        .collect();
    assert_eq!(fire(&mut wheel, 2_000_000), expected);
    assert_eq!(wheel.slots.footprint().0, 0);
}

#[test]
fn repeated_insert_and_remove_takes_no_more_memory() {
    let mut wheel = Wheel::new();
    let stays = insert(&mut wheel, 1_000_000);
    for _ in 0..100_000 {
        let key = insert(&mut wheel, 1_000_000);
        wheel.remove(key);
    }
    let (entries, room) = wheel.slots.footprint();
    assert!(
        entries <= 256 && room <= 512,
        "{entries} entries, room for {room}"
    );
    assert_eq!(wheel.get(stays), Some(&1_000_000));
}

#[test]
fn repeated_resets_take_no_more_memory() {
    let mut wheel = Wheel::new();
    let stay = [50, 20_000].map(|when| insert(&mut wheel, when));
    for _ in 0..100_000 {
        let key = insert(&mut wheel, 20_000);
        assert!(wheel.reset(key, 50));
        assert!(wheel.remove(key).is_some());
    }
    let (entries, room) = wheel.slots.footprint();
    assert!(
        entries <= 512 && room <= 1_024,
        "{entries} entries, room for {room}"
    );
    assert_eq!(
        stay.map(|key| wheel.deadline(key)),
        [Some(50), Some(20_000)]
    );
}

#[test]
fn cancelled_timeouts_free_their_memory() {
    let mut wheel = Wheel::new();
    let mut in_flight = std::collections::VecDeque::new();
    for n in 0..300_000_u64 {
        let now = n / 10;
        assert_eq!(wheel.pop_expired(now), None);
        in_flight.push_back(insert(&mut wheel, now + 30_000));
        if in_flight.len() > 100 {
            let answered = in_flight.pop_front().expect("more than 100");
            assert!(wheel.remove(answered).is_some());
        }
    }
    let (entries, room) = wheel.slots.footprint();
    assert!(
        entries < 2_000 && room < 4_000,
        "{entries} entries, room for {room}"
    );
}

#[test]
fn memory_is_bounded_by_the_peak_number_of_timers() {
    let mut random = Random::new(7);
    let mut wheel = Wheel::new();
    let mut keys: Vec<Key> = (0..20_000)
        .map(|_| insert(&mut wheel, random.below(1 << 22)))
        .collect();
    for _ in 0..400_000 {
        let at = random.below(20_000) as usize;
        if random.below(2) == 0 {
            wheel.reset(keys[at], random.below(1 << 22));
        } else {
            wheel.remove(keys[at]);
            keys[at] = insert(&mut wheel, random.below(1 << 22));
        }
    }
    let (_, room) = wheel.slots.footprint();
    assert!(room <= 3 * 20_000 + SLACK, "room for {room}");
    assert_eq!(wheel.advance(1 << 22).count(), 20_000);
}

#[test]
fn compaction_during_a_cascade_loses_no_timer() {
    for work in [1, 100, 127, 128, 129, 500, 999] {
        let mut wheel = Wheel::new();
        let keys: Vec<Key> = (0..3_000)
            .map(|n| insert(&mut wheel, 300_000 + n))
            .collect();
        assert_eq!(
            wheel.advance_limited(300_100, work).count(),
            0,
            "still spreading"
        );
        for key in &keys[200..2_900] {
            assert!(wheel.remove(*key).is_some());
        }
        for key in &keys[100..200] {
            assert!(wheel.reset(*key, 290_000));
        }
        assert_eq!(wheel.next_expiration_exact(), Some(290_000));
        assert_eq!(wheel.advance(310_000).count(), 300);
    }
}
