//! The operations of every structure.

use std::fmt::Debug;

/// The value of a timer.
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
    /// The caller's key of a timer.
    type Key;

    /// The name in JSON.
    const NAME: &'static str;
    /// The name in the table.
    const LABEL: &'static str;
    /// Notes for readers of the figures; explains a missing figure.
    const NOTE: &'static str = "";
    const CANCELS: bool = true;
    const RESETS: bool = true;
    /// Whether it reports when to advance next. Otherwise every tick has to be visited.
    const TELLS_NEXT: bool = true;
    /// Whether one call can be limited, so that it does not fire all due timers.
    const IS_BOUNDED: bool = false;

    fn new() -> Self;

    fn insert(&mut self, when: u64, value: T) -> Self::Key;

    /// Whether it existed. The value goes to a place that is not dropped in the measured time.
    fn remove(&mut self, key: Self::Key, removed: &mut Vec<T>) -> bool;

    /// Whether it existed.
    fn reset(&mut self, key: &mut Self::Key, when: u64) -> bool;

    /// Fires all due timers.
    fn advance(&mut self, now: u64, fired: &mut Vec<T>);

    /// A time at or before every deadline, if the structure knows one.
    fn next(&mut self) -> Option<u64>;

    /// One bounded call of `advance`: whether to call again.
    fn advance_bounded(&mut self, now: u64, fired: &mut Vec<T>) -> bool {
        self.advance(now, fired);
        false
    }

    /// Frees a key; its timer stays.
    fn release(&mut self, _key: Self::Key) {}
}

/// Keeps a removed value until the measurement is over; whether there was one.
pub(super) fn keep<T>(value: Option<T>, removed: &mut Vec<T>) -> bool {
    let was_there = value.is_some();
    removed.extend(value);
    was_there
}
