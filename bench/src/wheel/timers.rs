//! What every structure is asked to do.

use std::fmt::Debug;

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

    /// Whether it was there. The value goes where nobody drops it in the time that is measured.
    fn remove(&mut self, key: Self::Key, removed: &mut Vec<T>) -> bool;

    /// Whether it was there.
    fn reset(&mut self, key: &mut Self::Key, when: u64) -> bool;

    /// Fires all that is due.
    fn advance(&mut self, now: u64, fired: &mut Vec<T>);

    /// A time at or before every deadline, if the structure knows one.
    fn next(&mut self) -> Option<u64>;

    /// One bounded call of those that `advance` is made of: whether to call again.
    fn advance_bounded(&mut self, now: u64, fired: &mut Vec<T>) -> bool {
        self.advance(now, fired);
        false
    }

    /// Gives a key up; its timer stays.
    fn release(&mut self, _key: Self::Key) {}
}

/// Keeps a removed value until the measurement is over; whether there was one.
pub(super) fn keep<T>(value: Option<T>, removed: &mut Vec<T>) -> bool {
    let was_there = value.is_some();
    removed.extend(value);
    was_there
}
