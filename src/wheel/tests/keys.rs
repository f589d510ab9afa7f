//! Stale keys and keys of other wheels.

use std::num::NonZeroU32;

use super::super::slab::Slab;
use super::super::{Key, Wheel};
use super::{fire, insert, with};

fn assert_stale(wheel: &mut Wheel<u64>, key: Key) {
    assert_eq!(wheel.get(key), None);
    assert_eq!(wheel.get_mut(key), None);
    assert_eq!(wheel.deadline(key), None);
    assert!(!wheel.reset(key, 1));
    assert_eq!(wheel.remove(key), None);
}

#[test]
fn a_key_is_stale_once_its_timer_is_gone() {
    let (mut wheel, [fired, removed]) = with([10, 20]);
    assert_eq!(fire(&mut wheel, 10), [10]);
    assert_eq!(wheel.remove(removed), Some(20));
    assert_stale(&mut wheel, fired);
    assert_stale(&mut wheel, removed);

    let drained = insert(&mut wheel, 30);
    wheel.drain().for_each(drop);
    let cleared = insert(&mut wheel, 40);
    wheel.clear();
    insert(&mut wheel, 50);
    assert_stale(&mut wheel, drained);
    assert_stale(&mut wheel, cleared);
    assert_eq!(wheel.len(), 1);
}

#[test]
fn a_key_never_finds_a_later_timer_in_the_same_memory() {
    let (mut wheel, [mut key]) = with([10]);
    for n in 0..1_000 {
        assert_eq!(wheel.remove(key), Some(if n == 0 { 10 } else { n }));
        let next = insert(&mut wheel, n + 1);
        assert_eq!(next.index, key.index, "the memory is reused");
        assert_stale(&mut wheel, key);
        key = next;
    }
}

#[test]
fn a_key_of_another_wheel_finds_nothing() {
    let (_, [foreign]) = with([10]);
    for _ in 0..100 {
        let (mut wheel, [own]) = with([10]);
        assert_eq!(foreign.index, own.index);
        assert_stale(&mut wheel, foreign);
        assert_eq!(wheel.get(own), Some(&10));
    }
}

#[test]
fn a_forged_key_finds_nothing() {
    let (mut wheel, _) = with([10, 20]);
    for index in [0, 1, 2, 1_000_000, u32::MAX - 1, u32::MAX] {
        for generation in [NonZeroU32::MIN, NonZeroU32::MAX] {
            assert_stale(&mut wheel, Key { index, generation });
        }
    }
    assert_eq!(wheel.len(), 2);
}

#[test]
fn memory_whose_generations_are_used_up_is_retired() {
    let mut wheel = Wheel::new();
    wheel.slab = Slab::with_generations(3);
    let mut keys = Vec::new();
    for n in 0..30 {
        let key = insert(&mut wheel, n);
        for &old in &keys {
            assert_stale(&mut wheel, old);
        }
        assert_eq!(wheel.get(key), Some(&n));
        assert_eq!(wheel.remove(key), Some(n));
        keys.push(key);
    }
    let memory: Vec<u32> = keys.iter().map(|key| key.index).collect();
    assert_eq!(memory[..6], [0, 0, 0, 1, 1, 1]);
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), 30, "no key is issued twice");
}

#[test]
fn retired_memory_is_not_used_again() {
    let mut wheel = Wheel::new();
    wheel.slab = Slab::with_generations(1);
    for now in 0..10 {
        insert(&mut wheel, now);
        insert(&mut wheel, now + 100);
        assert_eq!(fire(&mut wheel, now), [now]);
    }
    assert_eq!(wheel.len(), 10);
    assert_eq!(wheel.drain().count(), 10);
    insert(&mut wheel, 20);
    assert_eq!(fire(&mut wheel, 20), [20]);
}

#[test]
fn an_expired_timer_that_was_not_popped_can_be_removed() {
    let (mut wheel, [_, second, third]) = with([10, 20, 20]);
    assert_eq!(wheel.pop_expired(30).map(|expired| expired.value), Some(10));
    assert_eq!(wheel.remove(second), Some(20));
    assert_eq!(wheel.remove(third), Some(20));
    assert_eq!(wheel.next_expiration(), None);
    assert_eq!(fire(&mut wheel, 30), [0u64; 0]);
}

#[test]
fn keys_take_8_bytes_and_timers_at_most_24() {
    assert_eq!(size_of::<Key>(), 8);
    assert_eq!(size_of::<Option<Key>>(), 8);
    assert_eq!(Slab::<u64>::NODE_BYTES, 24);
    assert_eq!(Slab::<Box<u64>>::NODE_BYTES, 24);
    assert_eq!(Slab::<()>::NODE_BYTES, 16);
}

#[test]
fn a_wheel_can_be_sent_to_another_thread() {
    fn assert_send<T: Send>() {}
    fn assert_sync<T: Sync>() {}
    assert_send::<Wheel<Box<u64>>>();
    assert_sync::<Wheel<Box<u64>>>();
}
