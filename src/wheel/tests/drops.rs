//! Every value is dropped exactly once, whatever happens to its timer.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::super::Wheel;

/// A value that counts its drops in a cell, and panics in the drop if `panics` is set.
struct Counted<'a> {
    drops: &'a Cell<u32>,
    panics: bool,
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.drops.set(self.drops.get() + 1);
        assert!(!self.panics, "a drop that panics");
    }
}

fn cells(count: usize) -> Vec<Cell<u32>> {
    vec![Cell::new(0); count]
}

/// Makes a wheel with a timer for each cell, at 100, 200, ….
fn fill(cells: &[Cell<u32>]) -> Wheel<Counted<'_>> {
    let mut wheel = Wheel::new();
    for (when, drops) in (100..).step_by(100).zip(cells) {
        wheel
            .insert(
                when,
                Counted {
                    drops,
                    panics: false,
                },
            )
            .expect("there is room");
    }
    wheel
}

fn dropped(cells: &[Cell<u32>]) -> Vec<u32> {
    cells.iter().map(Cell::get).collect()
}

#[test]
fn dropping_the_wheel_drops_its_values() {
    let cells = cells(3);
    drop(fill(&cells));
    assert_eq!(dropped(&cells), [1, 1, 1]);
}

#[test]
fn a_value_taken_out_is_dropped_by_its_owner() {
    let cells = cells(4);
    let mut wheel = fill(&cells);
    let expired = wheel.pop_expired(200);
    drop(wheel);
    assert_eq!(dropped(&cells), [0, 1, 1, 1]);
    drop(expired);
    assert_eq!(dropped(&cells), [1; 4]);
}

#[test]
fn dropping_a_due_iterator_drops_no_value() {
    let cells = cells(4);
    let mut wheel = fill(&cells);
    drop(wheel.advance(400).next());
    assert_eq!(dropped(&cells), [1, 0, 0, 0]);
    drop(wheel);
    assert_eq!(dropped(&cells), [1; 4]);
}

#[test]
fn drain_and_clear_drop_every_value_once() {
    let cells = cells(4);
    let mut wheel = fill(&cells);
    drop(wheel.drain().next());
    assert_eq!(dropped(&cells), [1; 4]);
    wheel.clear();
    assert_eq!(dropped(&cells), [1; 4]);

    let mut wheel = fill(&cells);
    wheel.clear();
    assert_eq!(dropped(&cells), [2; 4]);
}

#[test]
fn a_forgotten_drain_drops_no_value() {
    let cells = cells(4);
    let mut wheel = fill(&cells);
    let mut drain = wheel.drain();
    drop(drain.next());
    std::mem::forget(drain);
    assert_eq!(dropped(&cells), [1, 0, 0, 0]);
    assert_eq!(wheel.len(), 3);
    assert_eq!(wheel.advance(400).count(), 3, "the others are unchanged");
    assert_eq!(dropped(&cells), [1; 4]);
}

#[test]
fn insert_into_a_full_wheel_returns_the_value() {
    let cells = cells(1);
    let mut wheel = Wheel::with_capacity_limit(0);
    let refused = wheel.insert(
        1,
        Counted {
            drops: &cells[0],
            panics: false,
        },
    );
    drop(wheel);
    assert_eq!(dropped(&cells), [0]);
    drop(refused);
    assert_eq!(dropped(&cells), [1]);
}

#[test]
fn a_panicking_drop_leaves_the_wheel_empty_and_usable() {
    for culprit in 0..5 {
        let cells = cells(6);
        let mut wheel = fill(&cells[..5]);
        let key = wheel.drain().map(|(_, value)| value).collect::<Vec<_>>();
        for (n, mut value) in key.into_iter().enumerate() {
            value.panics = n == culprit;
            wheel.insert(n as u64 * 100, value).expect("there is room");
        }
        let result = catch_unwind(AssertUnwindSafe(|| wheel.clear()));
        assert!(result.is_err());
        assert_eq!(dropped(&cells), [1, 1, 1, 1, 1, 0]);
        assert_eq!((wheel.len(), wheel.next_expiration()), (0, None));

        wheel
            .insert(
                7,
                Counted {
                    drops: &cells[5],
                    panics: false,
                },
            )
            .expect("there is room");
        drop(wheel.pop_expired(7));
        assert_eq!(cells[5].get(), 1);
    }
}

#[test]
fn a_panic_of_the_caller_leaves_the_other_timers_due() {
    let cells = cells(3);
    let mut wheel = Wheel::new();
    for (n, drops) in cells.iter().enumerate() {
        wheel
            .insert(
                100,
                Counted {
                    drops,
                    panics: n == 1,
                },
            )
            .expect("there is room");
    }
    let result = catch_unwind(AssertUnwindSafe(|| wheel.advance(100).for_each(drop)));
    assert!(result.is_err());
    assert_eq!(wheel.len(), 1);
    assert_eq!(wheel.advance(100).count(), 1);
    assert_eq!(dropped(&cells), [1; 3]);
}

#[test]
fn other_values_are_dropped_after_a_panicking_drop() {
    let cells = cells(4);
    let mut wheel = Wheel::new();
    for (n, drops) in cells.iter().enumerate() {
        wheel
            .insert(
                100,
                Counted {
                    drops,
                    panics: n == 1,
                },
            )
            .expect("there is room");
    }
    assert!(catch_unwind(AssertUnwindSafe(|| drop(wheel))).is_err());
    assert_eq!(dropped(&cells), [1; 4]);
}
