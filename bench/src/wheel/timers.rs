//! What every structure is asked to do.

use std::fmt::Debug;
use std::hint::black_box;

/// What a timer carries.
pub(super) trait Payload: Debug + 'static {
    fn of(number: u64) -> Self;
}

impl Payload for u64 {
    fn of(number: u64) -> Self {
        number
    }
}

impl Payload for Box<u64> {
    fn of(number: u64) -> Self {
        Box::new(number)
    }
}

/// A set of timers whose ticks are milliseconds. It begins at tick 0.
pub(super) trait Timers<T>: Sized {
    /// What the caller holds of a timer.
    type Key;

    /// The name in JSON.
    const NAME: &'static str;
    /// The name in the table.
    const LABEL: &'static str;
    /// What a reader of the figures has to know; a missing figure is explained here.
    const NOTE: &'static str = "";
    const CANCELS: bool = true;
    const RESETS: bool = true;
    /// Whether it can say when to look again. Otherwise every tick has to be walked.
    const TELLS_NEXT: bool = true;
    /// Whether one call can be kept from firing everything that is due.
    const IS_BOUNDED: bool = false;

    fn new() -> Self;

    fn insert(&mut self, when: u64, value: T) -> Self::Key;

    /// Whether it was there.
    fn remove(&mut self, key: Self::Key) -> bool;

    /// Whether it was there.
    fn reset(&mut self, key: &mut Self::Key, when: u64) -> bool;

    /// Fires all that is due, and says how many those were.
    fn advance(&mut self, now: u64) -> usize;

    /// A time at or before every deadline, if the structure knows one.
    fn next(&mut self) -> Option<u64>;

    /// One bounded call of those that `advance` is made of: how many fired, and whether to call again.
    fn advance_bounded(&mut self, now: u64) -> (usize, bool) {
        (self.advance(now), false)
    }

    /// Gives a key up; its timer stays.
    fn release(&mut self, _key: Self::Key) {}
}

/// Receives a value that fired.
pub(super) fn fire<T>(value: T) {
    black_box(value);
}
