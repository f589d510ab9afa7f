//! Tests of the wheel, one file per topic.

mod compaction;
mod drops;
mod firing;
mod keys;
mod limits;
mod model;
mod next;
mod oracle;
mod reset;

use super::{Key, Wheel};

/// Inserts a timer whose value is its deadline.
fn insert(wheel: &mut Wheel<u64>, when: u64) -> Key {
    wheel.insert(when, when).expect("there is room")
}

/// A wheel with timers at these deadlines.
fn with<const N: usize>(deadlines: [u64; N]) -> (Wheel<u64>, [Key; N]) {
    let mut wheel = Wheel::new();
    let keys = deadlines.map(|when| insert(&mut wheel, when));
    (wheel, keys)
}

/// Takes out all due timers. Returns their values in the order in which they fired.
fn fire<T>(wheel: &mut Wheel<T>, now: u64) -> Vec<T> {
    wheel.advance(now).map(|expired| expired.value).collect()
}

/// The times at which a wheel at 0 changes levels, and their neighbours.
fn boundaries() -> impl Iterator<Item = u64> {
    (0..64)
        .map(|bit| 1_u64 << bit)
        .flat_map(|v| [v - 1, v, v + 1])
        .chain([u64::MAX - 1, u64::MAX])
}
